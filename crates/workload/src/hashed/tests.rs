use std::fs;
use std::time::Duration;

use terracedb::Db;
use terracedb::hashed::HashedPolicy;

use super::*;
use crate::bench::{Bench, Name, Options, check_order};
use crate::{Engine, Store};

fn keep(dir: &tempfile::TempDir) -> Engine {
    let db = Db::builder(dir.path().join("store")).memory(64 << 20).open().unwrap();
    Engine::hashed(db, HashedPolicy::Keep).unwrap()
}

/// Every phase answers right, and the counters of the keyspace agree with those of the driver.
#[test]
fn the_evaluation_of_silt_counts_what_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let engine = keep(&dir);
    let options = SiltOptions {
        num: 20_000,
        value_bytes: 100,
        threads: 2,
        cycles: 1,
        duration: Duration::from_millis(50),
        seed: 3,
    };
    let mut silt = Silt::new(&engine, options).unwrap();
    for phase in Phase::ALL {
        let report = silt.run(phase, &mut |_| {}).unwrap();
        let SiltReport { figures, hashed, predicted, .. } = report;
        assert_eq!(figures.wrong, 0, "{}", phase.name());
        assert_eq!(hashed.entries, 20_000);
        assert!(hashed.dram_bytes_per_entry > 0.0 && predicted.dram_bytes_per_entry > 0.0);
        assert!(hashed.dram_bytes_per_entry <= hashed.dram_bytes_per_entry_max);
        let writes = matches!(phase, Phase::Load | Phase::Overwrite | Phase::Mixed);
        assert_eq!(hashed.table_write_amplification.is_some_and(|it| it > 0.9), writes);
        assert_eq!(hashed.log_write_amplification.is_some_and(|it| it > 0.9), writes);
        assert_eq!(hashed.device_reads_per_miss.is_some(), phase == Phase::Misses);
        let hits = matches!(phase, Phase::Mixed | Phase::Hits);
        assert_eq!(hashed.device_reads_per_hit.is_some(), hits, "{}", phase.name());
        for reads in [hashed.device_reads_per_hit, hashed.device_reads_per_miss] {
            assert!(reads.is_none_or(|reads| reads <= 1.5), "{reads:?}");
        }
    }
    assert!(Silt::new(&engine, SiltOptions { cycles: 0, ..options }).is_err());
}

/// Recent chunks are found and new ones are not, at the asked share.
#[test]
fn the_wan_optimizer_finds_recent_chunks_and_inserts_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let engine = keep(&dir);
    let options = WanOptions {
        hit_share: 0.4,
        recent: 5000,
        num: 10_000,
        chunk_bytes: 8192,
        threads: 2,
        duration: Duration::from_millis(50),
        seed: 1,
    };
    let report = run_wan(&engine, &options).unwrap();
    assert_eq!((report.wrong, report.evicted), (0, 0));
    let off = (report.found_share - 0.4).abs();
    assert!(off < 5.0 / (report.ops as f64).sqrt(), "{} of {}", report.found_share, report.ops);
    assert!(report.hashed.entries >= 10_000 && report.megabits_per_second > 0.0);
    for wrong in [
        WanOptions { hit_share: 1.1, ..options },
        WanOptions { threads: 0, ..options },
        WanOptions { num: 0, ..options },
        WanOptions { recent: 0, ..options },
    ] {
        assert!(run_wan(&engine, &wrong).is_err(), "{wrong:?}");
    }
}

/// A copy of a file is found whole, whatever is inserted before it.
#[test]
fn a_shifted_copy_of_a_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let engine = keep(&dir);
    let mut rng = base::Rng::new(7);
    let content: Vec<u8> = (0..400_000).map(|_| rng.next_u64() as u8).collect();
    let files = dir.path().join("files");
    fs::create_dir_all(files.join("deep")).unwrap();
    fs::write(files.join("one"), &content).unwrap();
    fs::write(files.join("deep/two"), [b"inserted", &content[..]].concat()).unwrap();
    let report = run_dedup(&engine, &files, 4096).unwrap();
    assert_eq!((report.files, report.wrong), (2, 0));
    assert_eq!(report.bytes, 800_008);
    let share = report.duplicate_bytes as f64 / report.bytes as f64;
    assert!((0.4..0.5).contains(&share), "{report:?}");
    assert!(run_dedup(&engine, &files, 1).is_err());
    assert!(run_dedup(&engine, &dir.path().join("none"), 4096).is_err());
}

/// Workloads of point operations run on a hashed keyspace; those that scan are refused by name.
#[test]
fn workloads_that_need_an_order_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = keep(&dir);
    assert!(!engine.is_ordered());
    let refused: Vec<_> =
        Name::ALL.into_iter().filter(|name| check_order(*name, false).is_err()).collect();
    use Name::{BlobMeta, Mixgraph, ReadReverse, ReadSeq, SeekRandom, Verify, YcsbE};
    assert_eq!(refused, [ReadSeq, ReadReverse, SeekRandom, Verify, YcsbE, Mixgraph, BlobMeta]);
    assert!(Name::ALL.into_iter().all(|name| check_order(name, true).is_ok()));
    let options = Options { num: 500, ..Options::default() };
    let mut bench = Bench::new(&engine, options).unwrap();
    let names = [Name::FillRandom, Name::ReadRandom, Name::MultiReadRandom, Name::DeleteRandom];
    for name in names.into_iter().chain([Name::ReadMissing, Name::Compact]) {
        assert_eq!(bench.run(name, &mut |_| {}).unwrap().figures.wrong, 0, "{name}");
    }
    let error = bench.run(ReadSeq, &mut |_| {}).err().unwrap().to_string();
    assert!(error.contains("readseq") && error.contains("hashed"), "{error}");
}

//! Every mixed workload end to end, on a map and on maps with a fault.

use std::collections::BTreeMap;

use super::*;
use crate::test_store::{Fault, TestStore};

const MIXED: [Name; 10] = [
    Name::YcsbA,
    Name::YcsbB,
    Name::YcsbC,
    Name::YcsbD,
    Name::YcsbE,
    Name::YcsbF,
    Name::Mixgraph,
    Name::Chat,
    Name::BlobMeta,
    Name::HiveCache,
];

fn options(name: Name) -> Options {
    Options {
        num: 2000,
        ops: Some(6_000),
        threads: 3,
        key_bytes: name.key_bytes(),
        ..Options::default()
    }
}

/// Runs the load of `name`, then `name`, then verifies the whole store.
fn run(store: &TestStore, options: Options, name: Name) -> [Report; 3] {
    let mut bench = Bench::new(store, options).unwrap();
    let load = bench.missing_load(name).expect("an empty store needs its load");
    let loaded = bench.run(load, &mut |_| {}).unwrap();
    assert_eq!(bench.missing_load(name), None);
    let report = bench.run(name, &mut |_| {}).unwrap();
    [loaded, report, bench.run(Name::Verify, &mut |_| {}).unwrap()]
}

/// Each kind of operation has its share, to five standard deviations; no answer is wrong, in the runs and in
/// the verification; and all inserted keys exist.
#[test]
fn every_mix_has_its_shares_and_no_wrong_answer() {
    for name in MIXED {
        let store = TestStore::new(Fault::None);
        let [loaded, report, verified] = run(&store, options(name), name);
        assert_eq!((loaded.figures.ops, loaded.figures.wrong), (2000, 0), "{loaded}");
        let figures = &report.figures;
        assert_eq!((figures.ops, figures.wrong), (6_000, 0), "{report}");
        let mix = name.mix().unwrap();
        let counts: BTreeMap<Kind, u64> =
            figures.operations.iter().map(|(kind, figures)| (*kind, figures.count)).collect();
        assert_eq!(counts.values().sum::<u64>(), 6_000, "{name}");
        for (kind, part) in mix.kinds {
            let slack = 5.0 * (part * (1.0 - part) * 6_000.0).sqrt();
            let count = counts[kind] as f64;
            assert!((count - part * 6_000.0).abs() <= slack, "{name} {}: {count}", kind.name());
            let latency = figures.operations[kind].latency_us;
            assert!(latency.p50 > 0.0 && latency.p999 <= latency.max, "{report}");
        }
        let inserted = counts.get(&Kind::Insert).copied().unwrap_or_default();
        assert_eq!(store.len() as u64, 2000 + inserted, "{name}");
        assert_eq!((verified.figures.ops, verified.figures.wrong), (2000 + inserted, 0), "{name}");
        assert_eq!(figures.found_share, Some(1.0), "{report}");
        let absent = mix.absent * mix.part(Kind::Read) * 6_000.0;
        assert!((figures.missing as f64 - absent).abs() <= absent / 4.0, "{report}");
        let writes = 1.0 - mix.part(Kind::Read) - mix.part(Kind::Scan) > 0.0;
        assert_eq!(figures.written_bytes > 0, writes, "{name}");
        assert_eq!(report.to_string().lines().count(), 1 + mix.kinds.len(), "{report}");
    }
}

#[test]
fn every_mix_detects_a_faulty_store() {
    for name in MIXED {
        for fault in [Fault::Flips, Fault::Neighbour, Fault::Loses] {
            let store = TestStore::new(fault);
            let [_, report, verified] = run(&store, options(name), name);
            assert!(report.figures.wrong > 0, "{fault:?}: {report}");
            assert!(verified.figures.wrong > 20, "{fault:?}: {verified}");
        }
    }
    for name in [Name::YcsbA, Name::YcsbF, Name::Mixgraph, Name::Chat] {
        let store = TestStore::new(Fault::Stale);
        assert!(run(&store, options(name), name)[1].figures.wrong > 0, "{name}");
    }
}

/// The seed determines the operations of one thread: two runs leave the same content.
#[test]
fn the_seed_determines_every_operation() {
    let left = |name, seed| {
        let store = TestStore::new(Fault::None);
        let [_, report, _] = run(&store, Options { seed, threads: 1, ..options(name) }, name);
        (store.entries(), report.figures.read_bytes)
    };
    for name in [Name::YcsbF, Name::YcsbD, Name::Mixgraph, Name::HiveCache] {
        assert!(left(name, 1) == left(name, 1), "{name}");
        assert!(left(name, 1) != left(name, 2), "{name}");
    }
}

/// Runs follow one another on one growing store, with the ledger of the load or without; a workload with
/// another layout of keys is refused.
#[test]
fn mixes_of_one_layout_share_a_store() {
    let store = TestStore::new(Fault::None);
    let options = options(Name::YcsbA);
    let mut bench = Bench::new(&store, options).unwrap();
    let names = [Name::YcsbLoad, Name::YcsbD, Name::YcsbE, Name::YcsbA, Name::ReadRandom];
    for name in names.into_iter().chain([Name::ReadMissing, Name::DeleteRandom, Name::Verify]) {
        let report = bench.run(name, &mut |_| {}).unwrap();
        assert_eq!(report.figures.wrong, 0, "{report}");
    }
    for name in [Name::FillSeq, Name::Mixgraph] {
        let error = bench.run(name, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("scattered"), "{error}");
    }
    let mut again = Bench::new(&store, Options { existing: true, seed: 5, ..options }).unwrap();
    assert_eq!(again.missing_load(Name::YcsbB), None);
    for name in [Name::YcsbB, Name::YcsbE, Name::Verify] {
        assert_eq!(again.run(name, &mut |_| {}).unwrap().figures.wrong, 0, "{name}");
    }
}

/// The options override the workload's own sizes and distribution.
#[test]
fn options_override_the_sizes_and_distribution_of_a_mix() {
    let store = TestStore::new(Fault::None);
    let distribution = Some(crate::Distribution::Uniform);
    let value_bytes = Some(10);
    let options = Options { value_bytes, distribution, ..options(Name::Chat) };
    let [loaded, report, verified] = run(&store, options, Name::Chat);
    assert_eq!(loaded.figures.written_bytes, 2000 * 37);
    assert_eq!((report.figures.wrong, verified.figures.wrong), (0, 0));
    assert_eq!(
        verified.figures.space_amplification,
        Some(3.0),
        "with one size, live bytes are known"
    );
}

/// A duration also ends a run that inserts.
#[test]
fn a_duration_ends_a_run_that_inserts() {
    let store = TestStore::new(Fault::None);
    let duration = Some(std::time::Duration::from_millis(50));
    let [_, report, verified] =
        run(&store, Options { duration, ..options(Name::YcsbD) }, Name::YcsbD);
    assert!(report.figures.seconds >= 0.05 && report.figures.wrong == 0, "{report}");
    assert_eq!((verified.figures.ops, verified.figures.wrong), (store.len() as u64, 0));
}

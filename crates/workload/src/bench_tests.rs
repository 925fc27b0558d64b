//! Every workload end to end, on a map and on maps with one fault each: `wrong` counts whatever a store does
//! wrong.

use std::str::FromStr;
use std::time::Duration;

use base::ErrorKind;

use super::*;
use crate::test_store::{Fault, TestStore};
use crate::{Distribution, Figures};

fn options() -> Options {
    Options { num: 2000, threads: 3, depth: 8, ..Options::default() }
}

fn run_all(store: &TestStore, options: Options, names: &[Name]) -> Vec<Report> {
    let mut bench = Bench::new(store, options).unwrap();
    names.iter().map(|name| bench.run(*name, &mut |_| {}).unwrap()).collect()
}

/// The workloads that can share one store of ordered keys with values of one size.
fn plain() -> Vec<Name> {
    Name::ALL.into_iter().filter(|name| name.mix().is_none()).collect()
}

#[test]
fn every_workload_runs_on_a_store_filled_in_order() {
    let store = TestStore::new(Fault::None);
    let mut deleted = 0;
    for report in run_all(&store, options(), &plain()) {
        let Figures { ops, found, missing, wrong, .. } = report.figures;
        let passes = match report.bench {
            Name::Verify => 1,
            name if name.is_scan() => 3,
            _ => 1,
        };
        let (least, most) = match report.bench {
            Name::Compact => (1, 1),
            Name::Verify => (2000 - deleted, 2000 - deleted),
            Name::ReadWhileWriting => (2001, u64::MAX),
            _ => (2000 * passes, 2000 * passes),
        };
        assert_eq!(wrong, 0, "{report}");
        assert!((least..=most).contains(&ops), "{report}");
        let expected = match report.bench {
            name if name.writes() => (0, 0),
            Name::ReadMissing => (0, 2000),
            Name::Compact => (0, 0),
            Name::Verify => (2000 - deleted, 0),
            _ => (2000 * passes, 0),
        };
        assert_eq!((found, missing), expected, "{report}");
        if report.bench == Name::DeleteRandom {
            deleted = 2000 - store.len() as u64;
            assert!((1150..1380).contains(&deleted), "1 - 1/e of them: {deleted}");
        }
    }
    assert_eq!(store.work()[2], 1, "compactions");
    assert_eq!(store.synced(), 2000, "fillsync alone syncs");
}

/// A random fill draws with replacement, so about 1 - 1/e of the keys exist; readers know which.
#[test]
fn a_random_fill_skips_keys_and_readers_know_which() {
    let store = TestStore::new(Fault::None);
    let names = [
        Name::FillRandom,
        Name::ReadRandom,
        Name::MultiReadRandom,
        Name::ReadSeq,
        Name::ReadReverse,
        Name::SeekRandom,
        Name::ReadMissing,
        Name::Overwrite,
        Name::ReadRandom,
    ];
    let reports = run_all(&store, Options { num: 20_000, ..options() }, &names);
    for report in &reports {
        assert_eq!(report.figures.wrong, 0, "{report}");
    }
    let found = reports[1].figures.found as f64 / 20_000.0;
    assert_eq!(reports[1].figures.found_share, Some(found));
    assert!((found - 0.632).abs() < 0.03, "{found}");
    assert_eq!(reports[1].figures.found + reports[1].figures.missing, 20_000);
    assert_eq!(reports[3].figures.ops, reports[4].figures.ops);
    assert!(reports[8].figures.found > reports[1].figures.found, "overwrites add keys");
}

/// Two stores filled with the same seed are equal, whatever the schedule of the threads; another seed gives
/// another content.
#[test]
fn the_seed_determines_the_keys() {
    let fill = |seed| {
        let store = TestStore::new(Fault::None);
        run_all(&store, Options { seed, ..options() }, &[Name::FillRandom]);
        store.keys()
    };
    assert_eq!(fill(1), fill(1));
    assert_ne!(fill(1), fill(2));
}

/// Each fault is detected by each workload that can observe it, and counted exactly if that is possible.
#[test]
fn every_fault_counts_as_wrong() {
    use Fault::{Cuts, Flips, Invents, Loses, Neighbour, Stale};
    let reads = [Name::ReadRandom, Name::MultiReadRandom, Name::SeekRandom, Name::ReadSeq];
    for fault in [Neighbour, Flips, Cuts, Loses, Stale] {
        let store = TestStore::new(fault);
        let mut bench = Bench::new(&store, options()).unwrap();
        // The second fill makes the values of the first stale.
        for name in [Name::FillSeq, Name::FillSeq] {
            assert_eq!(bench.run(name, &mut |_| {}).unwrap().figures.wrong, 0);
        }
        for name in reads {
            let report = bench.run(name, &mut |_| {}).unwrap();
            let part = report.figures.wrong as f64 / report.figures.ops as f64;
            assert!((0.03..0.1).contains(&part), "{fault:?}: {report}");
        }
    }
    let store = TestStore::new(Invents);
    let reports = run_all(&store, options(), &[Name::FillSeq, Name::ReadMissing]);
    let Figures { found, wrong, .. } = reports[1].figures;
    assert!(found > 50 && found == wrong, "{found} {wrong}");
}

/// In a store of unknown content, missing keys do not count as wrong, and values are still verified.
#[test]
fn an_existing_store_is_read_without_a_ledger() {
    for (fault, wrong) in [(Fault::None, false), (Fault::Flips, true)] {
        let store = TestStore::new(fault);
        let filled = Options { value_bytes: Some(33), compression_ratio: 0.9, ..options() };
        run_all(&store, filled, &[Name::FillRandom]);
        let existing = Options { existing: true, seed: 9, ..options() };
        let names = [Name::ReadRandom, Name::ReadSeq, Name::SeekRandom, Name::ReadMissing];
        for report in run_all(&store, existing, &names) {
            let (share, drawn) = (report.figures.found_share, [names[0], names[2]]);
            assert_eq!(
                share.is_some_and(|part| part < 0.8),
                drawn.contains(&report.bench),
                "{report}"
            );
            let caught = report.figures.wrong > 0;
            assert_eq!(caught, wrong && report.bench != Name::ReadMissing, "{fault:?}: {report}");
        }
    }
}

#[test]
fn a_failing_store_ends_the_run() {
    let store = TestStore::new(Fault::Fails);
    let mut bench = Bench::new(&store, options()).unwrap();
    assert_eq!(bench.run(Name::FillSeq, &mut |_| {}).unwrap_err().kind(), ErrorKind::NoSpace);
    // The writes of the failed fill are unknown from now on, so no answer about them counts as wrong.
    let report = bench.run(Name::ReadRandom, &mut |_| {}).unwrap();
    assert_eq!(report.figures.wrong, 0, "{report}");
}

#[test]
fn duration_ends_reads_and_not_fills() {
    let store = TestStore::new(Fault::None);
    let duration = Some(Duration::from_millis(30));
    let options = Options { duration, distribution: Some(Distribution::Latest), ..options() };
    let names = [Name::FillRandom, Name::ReadRandom, Name::MultiReadRandom, Name::SeekRandom];
    let reports = run_all(&store, options, &names);
    assert_eq!(reports[0].figures.ops, 2000);
    for report in &reports[1..] {
        assert!(report.figures.ops > 0 && report.figures.wrong == 0, "{report}");
        assert!(report.figures.seconds >= 0.03, "{report}");
    }
    let none = Options { duration: Some(Duration::ZERO), ..options };
    assert_eq!(run_all(&store, none, &[Name::ReadRandom])[0].figures.ops, 3, "one for a thread");
}

/// The figures are those of the store's counters: device reads per lookup, bytes written per byte put with
/// the settling included, space per live byte.
#[test]
fn figures_are_computed_from_the_counters() {
    let store = TestStore::new(Fault::None);
    let names = [Name::FillSeq, Name::ReadRandom];
    let reports = run_all(&store, Options { threads: 1, ..options() }, &names);
    let (fill, read) = (&reports[0].figures, &reports[1].figures);
    assert_eq!(fill.written_bytes, 2000 * 116);
    assert_eq!((fill.write_amplification, fill.device_reads_per_get), (Some(3.0), None));
    assert_eq!((read.write_amplification, read.device_reads_per_get), (None, Some(2.0)));
    assert_eq!(read.space_amplification, Some(3.0));
    assert_eq!((read.hits.row, read.hits.flash), (1000, 1000));
    assert_eq!(read.read_bytes, 2000 * 116);
    assert!((fill.stall_seconds - 2.0).abs() < 1e-9);
    assert_eq!((fill.memory_bytes, store.work()), (7, [1, 0, 0]));
    assert_eq!(read.device.by_purpose["data"], read.device.total);
    assert!(read.latency_us.mean > 0.0 && read.cpu_seconds > 0.0);
    assert!(read.latency_us.p50 <= read.latency_us.max);
}

/// Scripts parse these field names; the list is complete.
#[test]
fn the_report_has_the_promised_fields() {
    let store = TestStore::new(Fault::None);
    let reports = run_all(&store, options(), &[Name::FillSeq, Name::ReadRandom]);
    let json = serde_json::to_value(&reports[1]).unwrap();
    for name in [
        "bench",
        "threads",
        "ops",
        "seconds",
        "ops_per_sec",
        "found",
        "missing",
        "found_share",
        "wrong",
        "latency_us",
        "device",
        "device_reads_per_get",
        "write_amplification",
        "space_amplification",
        "cpu_seconds",
        "rss_bytes",
        "peak_rss_bytes",
        "memory_bytes",
        "stall_seconds",
        "hits",
    ] {
        assert!(json.get(name).is_some(), "{name} in {json}");
    }
    let fields = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(fields(&json["latency_us"]), ["max", "mean", "p50", "p95", "p99", "p999"]);
    let traffic = ["read_bytes", "read_ops", "write_bytes", "write_ops"];
    assert_eq!(fields(&json["device"])[1..], traffic);
    assert_eq!(fields(&json["device"]["by_purpose"]["log"]), traffic);
    assert_eq!(fields(&json["hits"]), ["flash", "page", "row", "scm"]);
    assert_eq!(json["bench"], "readrandom");
    assert!(json["write_amplification"].is_null(), "nothing was written");
    let line = reports[1].to_string();
    assert!(line.starts_with("readrandom      : ") && line.contains("(2000 of 2000 found)"));
    assert!(!line.contains('\n') && !line.contains("WRONG"), "{line}");
}

#[test]
fn progress_ends_at_the_total() {
    let store = TestStore::new(Fault::None);
    let mut bench = Bench::new(&store, options()).unwrap();
    let mut ticks = Vec::new();
    let on_event = &mut |event| {
        if let Event::Tick(tick) = event {
            ticks.push(tick);
        }
    };
    bench.run(Name::FillRandom, on_event).unwrap();
    let last = ticks.last().unwrap();
    assert_eq!((last.done, last.total), (2000, Some(2000)));
}

#[test]
fn names_and_options_are_checked() {
    for name in Name::ALL {
        assert_eq!(Name::from_str(name.name()).unwrap(), name);
    }
    let error = Name::from_str("readrandon").unwrap_err().to_string();
    assert!(error.contains("multireadrandom") && error.contains("readrandon"), "{error}");
    let store = TestStore::new(Fault::None);
    for bad in [
        Options { num: 0, ..options() },
        Options { key_bytes: 7, ..options() },
        Options { value_bytes: Some(65 << 20), ..options() },
        Options { threads: 0, ..options() },
        Options { depth: 0, ..options() },
        Options { compression_ratio: 1.5, ..options() },
        Options { rate: Some(0.0), ..options() },
        Options { write_rate: Some(f64::NAN), ..options() },
        Options { report_interval: Some(Duration::ZERO), ..options() },
    ] {
        assert_eq!(Bench::new(&store, bad).err().unwrap().kind(), ErrorKind::Invalid, "{bad:?}");
    }
}

/// Batches write the same content as single puts, and a fault in them is detected too.
#[test]
fn batches_write_what_single_puts_do() {
    let fill = |batch, name| {
        let store = TestStore::new(Fault::None);
        let reports = run_all(&store, Options { batch, ..options() }, &[name, Name::Verify]);
        assert_eq!((reports[0].figures.ops, reports[1].figures.wrong), (2000, 0), "{batch}");
        store.entries()
    };
    for name in [Name::FillSeq, Name::FillRandom] {
        // 7 does not divide the share of any thread, so the last batch of each is shorter.
        assert_eq!(fill(1, name), fill(7, name), "{name}");
    }
    let store = TestStore::new(Fault::Loses);
    let reports =
        run_all(&store, Options { batch: 7, ..options() }, &[Name::FillSeq, Name::ReadRandom]);
    assert!(reports[1].figures.wrong > 0);
}

/// A seek verifies every entry that it reads, and detects a missing or invented one.
#[test]
fn seeks_verify_every_entry_and_detect_gaps() {
    let names = [Name::FillRandom, Name::SeekRandom];
    let options = Options { entries: 10, ..options() };
    let store = TestStore::new(Fault::None);
    let figures = run_all(&store, options, &names).remove(1).figures;
    assert_eq!((figures.ops, figures.wrong), (2000, 0));
    assert!(figures.found > 19_000, "{}", figures.found);
    let store = TestStore::new(Fault::Loses);
    let figures = run_all(&store, options, &names).remove(1).figures;
    // One key in sixteen is lost, so a seek of ten entries most often misses one.
    assert!(figures.wrong > 500, "{}", figures.wrong);
}

/// Reads are verified against the load of another process.
#[test]
fn an_assumed_load_is_verified() {
    for fault in [Fault::None, Fault::Loses, Fault::Stale] {
        let store = TestStore::new(fault);
        run_all(&store, options(), &[Name::FillSeq]);
        let mut bench = Bench::new(&store, options()).unwrap();
        assert!(bench.assume(Name::FillRandom).is_err());
        bench.assume(Name::FillSeq).unwrap();
        assert!(bench.assume(Name::FillSeq).is_err());
        let read = bench.run(Name::ReadRandom, &mut |_| {}).unwrap().figures;
        assert_eq!(read.wrong > 0, fault == Fault::Loses, "{fault:?}: {}", read.wrong);
        bench.run(Name::Overwrite, &mut |_| {}).unwrap();
        let read = bench.run(Name::ReadRandom, &mut |_| {}).unwrap().figures;
        assert_eq!(read.wrong > 0, fault != Fault::None, "{fault:?}: {}", read.wrong);
    }
}

#[test]
fn options_may_change_between_runs_but_not_the_content() {
    let store = TestStore::new(Fault::None);
    let mut bench = Bench::new(&store, options()).unwrap();
    bench.run(Name::FillSeq, &mut |_| {}).unwrap();
    bench.set_options(Options { threads: 1, ops: Some(10), ..options() }).unwrap();
    let report = bench.run(Name::ReadRandom, &mut |_| {}).unwrap();
    assert_eq!((report.threads, report.figures.ops, report.figures.wrong), (1, 10, 0));
    for other in [
        Options { num: 3000, ..options() },
        Options { key_bytes: 24, ..options() },
        Options { entries: 0, ..options() },
        Options { batch: 0, ..options() },
    ] {
        assert!(bench.set_options(other).is_err());
    }
}

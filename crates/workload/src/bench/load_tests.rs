//! Runs at a given rate, for a duration, with a writer beside the readers, and with settling.

use std::time::Duration;

use super::*;
use crate::test_store::{Fault, TestStore};

fn options() -> Options {
    Options { num: 2000, threads: 2, ..Options::default() }
}

fn run(store: &TestStore, options: Options, names: &[Name]) -> Vec<Report> {
    let mut bench = Bench::new(store, options).unwrap();
    names.iter().map(|name| bench.run(*name, &mut |_| {}).unwrap()).collect()
}

/// Readers and writer both have figures, no answer is wrong while they race, and the writer ends with the
/// readers.
#[test]
fn readers_beside_a_writer_accept_only_the_old_and_the_new_version() {
    let store = TestStore::new(Fault::None);
    let names = [Name::FillRandom, Name::ReadWhileWriting, Name::ReadRandom, Name::Verify];
    let reports = run(&store, Options { num: 50_000, ..options() }, &names);
    assert!(reports.iter().all(|report| report.figures.wrong == 0), "{reports:?}");
    let mixed = &reports[1];
    let (reads, writes) =
        (&mixed.figures.operations[&Kind::Read], &mixed.figures.operations[&Kind::Update]);
    assert_eq!((mixed.threads, reads.count), (3, 50_000));
    assert!(writes.count > 0 && writes.latency_us.max > 0.0);
    assert_eq!(mixed.figures.ops, reads.count + writes.count);
    assert_eq!(mixed.figures.written_bytes, writes.count * 116);
    let text = mixed.to_string();
    assert!(text.contains("\n  read ") && text.contains("\n  update "), "{text}");
    for fault in [Fault::Stale, Fault::Loses, Fault::Flips] {
        let store = TestStore::new(fault);
        let reports = run(&store, options(), &[Name::FillSeq, Name::FillSeq, names[1]]);
        assert!(reports[2].figures.wrong > 0, "{fault:?}");
    }
}

/// Lookups and scans detect a store that ignores deletes.
#[test]
fn a_lost_delete_is_detected() {
    let store = TestStore::new(Fault::KeepsDeleted);
    let names = [Name::FillSeq, Name::DeleteRandom, Name::ReadRandom, Name::Verify];
    let reports = run(&store, options(), &names);
    assert!(reports[2].figures.wrong > 20, "{}", reports[2]);
    assert!(reports[3].figures.wrong > 50, "{}", reports[3]);
}

#[test]
fn overwrites_run_for_a_duration_and_report_intervals() {
    let store = TestStore::new(Fault::None);
    let options = Options {
        duration: Some(Duration::from_millis(120)),
        report_interval: Some(Duration::from_millis(20)),
        ..options()
    };
    let mut bench = Bench::new(&store, options).unwrap();
    let mut intervals = Vec::new();
    let mut on_event = |event| {
        if let Event::Interval(interval) = event {
            intervals.push(interval);
        }
    };
    bench.run(Name::FillSeq, &mut |_| {}).unwrap();
    let report = bench.run(Name::Overwrite, &mut on_event).unwrap();
    assert!(report.figures.seconds >= 0.12 && report.figures.ops > 0);
    // Intervals begin before the threads start, and a busy machine may delay the threads.
    let most = (intervals.last().unwrap().at_seconds / 0.02) as usize + 1;
    assert!(intervals.len() <= most, "{} of {most}", intervals.len());
    let ops: u64 = intervals.iter().map(|interval| interval.ops).sum();
    assert_eq!(ops, report.figures.ops, "each operation is in one interval");
    let worst = intervals.iter().map(|interval| interval.worst_us).fold(0.0, f64::max);
    let max = report.figures.latency_us.max;
    assert!((worst - max).abs() <= max * 0.002, "{worst} {max}");
    let stalled: f64 = intervals.iter().map(|interval| interval.stall_seconds).sum();
    assert!((stalled - report.figures.stall_seconds).abs() < 1e-6, "{stalled}");
    let ends: Vec<f64> = intervals.iter().map(|interval| interval.at_seconds).collect();
    assert!(ends.is_sorted(), "{ends:?}");
    let json = serde_json::to_value(&intervals[0]).unwrap();
    for name in [
        "bench",
        "at_seconds",
        "seconds",
        "ops",
        "ops_per_sec",
        "worst_us",
        "stall_seconds",
        "stalls",
        "device_write_bytes",
        "device_read_bytes",
        "space_bytes",
        "memory_bytes",
    ] {
        assert!(json.get(name).is_some(), "{name} in {json}");
    }
}

/// Below the store's own speed, all threads together do the given rate.
#[test]
fn threads_together_keep_the_rate() {
    let store = TestStore::new(Fault::None);
    let options = Options { num: 200, rate: Some(2000.0), threads: 4, ..options() };
    let reports = run(&store, options, &[Name::FillSeq, Name::ReadRandom]);
    for report in reports {
        // The last operation begins 199/2000 of a second after the first.
        assert!(report.figures.seconds >= 0.0995, "{report}");
        assert_eq!(report.figures.ops, 200);
    }
    for name in [Name::ReadSeq, Name::MultiReadRandom, Name::Compact] {
        assert_eq!(
            Bench::check(name, &options, None).unwrap_err().kind(),
            base::ErrorKind::Invalid
        );
    }
}

/// Each entry of a batch counts as one operation.
#[test]
fn batches_keep_the_rate() {
    let store = TestStore::new(Fault::None);
    let options = Options { rate: Some(2000.0), batch: 100, threads: 1, ..options() };
    let figures = run(&store, options, &[Name::FillSeq]).remove(0).figures;
    // The last of twenty begins 1900/2000 of a second after the first.
    assert!(figures.ops == 2000 && figures.seconds >= 0.9, "{figures:?}");
}

/// One slow operation delays those after it, and the latency of each includes its own wait.
#[test]
fn latency_counts_from_the_scheduled_begin() {
    let store = TestStore::new(Fault::PausesOnce);
    let options = Options { num: 200, rate: Some(2000.0), threads: 1, ..options() };
    let report = run(&store, options, &[Name::FillSeq]).remove(0);
    // At 2000 operations per second, a pause of 50 ms delays the next hundred, so a fifth of all take over 10
    // ms. Counted from the actual begin, one would.
    assert!(report.figures.latency_us.max >= 50_000.0, "{report}");
    let latencies = report.figures.latency_us;
    assert!(latencies.p95 > 10_000.0 && latencies.mean > 2000.0, "{report}");
}

#[test]
fn settling_is_done_on_demand_and_counted() {
    let store = TestStore::new(Fault::None);
    let names = [Name::FillSeq, Name::ReadRandom, Name::Compact];
    let figures: Vec<_> = run(&store, Options { settle: true, ..options() }, &names)
        .into_iter()
        .map(|report| report.figures)
        .collect();
    assert_eq!(store.work(), [1, 3, 1]);
    for figures in figures {
        assert!(figures.settled && figures.ops_per_sec_settled <= figures.ops_per_sec);
        let seconds = figures.seconds + figures.settle_seconds;
        assert!((figures.ops_per_sec_settled - figures.ops as f64 / seconds).abs() < 1.0);
    }
}

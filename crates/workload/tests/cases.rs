//! Runs every case of the comparison at the tiny scale on this engine. Loads are kept, reopened and assumed,
//! and every value that is read is verified.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::Path;

use terrace_workload::bench::Name;
use terrace_workload::cases::{CASES, Case, Compression, Progress, Scale};
use terrace_workload::{Engine, Store, run_wan_on};
use terracedb::{Codec, Db};

fn open(dir: &Path, case: &Case) -> Engine {
    let codec = match case.compression {
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    };
    Engine::new(Db::builder(dir).memory(64 << 20).codec(codec).open().unwrap()).unwrap()
}

#[test]
fn every_case_runs_and_every_value_is_right() {
    for case in CASES {
        let dir = tempfile::tempdir().unwrap();
        if let Some(report) = case.load(&open(dir.path(), case), Scale::Tiny, 7).unwrap() {
            assert_eq!(report.figures.ops, case.keys(Scale::Tiny), "{}", case.name);
        }
        let mut labels = Vec::new();
        if let Some(options) = case.wan_options(Scale::Tiny, 7) {
            let wan = run_wan_on(&open(dir.path(), case), &options).unwrap();
            assert_eq!((wan.figures.wrong, wan.evicted), (0, 0), "{wan:?}");
            assert!(wan.figures.found > 0 && wan.figures.missing > 0, "{wan:?}");
            continue;
        }
        let (mut opens, mut seconds) = (0, 0);
        let mut reopen = || {
            opens += 1;
            Ok(Box::new(open(dir.path(), case)) as Box<dyn Store>)
        };
        case.run(&mut reopen, Scale::Tiny, 7, &mut |progress| {
            let (step, report) = match progress {
                Progress::Begins(_) => return,
                Progress::Goes(step, interval) => {
                    assert!(step.is_timeline && interval.ops > 0);
                    seconds += 1;
                    return;
                }
                Progress::Ended(step, report, _) => (step, report),
            };
            let figures = &report.figures;
            assert_eq!(figures.wrong, 0, "{}: {report}", case.name);
            assert!(figures.ops > 0, "{}: {report}", case.name);
            if !step.is_measured() {
                return;
            }
            labels.push(step.label);
            // Every key of a kept load exists: a store that lost some would find few, and none of them wrong.
            let is_missing = report.bench == Name::ReadMissing;
            let expects_hits = case.load.is_some() && !report.bench.writes() && !is_missing;
            let lookups = figures.found + figures.missing;
            assert!(!expects_hits || figures.found * 10 > lookups * 3, "{report}");
        })
        .unwrap();
        let measured = case.steps.iter().filter(|step| step.is_measured());
        assert_eq!(labels, measured.map(|step| step.label).collect::<Vec<_>>(), "{}", case.name);
        let again = case.steps.iter().skip(1).filter(|step| step.is_cold).count();
        assert_eq!(opens, 1 + again, "{}", case.name);
        assert_eq!(seconds > 0, case.steps.iter().any(|step| step.is_timeline), "{}", case.name);
    }
}

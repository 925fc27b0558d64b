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

use terrace_workload::Engine;
use terrace_workload::cases::{CASES, Case, Compression, Progress, Scale};
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
        let store = open(dir.path(), case);
        case.run(&store, Scale::Tiny, 7, &mut |progress| {
            let Progress::Ended(step, report) = progress else { return };
            let figures = &report.figures;
            assert_eq!(figures.wrong, 0, "{}: {report}", case.name);
            assert!(figures.ops > 0, "{}: {report}", case.name);
            if !step.is_measured() {
                return;
            }
            labels.push(step.label);
            // Every key of a kept load exists: a store that lost some would find few, and none of them wrong.
            let expects_hits = case.load.is_some() && !report.bench.writes();
            let lookups = figures.found + figures.missing;
            assert!(!expects_hits || figures.found * 10 > lookups * 3, "{report}");
        })
        .unwrap();
        let measured = case.steps.iter().filter(|step| step.is_measured());
        assert_eq!(labels, measured.map(|step| step.label).collect::<Vec<_>>(), "{}", case.name);
    }
}

//! Plans on a device that is nearly full.

use std::sync::Arc;

use base::RunId;

use super::action::Reason;
use super::candidate::candidates;
use super::columns::Runs;
use super::slice::{cut_bytes, grow};
use super::tests::{merge, table, tree};
use super::tree_layout::TreeLayout;
use super::{ManualRange, Options, Summary, plan};

#[test]
fn files_that_a_slice_cuts_are_counted_as_not_freed() {
    let newer = vec![table(5, 0, "a", "p", 50)];
    let older = vec![table(1, 1, "a", "c", 40), table(2, 1, "m", "p", 60)];
    let (summary, options) = (tree(vec![newer, older]), Options::default());
    let layout = TreeLayout::new(&summary, &options);
    let whole = Runs { newest: 0, oldest: 1 };
    assert_eq!(cut_bytes(&layout.columns.all, whole), 0);
    let one = cut_bytes(&layout.columns.all[..1], whole);
    assert!((1..50).contains(&one), "{one} of 50 bytes");
}

/// A file of which four fifths are merged already, over many short ones.
#[test]
fn a_manual_compaction_cuts_files_unless_cut_files_keep_much_space() {
    let of = |free| {
        let mut cut = table(9, 0, "a", "c", 100);
        Arc::make_mut(&mut cut.file).splits = vec![("b".into(), 10), ("c".into(), 20)];
        let older = vec![table(1, 1, "a", "b", 20), table(2, 1, "b", "c", 20)];
        let deep = vec![table(3, 2, "m", "z", 2000)];
        let summary = tree(vec![vec![cut], older, deep]);
        let manual = ManualRange { first: "a".into(), end: Some("b".into()), newest: RunId(3) };
        let (manual, superseding) = (Some(manual), 0.0);
        let summary =
            Summary { manual, superseding, free_bytes: Some(free), unit_bytes: 1000, ..summary };
        let options = Options::default();
        let layout = TreeLayout::new(&summary, &options);
        let found = candidates(&layout, false);
        let manual = found.iter().find(|it| it.reason == Reason::Manual).unwrap();
        grow(&layout, manual).map(|job| job.bytes)
    };
    // 80 bytes of the file are unused, and 10 more with this job.
    assert_eq!((of(361), of(359)), (Some(30), None));
}

/// Puts are refused on a full device, so nothing is learned of what newer runs supersede.
#[test]
fn a_quiet_tree_on_a_tight_device_is_merged_whatever_was_learned() {
    let of = |newer: u64, oldest: u64, unit_bytes: u64, free: u64| {
        let runs = (2..5).rev().map(|id| vec![table(id, 0, "a", "z", newer)]);
        let runs = runs.chain([vec![table(1, 1, "a", "z", oldest)]]).collect();
        let free_bytes = Some(free);
        Summary { superseding: 0.01, quiet: true, unit_bytes, free_bytes, ..tree(runs) }
    };
    let options = Options { slice_bytes: 200, ..Options::default() };
    // Two of the runs fit if all do not. A merge that frees more may take the space that flushes need.
    for (tight, runs) in [(of(50, 400, 10, 140), 2), (of(10, 80, 40, 180), 4)] {
        let job = merge(&tight, &options);
        assert_eq!((job.reason, job.inputs.len()), (Reason::Space, runs));
        let written = Summary { quiet: false, ..tight };
        assert_eq!(plan(&written, &options), None, "a writer would pay for it");
    }
    let job = merge(&of(50, 400, 10, 1000), &options);
    assert_eq!((job.reason, job.inputs.len()), (Reason::Settle, 4));
    // Two short files are not merged into a longer one.
    let overhead = Summary { overhead_bytes: 60, ..of(50, 400, 10, 300) };
    assert_eq!(plan(&overhead, &options), None);
}

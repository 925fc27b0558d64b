//! Columns dense in tombstones beside levels that are full.

use std::sync::Arc;

use super::tests::{table, tree};
use super::{Options, Piece, Plan, Reason, Summary, plan};

const FANOUT: usize = 3;

/// A tree with a level that is full `times` over in the keys a to f, and over other keys a queue: a table
/// with `deletes` tombstones of 100 entries, above the 100 entries that they hide.
fn queue_beside_a_full_level(times: usize, deletes: u64) -> Summary {
    let entries = |mut piece: Piece, entries, deletes| {
        let file = Arc::make_mut(&mut piece.file);
        (file.entries, file.deletes) = (entries, deletes);
        piece
    };
    let flushed = |id| vec![entries(table(id, 0, "a", "f", 100), 100, 0)];
    let mut runs: Vec<_> = (0..FANOUT * times).map(|id| flushed(100 - id as u64)).collect();
    runs[0].push(entries(table(200, 0, "p", "q", 10), 100, deletes));
    runs.push(vec![
        entries(table(1, 2, "a", "f", 10_000), 10_000, 0),
        entries(table(2, 2, "p", "q", 50), 100, 0),
    ]);
    tree(runs)
}

fn reason_and_first(summary: &Summary) -> (Reason, Vec<u8>) {
    let options = Options { fanout: FANOUT, ..Options::default() };
    let Some(Plan::Merge(merge)) = plan(summary, &options) else { panic!("no merge") };
    assert_eq!(merge.oldest, merge.reason == Reason::Deletes);
    (merge.reason, merge.first.to_vec())
}

#[test]
fn columns_dense_in_tombstones_are_merged_before_full_levels() {
    let of = |times, deletes| reason_and_first(&queue_beside_a_full_level(times, deletes));
    // All of the queue is taken: half of its entries are tombstones.
    assert_eq!(of(4, 100), (Reason::Deletes, b"p".to_vec()));
    // Above the share that makes a merge due, but not dense: the full level waits no longer.
    assert_eq!(of(4, 60), (Reason::Runs, b"a".to_vec()));
    // A level that is far overdue comes first all the same, so that it does not starve.
    assert_eq!(of(7, 100), (Reason::Runs, b"a".to_vec()));
}

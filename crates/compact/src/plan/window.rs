//! Chooses the adjacent columns that free most for the cost of merging them.
//!
//! A merge down to the oldest run frees the superseded versions of its columns, and their share of the unused
//! bytes of cut files. A job costs its input bytes plus a fixed cost: planning, opening a table per run, a
//! manifest record. So columns are not judged one by one. A narrow column between two cuts seems to free many
//! times its bytes, because it holds the last bytes of its files, but thousands of jobs for such columns
//! would free nothing.

use std::collections::BTreeSet;
use std::ops::Range;

use base::invariant;

use super::candidate::{is_reducible, output_bytes, reclaimed};
use super::columns::{Column, Runs};
use super::tree_layout::TreeLayout;

/// Fixed cost of a job: this part of a slice.
const JOB_PART: u64 = 4;

/// The columns to merge in one job that may write `room` bytes; `None` if no column is reducible.
///
/// The window begins with a reducible column. So if there is any, there is a job, and the job frees bytes or
/// reduces the number of runs.
pub(super) fn best(layout: &TreeLayout<'_>, whole: Runs, room: u64) -> Option<Range<usize>> {
    let runs_max = layout.options.runs_max.max(2);
    let overhead = layout.summary.overhead_bytes;
    let room = room.saturating_sub(overhead);
    let all = &layout.columns.all;
    let worth = |column: &Column<'_>| {
        let is_part = column.is_free(whole) && output_bytes(layout, column, whole) <= room;
        is_part.then(|| CostBenefit::of(layout, column, runs_max))
    };
    let columns: Vec<Option<CostBenefit>> = all.iter().map(worth).collect();
    let (job, most) = (layout.slice_bytes / JOB_PART, layout.slice_bytes.min(room));
    let mut best: Option<(f64, Range<usize>)> = None;
    let starts = all.iter().enumerate().filter(|(_, column)| is_reducible(column.within(whole)));
    for (start, _) in starts {
        let mut sum = CostBenefit { bytes: 0, cost: job.max(1), freed: -(overhead as f64) };
        let rest = columns.iter().enumerate().skip(start);
        for (number, column) in rest.map_while(|(number, column)| Some((number, column.as_ref()?)))
        {
            sum.add(column);
            if number > start && sum.bytes > most {
                break;
            }
            let gain = sum.freed / sum.cost as f64;
            if best.as_ref().is_none_or(|(best, _)| gain > *best) {
                best = Some((gain, start..number + 1));
            }
        }
    }
    let window = best?.1;
    // A job with more runs than it has memory for is not merged down to the oldest run. If a single column
    // has more, its runs are merged in turns anyway, and the turns may be as long as the window.
    let mut runs = BTreeSet::new();
    let fitting = all.get(window.clone())?.iter().take_while(|column| {
        runs.extend(column.cells.iter().map(|cell| cell.run));
        runs.len() <= runs_max
    });
    let end = match fitting.count() {
        0 => window.end,
        columns => window.start + columns,
    };
    let window = window.start..end;
    invariant!(!window.is_empty(), "a window has a column");
    Some(window)
}

/// The cost of merging columns, and the bytes that it frees.
struct CostBenefit {
    /// Input bytes.
    bytes: u64,
    /// Input bytes times the number of times they are merged.
    cost: u64,
    /// Bytes freed, as far as is known.
    freed: f64,
}

impl CostBenefit {
    fn of(layout: &TreeLayout<'_>, column: &Column<'_>, runs_max: usize) -> Self {
        let bytes = column.bytes();
        // More runs than a job has memory for are merged in turns.
        let turns = column.cells.len().div_ceil(runs_max) as u64;
        Self { bytes, cost: bytes.saturating_mul(turns), freed: reclaimed(layout, column) }
    }

    fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.cost = self.cost.saturating_add(other.cost);
        self.freed += other.freed;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use super::super::columns::Edge;
    use super::super::tests::{table, tree};
    use super::super::{Options, Piece, Summary};
    use super::*;

    /// The edges of the best window with slices of `slice_bytes` and jobs of at most four runs.
    fn best_of(summary: &Summary, slice_bytes: u64) -> Option<String> {
        let options = Options { slice_bytes, runs_max: 4, ..Options::default() };
        let layout = TreeLayout::new(summary, &options);
        let whole = Runs { newest: 0, oldest: summary.runs.len() - 1 };
        let window = best(&layout, whole, u64::MAX)?;
        let edges = layout.columns.edges.get(window.start..=window.end)?.iter();
        let keys = edges.filter_map(|edge| match edge {
            Edge::Key(key) => std::str::from_utf8(key).ok(),
            Edge::End => None,
        });
        Some(keys.collect())
    }

    fn run(id: u64, bytes: u64, ranges: &[(&str, &str)]) -> Vec<Piece> {
        let tables = ranges.iter().zip(id..);
        tables.map(|((from, to), id)| table(id, 1, from, to, bytes)).collect()
    }

    /// A piece that ends at `b` and holds the last byte of a file of 21.
    fn narrow_piece() -> Piece {
        let mut narrow_piece = table(9, 1, "a", "b", 21);
        Arc::make_mut(&mut narrow_piece.file).splits = vec![("b".into(), 1)];
        narrow_piece
    }

    #[test]
    fn a_narrow_column_is_merged_with_others_and_not_alone() {
        let ranges = [("c", "d"), ("d", "e"), ("e", "f")];
        let newer = || run(20, 60, &ranges).into_iter();
        let beside = tree(vec![newer().chain([narrow_piece()]).collect(), run(1, 60, &ranges)]);
        assert_eq!(best_of(&beside, 400), Some("abcdef".to_owned()));
        // Nor is it merged together with columns far away.
        let content = run(30, 500, &[("b", "c")]);
        let afar = tree(vec![
            newer().chain([narrow_piece()]).chain(content).collect(),
            run(1, 60, &ranges),
        ]);
        assert_eq!(best_of(&afar, 400), Some("cdef".to_owned()));
        // If there is nothing else, it is worth a job.
        let alone = tree(vec![vec![narrow_piece()]]);
        assert_eq!(best_of(&alone, 400), Some("ab".to_owned()));
    }

    /// The column that frees most for its bytes may not be reducible.
    #[test]
    fn an_irreducible_column_does_not_keep_others_from_being_merged() {
        let mut cut = table(30, 1, "a", "b", 130);
        Arc::make_mut(&mut cut.file).splits = vec![("b".into(), 100)];
        // Nothing lies between the two columns, and the reducible one has more runs than fit one job.
        let runs = (0..5).map(|number| run(20 - number, 10, &[("c", "d")]));
        let oldest = run(1, 600, &[("c", "d")]).into_iter().chain([cut]).collect();
        let summary = tree(runs.chain([oldest]).collect());
        assert_eq!(best_of(&summary, 400), Some("cd".to_owned()));
        // Even if it seems to free nothing: otherwise the compaction debt would never reach 0.
        let nothing = Summary { superseding: 0.0, ..summary };
        assert_eq!(best_of(&nothing, 400), Some("cd".to_owned()));
    }

    #[test]
    fn a_window_is_at_most_a_slice_and_frees_most() {
        let ranges = [("c", "d"), ("d", "e"), ("e", "f")];
        let newer = run(20, 50, &ranges[..2]).into_iter().chain(run(22, 60, &ranges[2..]));
        let summary = tree(vec![newer.collect(), run(1, 60, &ranges)]);
        assert_eq!(best_of(&summary, 1000), Some("cdef".to_owned()));
        assert_eq!(best_of(&summary, 230), Some("def".to_owned()));
        assert_eq!(best_of(&summary, 40), Some("ef".to_owned()));
    }

    #[test]
    fn a_window_has_no_more_runs_than_one_job_takes() {
        // Three runs in each column, five in both.
        let upper = |id, range| run(id, 60, &[range]);
        let (left, right) = (("a", "c"), ("c", "e"));
        let runs = vec![upper(9, left), upper(8, left), upper(7, right), upper(6, right)];
        let summary = tree(runs.into_iter().chain([run(1, 60, &[left, right])]).collect());
        assert_eq!(best_of(&summary, 1000), Some("ac".to_owned()));
        // More than four runs in one column are merged in turns, which is expensive.
        let newer: Vec<_> = (0..4).map(|id| run(9 - id, 60, &[left])).collect();
        let older = vec![upper(5, right), run(1, 60, &[left, right])];
        let summary = tree(newer.into_iter().chain(older).collect());
        assert_eq!(best_of(&summary, 100), Some("ce".to_owned()));
        // If all columns are that high, the turns are as long as a slice.
        let newer: Vec<_> = (0..4).map(|id| run(20 - 2 * id, 60, &[left, right])).collect();
        let summary = tree(newer.into_iter().chain([run(1, 60, &[left, right])]).collect());
        assert_eq!(best_of(&summary, 1000), Some("ace".to_owned()));
    }
}

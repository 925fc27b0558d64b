//! Compaction debt: how much work is left, and how far levels and space are over their limits. The engine
//! delays writers by it.

use base::invariant;

use super::candidate::{candidates, manual_runs};
use super::columns::{Column, Edge, Runs};
use super::summary::{Area, ManualRange};
use super::tree_layout::TreeLayout;
use super::trivial;
use super::value_files::ValueFileGarbage;

/// Compaction debt: the work left in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Debt {
    /// Approximate bytes to merge until the tree is settled; 0 if it is settled.
    pub bytes: u64,
    /// Approximate bytes to merge for the user's manual compaction, including running jobs.
    pub manual_bytes: u64,
    /// Most pieces in one column: the read amplification of a get.
    pub runs: usize,
    /// Pieces of the fullest level of any column, over the fanout: at 1 a merge is due.
    pub fullness: f64,
    /// Space amplification: stored bytes over the estimated bytes after merging everything.
    pub space: f64,
    /// `space` over its maximum; 0 for a tree of a few tables. Versions kept for ended snapshots count as
    /// content here, so that the end of a snapshot does not suddenly slow down writers.
    pub space_fullness: f64,
}

/// Trees below this many flushed tables never delay writers for space.
const SMALL_TREE_TABLES: u64 = 32;

impl TreeLayout<'_> {
    /// The compaction debt: the work left until the tree is settled.
    #[must_use]
    pub fn debt(&self) -> Debt {
        let columns = &self.columns.all;
        let debt = Debt {
            bytes: work(self) + self.summary.busy.iter().map(left).sum::<u64>(),
            runs: columns.iter().map(|column| column.cells.len()).max().unwrap_or(0),
            fullness: columns.iter().map(|it| fullness(self, it)).fold(0.0, f64::max),
            ..self.debt_of_space()
        };
        // A debt that is not a number would delay writers for ever, or never.
        invariant!(
            debt.fullness.is_finite() && debt.space.is_finite() && debt.space_fullness.is_finite(),
            "the figures of the compaction debt are finite"
        );
        debt
    }

    /// The part of [`Self::debt`] that does not depend on the schedule of merges: the space, and the work for
    /// the user's manual compaction. The rest is 0.
    pub(super) fn debt_of_space(&self) -> Debt {
        let is_manual = |area: &&Area| {
            self.summary.manual.as_ref().is_some_and(|manual| overlaps_manual(area, manual))
        };
        let busy = self.summary.busy.iter().filter(is_manual);
        // A few tables are merged quickly, so their garbage is no reason to slow down writers.
        let small = self.summary.unit_bytes.saturating_mul(SMALL_TREE_TABLES);
        let is_small = self.stored_bytes < small && !self.is_tight();
        Debt {
            manual_bytes: manual_work(self) + busy.map(left).sum::<u64>(),
            space: self.space(),
            space_fullness: if is_small { 0.0 } else { self.space_written() / self.space_max() },
            ..Debt::default()
        }
    }
}

/// Bytes that a job in `area` has left.
fn left(area: &Area) -> u64 {
    area.bytes.max(1)
}

/// Bytes to merge until the tree is settled, without running jobs.
fn work(layout: &TreeLayout<'_>) -> u64 {
    let candidates = candidates(layout, true).into_iter();
    let merges = candidates
        .filter_map(|it| layout.columns.get(it.column).map(|column| bytes(column, it.runs)));
    merges.sum::<u64>()
        + ValueFileGarbage::new(layout).work(layout)
        + trivial::droppable(layout).len() as u64
}

/// Bytes to merge for the manual compaction, without running jobs. They count even if another merge of
/// their column is more urgent.
fn manual_work(layout: &TreeLayout<'_>) -> u64 {
    let columns = layout.columns.all.iter().enumerate();
    let due = columns.filter_map(|(number, column)| {
        manual_runs(layout, number, column).map(|runs| bytes(column, runs))
    });
    due.sum()
}

/// Bytes of the cells of `runs`; at least 1, since even an empty merge is work.
fn bytes(column: &Column<'_>, runs: Runs) -> u64 {
    column.within(runs).iter().map(|cell| cell.bytes).sum::<u64>().max(1)
}

/// Pieces of the column's fullest level, over the fanout.
fn fullness(layout: &TreeLayout<'_>, column: &Column<'_>) -> f64 {
    let groups = column.cells.chunk_by(|a, b| a.level == b.level);
    let most = groups.map(<[_]>::len).max().unwrap_or(0);
    most as f64 / layout.options.fanout.max(1) as f64
}

/// Whether a job works on the manual compaction: not if all its runs are newer than it.
fn overlaps_manual(area: &Area, manual: &ManualRange) -> bool {
    area.oldest <= manual.newest
        && Edge::Key(&area.first) < Edge::of_end(manual.end.as_ref())
        && Edge::Key(&manual.first) < Edge::of_end(area.end.as_ref())
}

//! The tree as the planner sees it: columns and totals.

use base::{RunId, invariant};

use super::columns::{Column, Columns};
use super::options::Options;
use super::summary::{RunSummary, Summary};

/// The columns and totals of a tree at one instant. Made once per summary; answers [`plan`](Self::plan) and
/// [`debt`](Self::debt).
#[derive(Debug)]
pub struct TreeLayout<'a> {
    pub(super) summary: &'a Summary,
    pub(super) options: &'a Options,
    pub(super) columns: Columns<'a>,
    /// Approximate input bytes of one job.
    pub(super) slice_bytes: u64,
    /// Bytes of all tables and of the separated values that they point at.
    pub(super) stored_bytes: u64,
    /// Bytes that pieces hold, without known garbage.
    pub(super) live_bytes: u64,
    /// The part of `live_bytes` in pieces above the oldest piece of their column.
    pub(super) newer_bytes: u64,
    /// Bytes of each run, newest first.
    pub(super) run_bytes: Vec<u64>,
    /// The part of `stored_bytes` in versions that were kept for reads that have ended.
    superseded_bytes: u64,
}

impl<'a> TreeLayout<'a> {
    /// The columns and totals of `summary`.
    #[must_use]
    pub fn new(summary: &'a Summary, options: &'a Options) -> Self {
        check_summary(summary);
        let pieces = summary.runs.iter().flat_map(|run| &run.pieces);
        // A file with several pieces counts several times: exact enough for the job size.
        let slice = options.slice_of(pieces.map(|piece| piece.file.bytes).sum());
        let columns = Columns::new(summary, slice / 4);
        let (live, dead) = columns.live_and_dead();
        let oldest = columns.all.iter().map(Column::oldest_live_bytes).sum::<u64>();
        invariant!(oldest <= live, "the oldest cells are a part of all");
        let newer = live.saturating_sub(oldest);
        let cells = columns.all.iter().flat_map(|column| &column.cells);
        let mut run_bytes = vec![0; summary.runs.len()];
        let mut superseded = 0;
        for cell in cells {
            superseded += cell.superseded;
            run_bytes.get_mut(cell.run).into_iter().for_each(|bytes| *bytes += cell.bytes);
        }
        let stored = live + dead;
        Self {
            summary,
            options,
            columns,
            slice_bytes: slice,
            stored_bytes: stored,
            live_bytes: live,
            newer_bytes: newer,
            run_bytes,
            superseded_bytes: superseded,
        }
    }

    /// Space amplification: stored bytes over the estimated bytes after merging everything.
    ///
    /// Bytes outside every piece count until their file is obsolete. Separated values count if tables point
    /// at them, because merging pointers lets values die. Values without pointers do not count: only
    /// collecting their value file frees them ([`value_files`](super::value_files)).
    pub(super) fn space(&self) -> f64 {
        self.space_over(self.live_bytes)
    }

    /// As [`Self::space`], but versions kept for ended reads count as content.
    pub(super) fn space_written(&self) -> f64 {
        self.space_over(self.live_bytes + self.superseded_bytes)
    }

    /// The id of the run with index `run`.
    pub(super) fn run_id(&self, run: usize) -> Option<RunId> {
        let id = self.summary.runs.get(run).map(|run| run.id);
        invariant!(id.is_some(), "every cell belongs to a run of the summary");
        id
    }

    fn space_over(&self, live: u64) -> f64 {
        let garbage = self.newer_bytes as f64 * self.summary.superseding;
        let content = live as f64 - garbage;
        if live == 0 { 1.0 } else { (self.stored_bytes as f64 / content.max(1.0)).min(100.0) }
    }

    /// Bytes that merging the whole tree would free, per live byte.
    pub(super) fn gain(&self) -> f64 {
        let dead = self.stored_bytes - self.live_bytes;
        let superseded = self.newer_bytes as f64 * self.summary.superseding;
        (superseded + dead as f64) / (self.live_bytes as f64).max(1.0)
    }

    /// Maximum of [`Self::space`]: lower if the device is nearly full.
    pub(super) fn space_max(&self) -> f64 {
        let ease = self.free_share();
        let least = 1.05f64.min(self.options.space_max);
        least + (self.options.space_max - least) * ease
    }

    /// Bytes of files that no piece uses.
    pub(super) fn unused_bytes(&self) -> u64 {
        let used = self.live_bytes + self.superseded_bytes;
        invariant!(used <= self.stored_bytes, "pieces use no more than what is stored");
        self.stored_bytes.saturating_sub(used)
    }

    /// 1 if jobs have at least a fifth of the tree's size as free space, falling to 0 if they have none.
    pub(super) fn free_share(&self) -> f64 {
        (self.room() as f64 / (self.stored_bytes as f64 / 5.0).max(1.0)).min(1.0)
    }

    /// Whether free space is short, so that less garbage is tolerated.
    pub(super) fn is_tight(&self) -> bool {
        self.free_share() < 1.0
    }

    /// Whether newer runs are small enough for a settled tree.
    pub(super) fn is_space_settled(&self) -> bool {
        let oldest = (self.live_bytes - self.newer_bytes) as f64;
        self.stored_bytes as f64 <= oldest * self.options.settled_space
    }

    /// Bytes that a job may write now; unlimited if free space is unknown.
    pub(super) fn room(&self) -> u64 {
        // Reserved for flushes and a log segment.
        let flushes = if self.summary.free_bytes.is_some() { 4 } else { 0 };
        let beside_flushes = self.summary.unit_bytes.saturating_mul(flushes);
        let room = self.free().saturating_sub(beside_flushes);
        // Copies of all tables may fit into half of the free space.
        let tables: u64 = self.run_bytes.iter().sum();
        room.max(if tables <= self.free() / 2 { tables } else { 0 })
    }

    /// As [`Self::room`], for a job that frees more than it writes: at least three quarters of the free
    /// space, because only such jobs free more.
    pub(super) fn room_to_free(&self) -> u64 {
        self.room().max(self.free() / 4 * 3)
    }

    /// Free bytes on the device after running jobs have written their outputs.
    pub(super) fn free(&self) -> u64 {
        let Some(free) = self.summary.free_bytes else { return u64::MAX };
        free.saturating_sub(self.summary.busy.iter().map(|area| area.bytes).sum())
    }
}

/// Checks what the planner relies on (I4): the order of runs and of the pieces in each.
fn check_summary(summary: &Summary) {
    invariant!(summary.runs.is_sorted_by(|a, b| a.id > b.id), "runs are listed newest first");
    invariant!(
        (0.0..=1.0).contains(&summary.superseding),
        "the superseding part of newer runs is a share"
    );
    let mut files = summary.runs.iter().flat_map(|run| &run.pieces).map(|piece| &piece.file);
    invariant!(
        files.all(|file| file.splits.first().is_none_or(|(key, _)| file.first_key < *key)),
        "nothing of a file lies before its first key, and so no split"
    );
    let is_ordered = |run: &RunSummary| {
        run.pieces.iter().all(|piece| piece.end.as_ref().is_none_or(|end| piece.first < *end))
            && run.pieces.is_sorted_by(|a, b| a.end.as_ref().is_some_and(|end| *end <= b.first))
    };
    invariant!(
        summary.runs.iter().all(is_ordered),
        "the pieces of a run ascend and do not overlap"
    );
}

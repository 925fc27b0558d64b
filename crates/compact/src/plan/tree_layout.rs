//! A tree as the planner sees it: in columns, with its totals.

use super::candidate;
use super::columns::{Column, Columns};
use super::{Options, Plan, Summary};

/// A tree's layout at one moment: made once, manual_runs for a plan and for the debt.
#[derive(Debug)]
pub struct TreeLayout<'a> {
    pub(super) summary: &'a Summary,
    pub(super) options: &'a Options,
    pub(super) columns: Columns<'a>,
    /// About how much one job takes in, bytes.
    pub(super) slice_bytes: u64,
    /// Bytes of all tables, and of the long values that they point at.
    pub(super) stored_bytes: u64,
    /// Of these, what pieces hold.
    pub(super) live_bytes: u64,
    /// Of these, what pieces above the oldest of their columns hold.
    pub(super) newer_bytes: u64,
    /// What each run holds, newest first.
    pub(super) run_bytes: Vec<u64>,
    /// Of `stored`, versions that were kept for readers who are gone.
    superseded_bytes: u64,
}

/// What is left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Debt {
    /// About the bytes to be merged until the tree is settled; 0: it is.
    pub bytes: u64,
    /// About the bytes to be merged within the range that a user manual_runs for, running jobs included.
    pub manual_bytes: u64,
    /// The most pieces one above the other: what a get may have to look into.
    pub runs: usize,
    /// How far the fullest level of the highest column is over its fanout: 1 is just full.
    pub fullness: f64,
    /// Stored bytes over what would be left if all were merged, as far as is known.
    pub space: f64,
    /// `space`, over the most it should be; 0 for a tree of a few tables. What snapshots kept counts as
    /// content here: when one goes, that is no reason to slow writers down all at once.
    pub space_fullness: f64,
}

impl<'a> TreeLayout<'a> {
    /// The layout of what `summary` tells.
    #[must_use]
    pub fn new(summary: &'a Summary, options: &'a Options) -> Self {
        let pieces = summary.runs.iter().flat_map(|run| &run.pieces);
        // Files in several pieces count for each: near enough for a size of jobs.
        let slice = options.slice_of(pieces.map(|piece| piece.file.bytes).sum());
        let columns = Columns::new(summary, slice / 4);
        let (live, dead) = columns.live_and_dead();
        let newer = live - columns.all.iter().map(Column::oldest_live_bytes).sum::<u64>();
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

    /// What to do next, if anything.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        candidate::plan(self)
    }

    /// What is left to do until the tree is settled.
    #[must_use]
    pub fn debt(&self) -> Debt {
        let columns = &self.columns.all;
        let (mut bytes, mut manual_bytes) = candidate::work(self);
        for area in &self.summary.busy {
            bytes += area.bytes.max(1);
            if self
                .summary
                .manual
                .as_ref()
                .is_some_and(|manual| candidate::overlaps_manual(area, manual))
            {
                manual_bytes += area.bytes.max(1);
            }
        }
        // A few tables are soon merged; what they waste is nothing to wait for.
        let is_small =
            self.stored_bytes < self.summary.unit_bytes.saturating_mul(32) && !self.is_tight();
        let fullness = columns.iter().map(|column| candidate::fullness(self, column));
        Debt {
            bytes,
            manual_bytes,
            runs: columns.iter().map(|column| column.cells.len()).max().unwrap_or(0),
            fullness: fullness.fold(0.0, f64::max),
            space: self.space(),
            space_fullness: if is_small { 0.0 } else { self.space_written() / self.space_max() },
        }
    }

    /// Stored bytes over what would be left if all were merged, as far as is known. What lies in no
    /// piece any more counts until its file goes. Long values count where tables point at them, so that
    /// a merge of pointers is worth what it lets die; what nothing points at is no merge's to free, but
    /// collections' (`values`).
    pub(super) fn space(&self) -> f64 {
        self.space_over(self.live_bytes)
    }

    /// As [`Self::space`], where what was kept for readers who are gone counts as content.
    fn space_written(&self) -> f64 {
        self.space_over(self.live_bytes + self.superseded_bytes)
    }

    fn space_over(&self, live: u64) -> f64 {
        let garbage = self.newer_bytes as f64 * self.summary.superseding;
        let content = live as f64 - garbage;
        if live == 0 { 1.0 } else { (self.stored_bytes as f64 / content.max(1.0)).min(100.0) }
    }

    /// What merging all of it would give back for each byte it holds.
    pub(super) fn gain(&self) -> f64 {
        let dead = self.stored_bytes - self.live_bytes;
        let superseded = self.newer_bytes as f64 * self.summary.superseding;
        (superseded + dead as f64) / (self.live_bytes as f64).max(1.0)
    }

    /// The most that [`Self::space`] should be: less where the device is nearly full.
    pub(super) fn space_max(&self) -> f64 {
        let ease = self.free_share();
        let least = 1.05f64.min(self.options.space_max);
        least + (self.options.space_max - least) * ease
    }

    /// From a fifth of the tree left free to jobs downwards to none: 1 to 0.
    pub(super) fn free_share(&self) -> f64 {
        (self.room() as f64 / (self.stored_bytes as f64 / 5.0).max(1.0)).min(1.0)
    }

    /// Whether so little space is left that garbage is freed less and less room.
    pub(super) fn is_tight(&self) -> bool {
        self.free_share() < 1.0
    }

    /// Whether newer runs are a small enough part of a tree that nobody writes to.
    pub(super) fn is_space_settle_candidate(&self) -> bool {
        let oldest = (self.live_bytes - self.newer_bytes) as f64;
        self.stored_bytes as f64 <= oldest * self.options.settled_space
    }

    /// How many bytes a job may write now, where free space bounds it.
    pub(super) fn room(&self) -> u64 {
        // Flushes need space too, and a log's segment.
        let flushes = if self.summary.free_bytes.is_some() { 4 } else { 0 };
        self.free().saturating_sub(self.summary.unit_bytes.saturating_mul(flushes))
    }

    /// As [`Self::room`], for a job that gives back more than it takes: where flushes have no space left
    /// to speak of, most of what there is, since nothing else brings any back.
    pub(super) fn room_to_free(&self) -> u64 {
        self.room().max(self.free() / 4 * 3)
    }

    /// Bytes that running jobs leave free.
    pub(super) fn free(&self) -> u64 {
        let Some(free) = self.summary.free_bytes else { return u64::MAX };
        free.saturating_sub(self.summary.busy.iter().map(|area| area.bytes).sum())
    }
}

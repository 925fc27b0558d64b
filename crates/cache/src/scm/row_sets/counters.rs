//! Statistics of the rows in the tier.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};

use base::invariant;

/// Statistics since the tier was opened. Counts of rows, unless a field says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowSetStatistics {
    /// Rows in the tier, approximately.
    pub rows: u64,
    /// Slots that hold rows, and most slots that may.
    pub slots: u64,
    /// See `slots`.
    pub slots_max: u64,
    /// Lookups that found a row.
    pub hits: u64,
    /// Written when DRAM evicted them.
    pub demoted: u64,
    /// Evicted from DRAM while the tier still held them: nothing was written.
    pub kept: u64,
    /// Evicted for other rows.
    pub evicted: u64,
    /// Removed with slots that were returned to pages.
    pub dropped: u64,
    /// Read from flash soon after they were evicted, or refused for lack of room: a little more room would
    /// have kept them.
    pub missed: u64,
    /// Pages that were read from flash soon after they were evicted, of a ghost list that covers the same
    /// bytes.
    pub missed_pages: u64,
    /// Refused: too many waited, or the tier was off or slower than flash.
    pub refused_busy: u64,
    /// Refused: used once, and other rows would have been evicted for them.
    pub refused_cold: u64,
    /// Refused: the write budget was used up.
    pub refused_budget: u64,
    /// Refused: their keys were written meanwhile.
    pub refused_written: u64,
    /// Refused: there was no slot for them.
    pub refused_place: u64,
    /// Dropped because their check did not match.
    pub damaged: u64,
    /// Bytes written to slots of rows; part of the tier's bytes written.
    pub bytes_written: u64,
}

/// Counters. Plain numbers: `Relaxed`.
#[derive(Debug, Default)]
pub(crate) struct RowSetCounters {
    rows: AtomicI64,
    slots: AtomicI64,
    pub(crate) slots_max: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) demoted: AtomicU64,
    pub(crate) kept: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) missed: AtomicU64,
    pub(crate) missed_pages: AtomicU64,
    pub(crate) refused_busy: AtomicU64,
    pub(crate) refused_cold: AtomicU64,
    pub(crate) refused_budget: AtomicU64,
    pub(crate) refused_written: AtomicU64,
    pub(crate) refused_place: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl RowSetCounters {
    /// Counts a row that was put.
    pub(super) fn added(&self) {
        self.rows.fetch_add(1, Relaxed);
        self.demoted.fetch_add(1, Relaxed);
    }

    /// Counts `rows` rows that were removed.
    pub(super) fn removed(&self, rows: usize) {
        if rows > 0 {
            self.rows.fetch_sub(rows as i64, Relaxed);
        }
    }

    /// Adds to the number of slots of rows.
    pub(super) fn slots(&self, more: i64) {
        let before = self.slots.fetch_add(more, Relaxed);
        invariant!(before + more >= 0, "slots that rows give up were counted");
    }

    /// Rows that DRAM evicted and offered, whatever became of them.
    pub(super) fn offered(&self) -> u64 {
        let all = [
            &self.demoted,
            &self.kept,
            &self.refused_busy,
            &self.refused_cold,
            &self.refused_budget,
            &self.refused_written,
            &self.refused_place,
        ];
        all.iter().map(|counter| counter.load(Relaxed)).sum()
    }

    pub(crate) fn statistics(&self) -> RowSetStatistics {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let now = |counter: &AtomicI64| counter.load(Relaxed).max(0) as u64;
        RowSetStatistics {
            rows: now(&self.rows),
            slots: now(&self.slots),
            slots_max: of(&self.slots_max),
            hits: of(&self.hits),
            demoted: of(&self.demoted),
            kept: of(&self.kept),
            evicted: of(&self.evicted),
            dropped: of(&self.dropped),
            missed: of(&self.missed),
            missed_pages: of(&self.missed_pages),
            refused_busy: of(&self.refused_busy),
            refused_cold: of(&self.refused_cold),
            refused_budget: of(&self.refused_budget),
            refused_written: of(&self.refused_written),
            refused_place: of(&self.refused_place),
            damaged: of(&self.damaged),
            bytes_written: of(&self.bytes_written),
        }
    }
}

//! What rows in the tier count.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};

/// The counts at one moment, since the tier was opened. Rows, unless something else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowSetStatistics {
    /// Rows there are, about.
    pub rows: u64,
    /// Slots that hold rows, and how many may.
    pub slots: u64,
    /// See `slots`.
    pub slots_max: u64,
    /// Lookups that found one.
    pub hits: u64,
    /// Written, on leaving DRAM.
    pub demoted: u64,
    /// Left DRAM, and lay here still: nothing was written.
    pub kept: u64,
    /// Went for others.
    pub evicted: u64,
    /// Went with slots that pages took.
    pub dropped: u64,
    /// Asked for soon after they went or were not let in for others, and read from flash: what a little more
    /// room would have kept.
    pub missed: u64,
    /// Pages of as much room that went and were read from flash soon after.
    pub missed_pages: u64,
    /// Not let in: too many waited, or the tier was off or slower than flash.
    pub refused_busy: u64,
    /// Not let in: asked for once, and others would have had to go.
    pub refused_cold: u64,
    /// Not let in: the budget of writes was used up.
    pub refused_budget: u64,
    /// Not let in: their keys were written meanwhile.
    pub refused_written: u64,
    /// Not let in: there was no slot for them.
    pub refused_place: u64,
    /// Dropped since they were not what they should be.
    pub damaged: u64,
    /// Written to slots of rows, bytes; part of what the tier wrote.
    pub bytes_written: u64,
}

/// Counters: only numbers, `Relaxed`.
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
    /// A row came.
    pub(super) fn added(&self) {
        self.rows.fetch_add(1, Relaxed);
        self.demoted.fetch_add(1, Relaxed);
    }

    /// So many rows went.
    pub(super) fn removed(&self, rows: usize) {
        if rows > 0 {
            self.rows.fetch_sub(rows as i64, Relaxed);
        }
    }

    /// There are so many slots more.
    pub(super) fn slots(&self, more: i64) {
        self.slots.fetch_add(more, Relaxed);
    }

    /// Rows that left DRAM and came, were here, or were not let in.
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

//! What a store's tier of storage-class memory did in a run.

use serde::Serialize;

/// Counts of pages, unless something else is said. Field names are an interface that scripts parse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScmCounts {
    /// Lookups that found a page.
    pub hits: u64,
    /// Of them, of metadata.
    pub hits_meta: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Lookups that found a row.
    pub hits_rows: u64,
    /// Rows written, and not let in.
    pub rows_demoted: u64,
    /// See `rows_demoted`.
    pub rows_refused: u64,
    /// Of them since they were asked for once and others would have had to go, since too many waited, and
    /// since their keys were written on the way.
    pub rows_refused_cold: u64,
    /// See `rows_refused_cold`.
    pub rows_refused_busy: u64,
    /// See `rows_refused_cold`.
    pub rows_refused_written: u64,
    /// Rows that went for others, or with slots that pages took.
    pub rows_dropped: u64,
    /// Rows, and pages of as much room, that were read from flash soon after they went.
    pub rows_missed: u64,
    /// See `rows_missed`.
    pub pages_missed: u64,
    /// Rows held at the end, and the bytes of their slots, now and at most.
    pub rows: u64,
    /// See `rows`.
    pub rows_bytes: u64,
    /// See `rows`.
    pub rows_bytes_max: u64,
    /// Pages that were offered and let in, or not by their warmth, the budget or churn: without admission
    /// all of them would have been written, or fewer, as more would have lain below still.
    pub offered: u64,
    /// Let in.
    pub admitted: u64,
    /// Not let in.
    pub refused: u64,
    /// Of them since they had not left DRAM before, as far back as that is remembered.
    pub refused_cold: u64,
    /// Of them since what may be written was.
    pub refused_budget: u64,
    /// Of them since merges would have put too much below.
    pub refused_churn: u64,
    /// Of them since too much waited to be written.
    pub refused_busy: u64,
    /// Of them, let in, since their file was gone before they were written.
    pub refused_dead: u64,
    /// Of them since their kind does not go below.
    pub refused_kind: u64,
    /// Of them since the pages that they take over from left no slot.
    pub refused_place: u64,
    /// Of them since flash answered sooner.
    pub refused_slow: u64,
    /// Found, and read from flash all the same, which answered sooner.
    pub passed: u64,
    /// Pushed out.
    pub dropped: u64,
    /// Copied to DRAM.
    pub promoted: u64,
    /// Written on leaving DRAM.
    pub demoted: u64,
    /// Written by way of a merge, of keys that were asked for.
    pub carried: u64,
    /// Left DRAM and lay below still.
    pub kept: u64,
    /// Written, bytes, the map included.
    pub bytes_written: u64,
    /// Pages held at the end, bytes.
    pub resident_bytes: u64,
}

impl ScmCounts {
    /// What was added since `earlier`, and what is held now.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(earlier.hits),
            hits_meta: self.hits_meta.saturating_sub(earlier.hits_meta),
            misses: self.misses.saturating_sub(earlier.misses),
            hits_rows: self.hits_rows.saturating_sub(earlier.hits_rows),
            rows_demoted: self.rows_demoted.saturating_sub(earlier.rows_demoted),
            rows_refused: self.rows_refused.saturating_sub(earlier.rows_refused),
            rows_refused_cold: self.rows_refused_cold.saturating_sub(earlier.rows_refused_cold),
            rows_refused_busy: self.rows_refused_busy.saturating_sub(earlier.rows_refused_busy),
            rows_refused_written: self
                .rows_refused_written
                .saturating_sub(earlier.rows_refused_written),
            rows_dropped: self.rows_dropped.saturating_sub(earlier.rows_dropped),
            rows_missed: self.rows_missed.saturating_sub(earlier.rows_missed),
            pages_missed: self.pages_missed.saturating_sub(earlier.pages_missed),
            rows: self.rows,
            rows_bytes: self.rows_bytes,
            rows_bytes_max: self.rows_bytes_max,
            offered: self.offered.saturating_sub(earlier.offered),
            admitted: self.admitted.saturating_sub(earlier.admitted),
            refused: self.refused.saturating_sub(earlier.refused),
            refused_cold: self.refused_cold.saturating_sub(earlier.refused_cold),
            refused_budget: self.refused_budget.saturating_sub(earlier.refused_budget),
            refused_churn: self.refused_churn.saturating_sub(earlier.refused_churn),
            refused_busy: self.refused_busy.saturating_sub(earlier.refused_busy),
            refused_dead: self.refused_dead.saturating_sub(earlier.refused_dead),
            refused_kind: self.refused_kind.saturating_sub(earlier.refused_kind),
            refused_place: self.refused_place.saturating_sub(earlier.refused_place),
            refused_slow: self.refused_slow.saturating_sub(earlier.refused_slow),
            passed: self.passed.saturating_sub(earlier.passed),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            promoted: self.promoted.saturating_sub(earlier.promoted),
            demoted: self.demoted.saturating_sub(earlier.demoted),
            carried: self.carried.saturating_sub(earlier.carried),
            kept: self.kept.saturating_sub(earlier.kept),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            resident_bytes: self.resident_bytes,
        }
    }
}

/// What emulating a device took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Emulation {
    /// The device's profile.
    pub profile: &'static str,
    /// Processor time burnt in waiting, seconds, all threads together; part of the run's.
    pub wait_cpu_seconds: f64,
}

impl Emulation {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Option<Self>) -> Self {
        let before = earlier.map_or(0.0, |earlier| earlier.wait_cpu_seconds);
        Self { wait_cpu_seconds: self.wait_cpu_seconds - before, ..self }
    }
}

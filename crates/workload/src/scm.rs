//! Counters of a store's tier of storage-class memory (SCM) in a run.

use serde::Serialize;

/// Counters of the SCM tier, in pages unless stated otherwise. Field names are an interface that scripts
/// parse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScmCounts {
    /// Lookups that found a page.
    pub hits: u64,
    /// Hits of metadata pages, included in `hits`.
    pub hits_meta: u64,
    /// Lookups that found no page.
    pub misses: u64,
    /// Lookups that found a row.
    pub hits_rows: u64,
    /// Rows that were demoted to the tier.
    pub rows_demoted: u64,
    /// Rows that were refused.
    pub rows_refused: u64,
    /// Rows refused because they had been used only once and would have replaced others.
    pub rows_refused_cold: u64,
    /// Rows refused because too many waited to be written, or because the tier was off or slower than flash.
    pub rows_refused_busy: u64,
    /// Rows refused because their key was written meanwhile.
    pub rows_refused_written: u64,
    /// Rows evicted for other rows, or removed with slots that were returned to pages.
    pub rows_dropped: u64,
    /// Rows read from flash soon after they were evicted, or refused for lack of room.
    pub rows_missed: u64,
    /// Pages read from flash soon after they were evicted, of a ghost list that covers the same bytes as that
    /// of rows.
    pub pages_missed: u64,
    /// Rows in the tier at the end.
    pub rows: u64,
    /// Bytes of the slots that hold rows, at the end.
    pub rows_bytes: u64,
    /// The most bytes of slots that rows may have.
    pub rows_bytes_max: u64,
    /// Pages offered that the tier did not hold: admitted, refused, lost because background work was behind,
    /// or waiting to be written at the end.
    pub offered: u64,
    /// Pages admitted and written.
    pub admitted: u64,
    /// Pages refused.
    pub refused: u64,
    /// Pages refused because they were not in the ghost list.
    pub refused_cold: u64,
    /// Pages refused because the write budget was used up.
    pub refused_budget: u64,
    /// Warm outputs refused beyond the share of lookups that they may cost.
    pub refused_churn: u64,
    /// Pages refused because too many waited to be written.
    pub refused_busy: u64,
    /// Pages refused because their file was removed before they were written.
    pub refused_dead: u64,
    /// Pages refused because their kind is not cached in SCM.
    pub refused_kind: u64,
    /// Warm outputs refused because the merge's input pages freed no slot.
    pub refused_place: u64,
    /// Pages refused because the tier was slower than flash.
    pub refused_slow: u64,
    /// Pages found but read from flash, which answered sooner (tier bypass).
    pub passed: u64,
    /// Pages evicted for others, or removed with an obsolete file.
    pub dropped: u64,
    /// Pages promoted: copied to DRAM.
    pub promoted: u64,
    /// Pages demoted: written when DRAM evicted them.
    pub demoted: u64,
    /// Pages of merge outputs that cover hot ranges (warm outputs).
    pub carried: u64,
    /// Pages that DRAM evicted while the tier still held them.
    pub kept: u64,
    /// Bytes written, the stored map included.
    pub bytes_written: u64,
    /// Bytes of pages in the tier at the end.
    pub resident_bytes: u64,
}

impl ScmCounts {
    /// The difference to an `earlier` reading; current values stay as they are in `self`.
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

/// The cost of emulating a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Emulation {
    /// The device's profile.
    pub profile: &'static str,
    /// Processor time spent waiting for the emulated latencies, seconds, over all threads; part of the run's.
    pub wait_cpu_seconds: f64,
}

impl Emulation {
    /// The difference to an `earlier` reading.
    #[must_use]
    pub fn since(self, earlier: Option<Self>) -> Self {
        let before = earlier.map_or(0.0, |earlier| earlier.wait_cpu_seconds);
        Self { wait_cpu_seconds: self.wait_cpu_seconds - before, ..self }
    }
}

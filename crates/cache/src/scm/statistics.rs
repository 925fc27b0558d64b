//! Statistics of the SCM tier.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::admission::Refusal;
use super::row_sets::RowSetStatistics;

/// Statistics since the tier was opened. Counts of pages, unless a field says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScmStatistics {
    /// Slots, and slots that hold a page.
    pub slots: u64,
    /// See `slots`.
    pub resident: u64,
    /// Hits of data pages and of metadata pages.
    pub hits_data: u64,
    /// See `hits_data`.
    pub hits_meta: u64,
    /// Lookups that missed.
    pub misses: u64,
    /// Lookups that found a page which was being written or had too many readers.
    pub busy: u64,
    /// Lookups that found a page but bypassed the tier, because flash answers sooner.
    pub passed: u64,
    /// Offered: each is then admitted, refused, kept or late, or waits ([`ScmStatistics::decided`]).
    pub offered: u64,
    /// Admitted and written.
    pub admitted: u64,
    /// Refused, by reason.
    pub refused: Refusals,
    /// Evicted from DRAM while the tier still held them: nothing was written.
    pub kept: u64,
    /// How many of `admitted` DRAM had evicted.
    pub demoted: u64,
    /// How many of `admitted` were warm outputs of merges.
    pub carried: u64,
    /// Promoted to DRAM.
    pub promoted: u64,
    /// Evicted for other pages, or removed with an obsolete file.
    pub dropped: u64,
    /// Obsolete files, or ranges of them, that were not purged because too many waited: their pages stay
    /// until they are evicted.
    pub unpurged: u64,
    /// Dropped because their content was damaged.
    pub damaged: u64,
    /// Verified by the scrubber.
    pub scrubbed: u64,
    /// Lost instead of written, because no free frame in DRAM could replace theirs.
    pub late: u64,
    /// Evicted from DRAM to give memory back, not in the tier, and not offered, because a caller waits for
    /// the memory.
    pub reclaimed: u64,
    /// Bytes written, to slots and to the map.
    pub bytes_written: u64,
    /// How many of those bytes were written to the map.
    pub bytes_written_map: u64,
    /// Found when the tier was opened.
    pub restored: u64,
    /// Measured cost of a hit and of a write, nanoseconds.
    pub hit_nanos: u32,
    /// See `hit_nanos`.
    pub write_nanos: u32,
    /// Measured cost of a page from flash, nanoseconds.
    pub flash_nanos: u32,
    /// Rows in the tier.
    pub rows: RowSetStatistics,
}

impl ScmStatistics {
    /// Offered pages whose fate is known: all of `offered` that do not wait to be written.
    #[must_use]
    pub const fn decided(&self) -> u64 {
        self.admitted + self.refused.sum() + self.kept + self.late
    }
}

/// Refused pages, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Not in the ghost list.
    pub cold: u64,
    /// The write budget was used up.
    pub budget: u64,
    /// Warm outputs beyond the share of lookups that they may cost.
    pub churn: u64,
    /// Too many pages waited to be written.
    pub busy: u64,
    /// Their file was obsolete.
    pub dead: u64,
    /// The placement policy keeps their kind in DRAM.
    pub kind: u64,
    /// Warm outputs for which the merge's input pages freed no slot.
    pub place: u64,
    /// The tier was slower than flash.
    pub slow: u64,
}

impl Refusals {
    /// All refused pages.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let Self { cold, budget, churn, busy, dead, kind, place, slow } = *self;
        cold + budget + churn + busy + dead + kind + place + slow
    }
}

/// Counters. Plain numbers: `Relaxed`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) resident: AtomicU64,
    pub(crate) hits_data: AtomicU64,
    pub(crate) hits_meta: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) offered: AtomicU64,
    pub(crate) admitted: AtomicU64,
    pub(crate) kept: AtomicU64,
    pub(crate) demoted: AtomicU64,
    pub(crate) carried: AtomicU64,
    pub(crate) promoted: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) unpurged: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) scrubbed: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) bytes_written_map: AtomicU64,
    pub(crate) restored: AtomicU64,
    refused: [AtomicU64; 8],
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Counters {
    pub(crate) fn refused(&self, refusal: Refusal) {
        if let Some(counter) = self.refused.get(refusal as usize) {
            count(counter);
        }
    }

    /// Sets the number of pages found at open.
    pub(crate) fn found(&self, pages: u64) {
        self.restored.store(pages, Relaxed);
        self.resident.store(pages, Relaxed);
    }

    pub(crate) fn lookups(&self) -> u64 {
        [&self.hits_data, &self.hits_meta, &self.misses].map(|c| c.load(Relaxed)).iter().sum()
    }

    pub(crate) fn statistics(&self) -> ScmStatistics {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let refused = |refusal| self.refused.get(refusal as usize).map_or(0, of);
        ScmStatistics {
            resident: of(&self.resident),
            hits_data: of(&self.hits_data),
            hits_meta: of(&self.hits_meta),
            misses: of(&self.misses),
            busy: of(&self.busy),
            passed: of(&self.passed),
            offered: of(&self.offered),
            admitted: of(&self.admitted),
            refused: Refusals {
                cold: refused(Refusal::Cold),
                budget: refused(Refusal::Budget),
                churn: refused(Refusal::Churn),
                busy: refused(Refusal::Busy),
                dead: refused(Refusal::Dead),
                kind: refused(Refusal::Kind),
                place: refused(Refusal::NoSlot),
                slow: refused(Refusal::Slow),
            },
            kept: of(&self.kept),
            demoted: of(&self.demoted),
            carried: of(&self.carried),
            promoted: of(&self.promoted),
            dropped: of(&self.dropped),
            unpurged: of(&self.unpurged),
            damaged: of(&self.damaged),
            scrubbed: of(&self.scrubbed),
            late: of(&self.late),
            reclaimed: of(&self.reclaimed),
            bytes_written: of(&self.bytes_written),
            bytes_written_map: of(&self.bytes_written_map),
            restored: of(&self.restored),
            ..ScmStatistics::default()
        }
    }
}

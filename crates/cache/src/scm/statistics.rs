//! What the SCM tier counts.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::admission::Refusal;
use super::row_sets::RowSetStatistics;

/// The counts at one moment, since the tier was opened. Pages, unless something else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScmStatistics {
    /// Slots there are, and slots that hold a page.
    pub slots: u64,
    /// See `slots`.
    pub resident: u64,
    /// Lookups of data pages and of metadata pages that were hits.
    pub hits_data: u64,
    /// See `hits_data`.
    pub hits_meta: u64,
    /// Lookups that were none.
    pub misses: u64,
    /// Found by a lookup, but being written or read by too many.
    pub busy: u64,
    /// Found by a lookup, and read from flash all the same, since the tier was slower.
    pub passed: u64,
    /// Pages that were offered and let in.
    pub admitted: u64,
    /// Not let in, by reason.
    pub refused: Refusals,
    /// Left DRAM and lay below still: nothing was written.
    pub kept: u64,
    /// Let in and written, on leaving DRAM.
    pub demoted: u64,
    /// Let in and written, from a merge: pages of keys that were asked for in pages that go.
    pub carried: u64,
    /// Copied to DRAM since they were asked for again.
    pub promoted: u64,
    /// Pushed out by others, or of a file that is gone.
    pub dropped: u64,
    /// Files, or parts of them, that went while too many others waited for it: what lies below of them
    /// goes as others push it out.
    pub unpurged: u64,
    /// Dropped since their bytes were not what they should be.
    pub damaged: u64,
    /// Verified where they lay, in the background.
    pub scrubbed: u64,
    /// Pages that left DRAM and were lost, though wanted, since no frame was free to take their place.
    pub late: u64,
    /// Pages that left DRAM with memory that others took, did not lie below and were not offered, since
    /// whoever takes memory waits for it.
    pub reclaimed: u64,
    /// Written to slots and to the map, bytes.
    pub bytes_written: u64,
    /// Of them to the map.
    pub bytes_written_map: u64,
    /// Found when the tier was opened.
    pub restored: u64,
    /// What a hit and a write were measured to cost lately, nanoseconds.
    pub hit_nanos: u32,
    /// See `hit_nanos`.
    pub write_nanos: u32,
    /// What a page from flash was measured to cost lately, nanoseconds.
    pub flash_nanos: u32,
    /// Rows among the pages.
    pub rows: RowSetStatistics,
}

/// Pages that were not let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Not remembered.
    pub cold: u64,
    /// The budget of writes was used up.
    pub budget: u64,
    /// Merges wrote them, and enough of late.
    pub churn: u64,
    /// Too many waited to be written.
    pub busy: u64,
    /// Their file was gone.
    pub dead: u64,
    /// The policy keeps their kind above.
    pub kind: u64,
    /// A merge wrote them, and the pages they take over from left no slot.
    pub place: u64,
    /// The tier was slower than flash.
    pub slow: u64,
}

/// Counters: only numbers, `Relaxed`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) resident: AtomicU64,
    pub(crate) hits_data: AtomicU64,
    pub(crate) hits_meta: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) passed: AtomicU64,
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

    /// So many pages were found when the tier was opened.
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

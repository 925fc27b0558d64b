//! The split of the upper tier's memory between rows and pages.
//!
//! Each of the two caches has a shadow ghost list of what it evicted last, both over the same number of
//! bytes, however large the caches are. A miss that the list has would have been a hit with that much more
//! memory. Such misses are weighed by their cost: for a row a device read, the use of a page in the lower
//! tier, or the search of a cached page; for a page the first two. If the lower tier holds rows, too, a row
//! kept in DRAM leaves room there for another row, so misses of rows that the lower tier evicted or refused
//! for lack of room count as well. The costs are those measured lately. After every [`MISSES`] misses the
//! cache that would have gained clearly more gets some chunks of the other.
//!
//! Memory that others need is reclaimed from the cache that has more than its share. The decision
//! ([`next_rows_share`]) is a pure function.
//!
//! Concurrency: any thread may call. A miss costs one atomic addition; one thread at a time rebalances, and
//! others do not wait for it. Neither cache's locks are held while the other's are taken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::{Reclaim, invariant};
use parking_lot::Mutex;

use crate::scm::DRAM_HIT_NANOS;
use crate::{PageCache, RowCache, RowStatistics};

/// The split is decided again after this many misses: rows that were looked up and not found, and pages that
/// scans read from the device.
const MISSES: u64 = 8192;

/// If at most this many of those misses were of rows, rows count as idle.
const IDLE_MISSES_MAX: u64 = MISSES / 64;

/// Cost of a device read, in searches of cached pages.
const DEVICE_COST: u64 = 32;

/// Costs of misses, in searches of cached pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissCosts {
    /// A page read from the device.
    pub(crate) device: u64,
    /// The use of a page in the lower tier.
    pub(crate) scm: u64,
}

impl MissCosts {
    /// Costs from the measured nanoseconds of a page from flash and of one from the lower tier. The lower
    /// tier's cost is interpolated between the search of a cached page (1) and a device read
    /// ([`DEVICE_COST`]).
    #[must_use]
    pub(crate) const fn of(flash_nanos: u32, scm_nanos: u32) -> Self {
        let flash = flash_nanos.saturating_sub(DRAM_HIT_NANOS) as u64;
        let scm = scm_nanos.saturating_sub(DRAM_HIT_NANOS) as u64;
        let above_dram =
            if scm >= flash { DEVICE_COST - 1 } else { (DEVICE_COST - 1) * scm / flash };
        Self { device: DEVICE_COST, scm: 1 + above_dram }
    }
}

/// Misses of rows, or of pages, that the shadow ghost list had; by the place of the page that was needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GhostHits {
    /// On the device.
    pub(crate) device: u64,
    /// In the lower tier.
    pub(crate) scm: u64,
    /// In DRAM.
    pub(crate) cached: u64,
}

impl GhostHits {
    fn since(self, earlier: Self) -> Self {
        invariant!(
            self.device >= earlier.device
                && self.scm >= earlier.scm
                && self.cached >= earlier.cached,
            "counts of ghost hits never decrease"
        );
        Self {
            device: self.device - earlier.device,
            scm: self.scm - earlier.scm,
            cached: self.cached - earlier.cached,
        }
    }
}

/// The gain that each cache would have had from more memory. A row hit saves all costs of its page. A page
/// hit saves the cost of getting the page, but the page is still searched.
#[must_use]
pub(crate) const fn gain(rows: GhostHits, pages: GhostHits, costs: MissCosts) -> Gain {
    Gain {
        rows: rows.device * costs.device + rows.scm * costs.scm + rows.cached,
        pages: pages.device * costs.device + pages.scm * (costs.scm - 1),
    }
}

/// Shares of rows in the memory, in 1/64: least, first, most.
const PARTS: u64 = 64;
const SHARE_MIN: u64 = 1;
const SHARE_FIRST: u64 = 32;
const SHARE_MAX: u64 = 60;

/// Most chunks moved between two decisions.
const CHUNKS_AT_ONCE: u64 = 8;

/// One chunk is moved after this many misses, so that a miss waits for one chunk at most. Emptying a chunk
/// takes some milliseconds, during which insertions of rows are refused.
const MISSES_A_CHUNK: u64 = MISSES / 4 / CHUNKS_AT_ONCE;

const CHUNK_BYTES: u64 = 2 << 20;

/// Gain from more memory, in searches of cached pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gain {
    /// Gain of the row cache.
    pub(crate) rows: u64,
    /// Gain of the page cache.
    pub(crate) pages: u64,
}

/// The next share of rows, in 1/64, given their share and the gains.
#[must_use]
pub(crate) const fn next_rows_share(rows_share: u64, gain: Gain) -> u64 {
    let next = if clearly_more(gain.rows, gain.pages) {
        rows_share + stride(gain.rows, gain.pages)
    } else if clearly_more(gain.pages, gain.rows) {
        rows_share.saturating_sub(stride(gain.pages, gain.rows))
    } else {
        rows_share
    };
    if next > SHARE_MAX {
        SHARE_MAX
    } else if next < SHARE_MIN {
        SHARE_MIN
    } else {
        next
    }
}

/// Whether `one` is more than `other` by a quarter, and by more than chance explains.
const fn clearly_more(one: u64, other: u64) -> bool {
    one > other + other / 4 + 8 * DEVICE_COST
}

/// Step of the share, in 1/64, by the ratio of the gains.
const fn stride(more: u64, less: u64) -> u64 {
    if more > 4 * less {
        4
    } else if more > 2 * less {
        2
    } else {
        1
    }
}

/// Splits the upper tier's memory between its two caches.
pub struct Balance {
    pages: Arc<PageCache>,
    rows: Arc<RowCache>,
    /// Bytes of entries that each shadow ghost list covers.
    shadow_bytes: u64,
    misses: AtomicU64,
    /// How many of the misses were pages of scans.
    scanned: AtomicU64,
    /// The share of rows, in 1/64. A plain number: `Relaxed`.
    rows_share: AtomicU64,
    last: Mutex<LastCounts>,
}

/// The counts at the last decision.
#[derive(Default)]
struct LastCounts {
    rows: GhostHits,
    pages: GhostHits,
    /// Rows that were evicted or refused.
    removed: u64,
    /// Rows that were looked up and not found.
    row_misses: u64,
    /// Chunks still to move before the next decision: to rows if positive, from rows if negative.
    chunks: i64,
}

impl Balance {
    /// Splits memory between these two, half and half at first.
    #[must_use]
    pub fn new(pages: &Arc<PageCache>, rows: &Arc<RowCache>) -> Self {
        let shadow_bytes = pages.shadow_bytes();
        rows.set_shadow_bytes(shadow_bytes);
        Self {
            shadow_bytes,
            pages: Arc::clone(pages),
            rows: Arc::clone(rows),
            misses: AtomicU64::new(0),
            scanned: AtomicU64::new(0),
            rows_share: AtomicU64::new(SHARE_FIRST),
            last: Mutex::default(),
        }
    }

    /// First limit of the rows' memory, bytes, for a total of `capacity_bytes`.
    #[must_use]
    pub const fn first_rows(capacity_bytes: u64) -> u64 {
        capacity_bytes / PARTS * SHARE_FIRST
    }

    /// The share of rows in the memory, 0 to 1.
    #[must_use]
    pub fn rows_part(&self) -> f64 {
        self.rows_share.load(Relaxed) as f64 / PARTS as f64
    }

    /// Counts a page that a scan read from the device, as [`Balance::missed`] counts a row. Without it a
    /// workload of scans alone would have no misses, and idle rows would keep their memory.
    pub fn scanned(&self) {
        self.scanned.fetch_add(1, Relaxed);
        self.missed();
    }

    /// Counts a row that was looked up and not found; now and then rebalances, or moves a chunk.
    pub fn missed(&self) {
        let misses = self.misses.fetch_add(1, Relaxed) + 1;
        if misses.is_multiple_of(MISSES) {
            self.rebalance();
        } else if misses.is_multiple_of(MISSES_A_CHUNK) {
            self.move_chunk();
        }
    }

    fn move_chunk(&self) {
        let Some(mut last) = self.last.try_lock() else { return };
        let now = self.rows.bytes();
        match last.chunks {
            0 => return,
            1.. => {
                let given = self.pages.reclaim(CHUNK_BYTES);
                self.rows.grow_to(now + given);
            }
            ..0 => self.rows.set_capacity(now.saturating_sub(CHUNK_BYTES)),
        }
        last.chunks -= last.chunks.signum();
    }

    /// The counts now.
    fn counts(&self, rows: &RowStatistics) -> LastCounts {
        let pages = self.pages.statistics();
        // A row kept in DRAM leaves room in the lower tier for another: scale the lower tier's misses to this
        // ghost list.
        let (missed, bytes) = self.pages.lower_tier().map_or((0, 0), |tier| tier.rows_missed());
        let spared = (missed * self.shadow_bytes).checked_div(bytes).unwrap_or(0);
        LastCounts {
            rows: GhostHits {
                device: rows.missed_device + spared,
                scm: rows.missed_below,
                cached: rows.missed_cached,
            },
            pages: GhostHits { device: pages.missed, scm: pages.missed_below, cached: 0 },
            removed: rows.evicted + rows.refused.seldom,
            row_misses: self.misses.load(Relaxed).saturating_sub(self.scanned.load(Relaxed)),
            chunks: 0,
        }
    }

    /// Decides the share of rows again, and how many chunks to move.
    fn rebalance(&self) {
        let Some(mut last) = self.last.try_lock() else { return };
        let rows = self.rows.statistics();
        let now = self.counts(&rows);
        // Without a lower tier there are no misses of it, and its cost does not matter.
        let (flash, scm) = self.pages.lower_tier().map_or((0, 0), |tier| tier.miss_nanos());
        let (in_rows, in_pages) = (now.rows.since(last.rows), now.pages.since(last.pages));
        // While no row is evicted nothing is known about the value of less memory for rows. But idle rows
        // shrink anyway: then some are evicted, and their misses show their value.
        let are_idle = now.row_misses.saturating_sub(last.row_misses) <= IDLE_MISSES_MAX;
        let is_known = now.removed != last.removed || are_idle;
        *last = now;
        if is_known {
            let gain = gain(in_rows, in_pages, MissCosts::of(flash, scm));
            let rows_share = next_rows_share(self.rows_share.load(Relaxed), gain);
            invariant!(
                (SHARE_MIN..=SHARE_MAX).contains(&rows_share),
                "neither cache loses all of its memory"
            );
            self.rows_share.store(rows_share, Relaxed);
        }
        if self.pages.has_room() {
            // Free memory is enough for pages; idle rows need no more either.
            if !are_idle {
                self.rows.grow_to(rows.bytes_max.max(rows.bytes + CHUNKS_AT_ONCE * CHUNK_BYTES));
            }
            return;
        }
        last.chunks = self.chunks_to_move(&rows, are_idle, is_known);
        invariant!(
            last.chunks.unsigned_abs() <= CHUNKS_AT_ONCE,
            "misses until the next decision suffice to move all chunks"
        );
    }

    /// Chunks to move before the next decision, at most [`CHUNKS_AT_ONCE`] either way.
    fn chunks_to_move(&self, rows: &RowStatistics, are_idle: bool, is_known: bool) -> i64 {
        let (now, at_once) = (rows.bytes, CHUNKS_AT_ONCE * CHUNK_BYTES);
        let mut wanted = self.rows_wanted();
        if are_idle {
            wanted = wanted.min(now);
        } else if !is_known {
            // Memory that rows do not use goes to pages, except half of the most that may move at once.
            wanted = wanted.min(now - rows.free_bytes.min(now) + at_once / 2);
        }
        let wanted = wanted.clamp(now.saturating_sub(at_once), now + at_once);
        let chunks = |bytes: u64| i64::try_from(bytes.div_ceil(CHUNK_BYTES)).unwrap_or(0);
        if wanted < now {
            -chunks(now - wanted)
        } else if rows.free_bytes < CHUNK_BYTES {
            chunks(wanted - now)
        } else {
            0
        }
    }

    /// Bytes that rows should have, of the memory that both caches have now.
    fn rows_wanted(&self) -> u64 {
        let chunks = (self.rows.bytes() + self.pages.bytes()) / CHUNK_BYTES;
        (chunks * self.rows_share.load(Relaxed) / PARTS).max(1) * CHUNK_BYTES
    }
}

impl Reclaim for Balance {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut given = self.pages.detach_blocks(bytes);
        while given < bytes {
            let from_rows = self.rows.bytes() > self.rows_wanted();
            let chunk = match from_rows {
                true => self.rows.reclaim(1),
                false => self.pages.reclaim(1),
            };
            let chunk = match chunk {
                0 if from_rows => self.pages.reclaim(1),
                0 => self.rows.reclaim(1),
                chunk => chunk,
            };
            if chunk == 0 {
                break;
            }
            given += chunk;
        }
        given
    }
}

impl fmt::Debug for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Balance({:.2} for rows)", self.rows_part())
    }
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tier_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_page_in_the_lower_tier_lies_between_dram_and_flash() {
        let of = |flash, scm| MissCosts::of(flash, scm).scm;
        // Memory, a fast device, a device as slow as flash; then slower than flash, and nothing measured yet.
        assert_eq!((of(80_400, 900), of(80_400, 10_400), of(80_400, 80_400)), (1, 4, 32));
        assert_eq!((of(80_400, 200), of(10_000, 50_000), of(0, 0)), (1, 32, 32));
        let missed = GhostHits { device: 10, scm: 1000, cached: 100 };
        let in_pages = GhostHits { cached: 0, ..missed };
        let gains = |scm_nanos| gain(missed, in_pages, MissCosts::of(80_400, scm_nanos));
        // If a use of the lower tier costs next to nothing, pages gain only by their device reads.
        assert_eq!(gains(500), Gain { rows: 320 + 1000 + 100, pages: 320 });
        assert_eq!(gains(10_400), Gain { rows: 320 + 4000 + 100, pages: 320 + 3000 });
        let of_flash =
            gain(GhostHits { device: 1010, scm: 0, ..missed }, in_pages, MissCosts::of(0, 0));
        assert!(of_flash.rows > 7 * gains(10_400).rows);
    }

    #[test]
    fn memory_goes_to_the_cache_that_gains_clearly_more() {
        let of = |rows, pages| next_rows_share(32, Gain { rows, pages });
        assert_eq!((of(0, 0), of(10_000, 9_000), of(9_000, 10_000)), (32, 32, 32));
        assert_eq!((of(10_000, 7_000), of(7_000, 10_000)), (33, 31));
        assert_eq!((of(10_000, 1_000), of(3_000, 10_000)), (36, 30));
        assert_eq!(next_rows_share(SHARE_MIN, Gain { rows: 0, pages: 1 << 20 }), SHARE_MIN);
        assert_eq!(next_rows_share(SHARE_MAX, Gain { rows: 1 << 20, pages: 0 }), SHARE_MAX);
    }
}

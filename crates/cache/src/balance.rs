//! The split of the DRAM tier's memory between rows and pages.
//!
//! Both remember what of theirs went last, as much as lay in the same number of bytes, however much either
//! has: what is asked for again soon after it went would have been a hit with that much more memory. Rows are
//! weighed by what their miss cost: a device read, the use of a page in the tier below, or the search of a
//! cached page; pages by the first two. Where the tier holds rows, too, one that is kept here leaves room
//! there to another, and what went there for want of room counts as well. What the tier costs beside the
//! device was measured lately. Every so many misses the one that would have gained clearly more gets some
//! chunks of the other's.
//!
//! What others need is taken from whichever has more than its part. The decision ([`step`]) is a
//! pure function.
//!
//! Concurrency: a miss counts one atomic addition; one thread at a time weighs, and others pass by.
//! Neither cache's locks are held while the other's are taken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::Reclaim;
use parking_lot::Mutex;

use crate::scm::DRAM_HIT_NANOS;
use crate::{PageCache, RowCache};

/// A miss is a row that is asked for and not there, or a page that a scan reads from the device: after this
/// many the two are weighed.
const MISSES: u64 = 8192;

/// Of these, where at most so many were of rows, rows are hardly asked for in vain.
const IDLE_MISSES_MAX: u64 = MISSES / 64;

/// A device read is worth this many searches of cached pages.
const DEVICE_COST: u64 = 32;

/// What misses cost, in searches of cached pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissCosts {
    /// A page read from the device.
    pub(crate) device: u64,
    /// A page used in the tier below.
    pub(crate) below: u64,
}

impl MissCosts {
    /// Where a page from flash, and one from the tier below, cost so many nanoseconds: between the search of
    /// a cached page and a device read, as far as it is from either.
    #[must_use]
    pub(crate) const fn of(flash_nanos: u32, below_nanos: u32) -> Self {
        let flash = flash_nanos.saturating_sub(DRAM_HIT_NANOS) as u64;
        let below = below_nanos.saturating_sub(DRAM_HIT_NANOS) as u64;
        let rows_share =
            if below >= flash { DEVICE_COST - 1 } else { (DEVICE_COST - 1) * below / flash };
        Self { device: DEVICE_COST, below: 1 + rows_share }
    }
}

/// What of rows or of pages was missed soon after it went, by where its pages were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GhostHits {
    /// On the device.
    pub(crate) device: u64,
    /// In the tier below.
    pub(crate) below: u64,
    /// In DRAM.
    pub(crate) cached: u64,
}

impl GhostHits {
    const fn since(self, earlier: Self) -> Self {
        Self {
            device: self.device - earlier.device,
            below: self.below - earlier.below,
            cached: self.cached - earlier.cached,
        }
    }
}

/// What both would have gained by more memory. A row that is there spares all that its page costs; a page
/// spares the way to it, and is searched all the same.
#[must_use]
pub(crate) const fn gain(rows: GhostHits, pages: GhostHits, costs: MissCosts) -> Gain {
    Gain {
        rows: rows.device * costs.device + rows.below * costs.below + rows.cached,
        pages: pages.device * costs.device + pages.below * (costs.below - 1),
    }
}

/// Parts of the whole that rows have: at least, at first, at most.
const PARTS: u64 = 64;
const SHARE_MIN: u64 = 1;
const SHARE_FIRST: u64 = 32;
const SHARE_MAX: u64 = 60;

/// Chunks moved between two weighings, at most.
const CHUNKS_AT_ONCE: u64 = 8;

/// After so many misses one of them is: whoever misses then waits for no more. Emptying a chunk takes some
/// milliseconds, and whoever puts a row in waits for it, too.
const MISSES_A_CHUNK: u64 = MISSES / 4 / CHUNKS_AT_ONCE;

const CHUNK_BYTES: u64 = 2 << 20;

/// What would have been gained by more memory, in searches of cached pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gain {
    /// For rows.
    pub(crate) rows: u64,
    /// For pages.
    pub(crate) pages: u64,
}

/// The part of the whole that rows are to have, in 64ths, where they have `part` and either would
/// have gained so much.
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

/// A quarter more, and more than chance makes of a few.
const fn clearly_more(one: u64, other: u64) -> bool {
    one > other + other / 4 + 8 * DEVICE_COST
}

/// How far to go where one gains so much more.
const fn stride(more: u64, less: u64) -> u64 {
    if more > 4 * less {
        4
    } else if more > 2 * less {
        2
    } else {
        1
    }
}

/// Keeps the split between the two caches of the DRAM tier.
pub struct Balance {
    pages: Arc<PageCache>,
    rows: Arc<RowCache>,
    /// What went last is remembered as far as it lay in so many bytes.
    shadow_bytes: u64,
    misses: AtomicU64,
    /// Of them, pages of scans.
    scanned: AtomicU64,
    /// The part of rows, in 64ths. Only a number: `Relaxed`.
    rows_share: AtomicU64,
    last: Mutex<LastCounts>,
}

/// The counts when the two were weighed last.
#[derive(Default)]
struct LastCounts {
    rows: GhostHits,
    pages: GhostHits,
    /// Rows that went or were not let in.
    removed: u64,
    /// Rows that were asked for and not there.
    row_misses: u64,
    /// Chunks to move before the next weighing: to rows, or from them where it is negative.
    chunks: i64,
}

impl Balance {
    /// Between these two, half and half at first.
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

    /// The most bytes that rows may take of `capacity_bytes` before anything is known.
    #[must_use]
    pub const fn first_rows(capacity_bytes: u64) -> u64 {
        capacity_bytes / PARTS * SHARE_FIRST
    }

    /// The part of the memory that rows are to have, 0 to 1.
    #[must_use]
    pub fn rows_part(&self) -> f64 {
        self.rows_share.load(Relaxed) as f64 / PARTS as f64
    }

    /// Counts a page that a scan reads from the device, as [`Balance::missed`] does a row: where nothing but
    /// scans misses, rows that nobody asks for make way.
    pub fn scanned(&self) {
        self.scanned.fetch_add(1, Relaxed);
        self.missed();
    }

    /// Counts a row that was not there; now and then weighs, or moves a chunk.
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

    fn rebalance(&self) {
        let Some(mut last) = self.last.try_lock() else { return };
        let (rows, pages) = (self.rows.statistics(), self.pages.statistics());
        // A row that stays above leaves room below to another: of as much as is remembered here.
        let below = self.pages.lower_tier();
        let (missed, bytes) = below.map_or((0, 0), |tier| tier.rows_missed());
        let spared = (missed * self.shadow_bytes).checked_div(bytes).unwrap_or(0);
        let now = LastCounts {
            rows: GhostHits {
                device: rows.missed_device + spared,
                below: rows.missed_below,
                cached: rows.missed_cached,
            },
            pages: GhostHits { device: pages.missed, below: pages.missed_below, cached: 0 },
            removed: rows.evicted + rows.refused.seldom,
            row_misses: self.misses.load(Relaxed).saturating_sub(self.scanned.load(Relaxed)),
            chunks: 0,
        };
        // Without a tier nothing is missed there.
        let (flash, below) = below.map_or((0, 0), |tier| tier.miss_nanos());
        let (in_rows, in_pages) = (now.rows.since(last.rows), now.pages.since(last.pages));
        // As long as no row goes, nobody knows what fewer of them would cost: unless hardly any is asked for
        // in vain. Then some go, and it shows.
        let are_idle = now.row_misses.saturating_sub(last.row_misses) <= IDLE_MISSES_MAX;
        let is_known = now.removed != last.removed || are_idle;
        *last = now;
        if is_known {
            let gain = gain(in_rows, in_pages, MissCosts::of(flash, below));
            let rows_share = next_rows_share(self.rows_share.load(Relaxed), gain);
            self.rows_share.store(rows_share, Relaxed);
        }
        if self.pages.has_room() {
            // Nobody needs what is free yet, nor do rows that are hardly asked for.
            if !are_idle {
                self.rows.grow_to(rows.bytes_max.max(rows.bytes + CHUNKS_AT_ONCE * CHUNK_BYTES));
            }
            return;
        }
        let (now, at_once) = (rows.bytes, CHUNKS_AT_ONCE * CHUNK_BYTES);
        let mut wanted = self.rows_wanted();
        if are_idle {
            wanted = wanted.min(now);
        } else if !is_known {
            // What they do not use is of use to pages, but for what they are about to fill.
            wanted = wanted.min(now - rows.free_bytes.min(now) + at_once / 2);
        }
        let wanted = wanted.clamp(now.saturating_sub(at_once), now + at_once);
        let chunks = |bytes: u64| i64::try_from(bytes.div_ceil(CHUNK_BYTES)).unwrap_or(0);
        if wanted < now {
            last.chunks = -chunks(now - wanted);
        } else if rows.free_bytes < CHUNK_BYTES {
            last.chunks = chunks(wanted - now);
        }
    }

    /// What rows are to have of what both have now, bytes.
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
    fn a_miss_that_the_tier_below_serves_is_worth_what_it_costs() {
        let of = |flash, below| MissCosts::of(flash, below).below;
        // Memory, a fast device, one as slow as flash, and before anything is known of it.
        assert_eq!((of(80_400, 900), of(80_400, 10_400), of(80_400, 80_400)), (1, 4, 32));
        assert_eq!((of(80_400, 200), of(10_000, 50_000), of(0, 0)), (1, 32, 32));
        let missed = GhostHits { device: 10, below: 1000, cached: 100 };
        let in_pages = GhostHits { cached: 0, ..missed };
        let gains = |below_nanos| gain(missed, in_pages, MissCosts::of(80_400, below_nanos));
        // Where being below costs next to nothing, pages gain by what flash serves alone.
        assert_eq!(gains(500), Gain { rows: 320 + 1000 + 100, pages: 320 });
        assert_eq!(gains(10_400), Gain { rows: 320 + 4000 + 100, pages: 320 + 3000 });
        let of_flash =
            gain(GhostHits { device: 1010, below: 0, ..missed }, in_pages, MissCosts::of(0, 0));
        assert!(of_flash.rows > 7 * gains(10_400).rows);
    }

    #[test]
    fn memory_goes_to_whoever_gains_clearly_more() {
        let of = |rows, pages| next_rows_share(32, Gain { rows, pages });
        assert_eq!((of(0, 0), of(10_000, 9_000), of(9_000, 10_000)), (32, 32, 32));
        assert_eq!((of(10_000, 7_000), of(7_000, 10_000)), (33, 31));
        assert_eq!((of(10_000, 1_000), of(3_000, 10_000)), (36, 30));
        assert_eq!(next_rows_share(SHARE_MIN, Gain { rows: 0, pages: 1 << 20 }), SHARE_MIN);
        assert_eq!(next_rows_share(SHARE_MAX, Gain { rows: 1 << 20, pages: 0 }), SHARE_MAX);
    }
}

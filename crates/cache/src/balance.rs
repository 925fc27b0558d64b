//! The split of the DRAM tier's memory between rows and pages.
//!
//! Both remember what of theirs went last, as much as lay in the same part of the memory: what is
//! asked for again soon after it went would have been a hit with that much more memory. Rows are
//! weighed by what their miss cost: a device read, or the search of a cached page. Every so many
//! misses the one that would have gained clearly more gets some chunks of the other's.
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

use crate::{PageCache, RowCache};

/// What went last is remembered as far as it lay in one such part of the memory.
pub(crate) const SHADOW_PART: usize = 32;

/// A miss is a row that is asked for and not there: after this many the two are weighed.
const MISSES: u64 = 8192;

/// A device read is worth this many searches of cached pages.
const DEVICE_WORTH: u64 = 32;

/// Parts of the whole that rows have: at least, at first, at most.
const PARTS: u64 = 64;
const PART_MIN: u64 = 1;
const PART_FIRST: u64 = 32;
const PART_MAX: u64 = 60;

/// Chunks moved at once, at most.
const CHUNKS_AT_ONCE: u64 = 8;

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
pub(crate) const fn step(part: u64, gain: Gain) -> u64 {
    let next = if clearly_more(gain.rows, gain.pages) {
        part + strides(gain.rows, gain.pages)
    } else if clearly_more(gain.pages, gain.rows) {
        part.saturating_sub(strides(gain.pages, gain.rows))
    } else {
        part
    };
    if next > PART_MAX {
        PART_MAX
    } else if next < PART_MIN {
        PART_MIN
    } else {
        next
    }
}

/// A quarter more, and more than chance makes of a few.
const fn clearly_more(one: u64, other: u64) -> bool {
    one > other + other / 4 + 8 * DEVICE_WORTH
}

/// How far to go where one gains so much more.
const fn strides(more: u64, less: u64) -> u64 {
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
    misses: AtomicU64,
    /// The part of rows, in 64ths. Only a number: `Relaxed`.
    part: AtomicU64,
    weighed: Mutex<Weighed>,
}

/// The counts when the two were weighed last.
#[derive(Default)]
struct Weighed {
    device: u64,
    cached: u64,
    pages: u64,
}

impl Balance {
    /// Between these two, half and half at first.
    #[must_use]
    pub fn new(pages: &Arc<PageCache>, rows: &Arc<RowCache>) -> Self {
        Self {
            pages: Arc::clone(pages),
            rows: Arc::clone(rows),
            misses: AtomicU64::new(0),
            part: AtomicU64::new(PART_FIRST),
            weighed: Mutex::default(),
        }
    }

    /// The most bytes that rows may take of `capacity_bytes` before anything is known.
    #[must_use]
    pub const fn first_rows(capacity_bytes: u64) -> u64 {
        capacity_bytes / PARTS * PART_FIRST
    }

    /// The part of the memory that rows are to have, 0 to 1.
    #[must_use]
    pub fn rows_part(&self) -> f64 {
        self.part.load(Relaxed) as f64 / PARTS as f64
    }

    /// Counts a row that was not there; now and then weighs.
    pub fn missed(&self) {
        if self.misses.fetch_add(1, Relaxed) % MISSES == MISSES - 1 {
            self.weigh();
        }
    }

    fn weigh(&self) {
        let Some(mut weighed) = self.weighed.try_lock() else { return };
        let (rows, pages) = (self.rows.statistics(), self.pages.statistics());
        let gain = Gain {
            rows: (rows.missed_device - weighed.device) * DEVICE_WORTH + rows.missed_cached
                - weighed.cached,
            pages: (pages.missed - weighed.pages) * DEVICE_WORTH,
        };
        let (device, cached) = (rows.missed_device, rows.missed_cached);
        *weighed = Weighed { device, cached, pages: pages.missed };
        let part = step(self.part.load(Relaxed), gain);
        self.part.store(part, Relaxed);
        if self.pages.has_room() {
            // Nobody needs what is free yet.
            return self
                .rows
                .grow_to(rows.bytes_max.max(rows.bytes + CHUNKS_AT_ONCE * CHUNK_BYTES));
        }
        let (now, at_once) = (rows.bytes, CHUNKS_AT_ONCE * CHUNK_BYTES);
        let wanted = self.rows_wanted().clamp(now.saturating_sub(at_once), now + at_once);
        if wanted < now {
            self.rows.set_capacity(wanted);
        } else if rows.free_bytes < CHUNK_BYTES {
            let given = self.pages.reclaim(wanted - now);
            self.rows.grow_to(now + given);
        }
    }

    /// What rows are to have of what both have now, bytes.
    fn rows_wanted(&self) -> u64 {
        let chunks = (self.rows.bytes() + self.pages.bytes()) / CHUNK_BYTES;
        (chunks * self.part.load(Relaxed) / PARTS).max(1) * CHUNK_BYTES
    }
}

impl Reclaim for Balance {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut given = self.pages.drop_blocks(bytes);
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
    fn memory_goes_to_whoever_gains_clearly_more() {
        let of = |rows, pages| step(32, Gain { rows, pages });
        assert_eq!((of(0, 0), of(10_000, 9_000), of(9_000, 10_000)), (32, 32, 32));
        assert_eq!((of(10_000, 7_000), of(7_000, 10_000)), (33, 31));
        assert_eq!((of(10_000, 1_000), of(3_000, 10_000)), (36, 30));
        assert_eq!(step(PART_MIN, Gain { rows: 0, pages: 1 << 20 }), PART_MIN);
        assert_eq!(step(PART_MAX, Gain { rows: 1 << 20, pages: 0 }), PART_MAX);
    }
}

//! The index of frames: from the hash of a page's name to frame ids, read without a lock.
//!
//! The index has several parts, each a hash table that one thread at a time changes; the caller sees to that.
//! A table consists of buckets of one cache line: a *passed count* and [`SLOTS`] slots, each with a frame id
//! and a tag of the hash. An entry is in the first bucket with an empty slot, from its home bucket on, and
//! never moves. The passed count is the number of entries that passed this bucket because it was full. So a
//! search ends at the first bucket with a passed count of 0 (as in Folly's F14).
//!
//! A search returns hints: the caller compares the frame's name ([`crate::FramePool::find`]), and may or may
//! not see an entry that is inserted or removed meanwhile.
//!
//! Cost: a search reads one cache line, and one in ten a second one; 13 B an entry, charged before use (I10).

use std::num::NonZeroU32;

use base::{Account, Charge, Result, invariant};

use crate::frame_chunk::FrameId;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use crate::sync::{Mutex, lock};
use crate::words::{WORD_BYTES, Words};

/// Slots of a bucket.
const SLOTS: usize = 7;

/// Words of a bucket: its passed count and its slots.
const BUCKET_WORDS: usize = SLOTS + 1;

/// Entries for each bucket, at the target load.
const LOAD: usize = 5;

/// An index of frames by hash.
pub struct FrameIndex {
    words: Words,
    parts: usize,
    /// The number of buckets of each part.
    buckets: AtomicUsize,
    charge: Mutex<Charge>,
}

/// The number of buckets of a part for `entries` entries.
const fn buckets_for(entries: usize) -> usize {
    entries.div_ceil(LOAD) + 1
}

/// The word of a slot: the upper half of the hash as the tag, and the frame id.
const fn entry(hash: u64, id: FrameId) -> u64 {
    (hash >> 32) << 32 | id.get() as u64
}

impl FrameIndex {
    /// The most bytes of an index for an entry, without one more bucket for each part.
    pub const ENTRY_BYTES: usize = (BUCKET_WORDS * WORD_BYTES).div_ceil(LOAD);

    /// An empty index of `parts` parts for `entries` entries each. It reserves address space to grow to
    /// `entries_max` entries for each part.
    ///
    /// # Errors
    /// `Retry` if the budget or the address space has no room.
    pub fn new(
        account: &Account,
        parts: usize,
        entries: usize,
        entries_max: usize,
    ) -> Result<Self> {
        let parts = parts.max(1);
        let charge = account.charge(bytes_of(parts * buckets_for(entries)))?;
        let words = Words::reserve(parts * buckets_for(entries_max.max(entries)) * BUCKET_WORDS)?;
        let buckets_max = words.len() / BUCKET_WORDS / parts;
        let buckets = AtomicUsize::new(buckets_for(entries).min(buckets_max).max(1));
        Ok(Self { words, parts, buckets, charge: Mutex::new(charge) })
    }

    /// The number of buckets of a part, and the home bucket of `hash` among them.
    #[inline]
    fn home_bucket(&self, hash: u64) -> (usize, usize) {
        let buckets = self.buckets.load(Relaxed);
        let home = (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize;
        debug_assert!(home < buckets, "a part has at least one bucket");
        (buckets, home)
    }

    /// The buckets of `part`, from the home bucket of `hash` on.
    #[inline]
    fn buckets_from(&self, part: usize, hash: u64) -> impl Iterator<Item = &[AtomicU64]> {
        debug_assert!(part < self.parts, "a part belongs to the index");
        let (buckets, first) = self.home_bucket(hash);
        (0..buckets).map(move |step| {
            let bucket = first + step;
            let bucket = if bucket < buckets { bucket } else { bucket - buckets };
            self.words.get((part * buckets + bucket) * BUCKET_WORDS, BUCKET_WORDS)
        })
    }

    /// Calls `check` with the frame ids with the tag of `hash` until it returns a value; returns that value.
    #[inline]
    pub fn find<T>(
        &self,
        part: usize,
        hash: u64,
        mut check: impl FnMut(FrameId) -> Option<T>,
    ) -> Option<T> {
        for bucket in self.buckets_from(part, hash) {
            let (passed, slots) = bucket.split_first()?;
            // All slots are compared before the first match is used: a branch for each slot would be
            // mispredicted.
            let mut matches = 0u32;
            for (number, slot) in slots.iter().enumerate() {
                matches |= u32::from(slot.load(Relaxed) >> 32 == hash >> 32) << number;
            }
            while matches != 0 {
                let slot = slots.get(matches.trailing_zeros() as usize)?;
                matches &= matches - 1;
                // Acquire: `check` sees all that was written before the entry was inserted.
                let id = NonZeroU32::new(slot.load(Acquire) as u32);
                if let Some(found) = id.and_then(&mut check) {
                    return Some(found);
                }
            }
            if passed.load(Relaxed) == 0 {
                return None;
            }
        }
        None
    }

    /// Prefetches the home bucket of `hash`.
    #[inline]
    pub fn prefetch(&self, part: usize, hash: u64) {
        let (buckets, first) = self.home_bucket(hash);
        self.words.prefetch((part * buckets + first) * BUCKET_WORDS);
    }

    /// Inserts an entry. Returns false if the part is full. Only for the thread that owns the part.
    pub fn insert(&self, part: usize, hash: u64, id: FrameId) -> bool {
        let insert = |bucket: &[AtomicU64]| {
            let empty = bucket.iter().skip(1).find(|slot| slot.load(Relaxed) == 0);
            empty.map(|slot| slot.store(entry(hash, id), Release)).is_some()
        };
        self.at_first(part, hash, insert, 1)
    }

    /// Removes an entry. Returns whether it existed. Only for the thread that owns the part.
    pub fn remove(&self, part: usize, hash: u64, id: FrameId) -> bool {
        let remove = |bucket: &[AtomicU64]| {
            let matches = |slot: &&AtomicU64| slot.load(Relaxed) == entry(hash, id);
            bucket.iter().skip(1).find(matches).map(|slot| slot.store(0, Relaxed)).is_some()
        };
        self.at_first(part, hash, remove, -1)
    }

    /// Changes the frame id of an entry. Returns whether the entry existed. Only for the thread that owns the
    /// part.
    pub fn replace(&self, part: usize, hash: u64, from: FrameId, to: FrameId) -> bool {
        let matches = |slot: &&AtomicU64| slot.load(Relaxed) == entry(hash, from);
        self.buckets_from(part, hash).any(|bucket| {
            let slot = bucket.iter().skip(1).find(matches);
            slot.map(|slot| slot.store(entry(hash, to), Release)).is_some()
        })
    }

    /// Calls `act` with the buckets from the home bucket on until it returns true, and adds `change` to the
    /// passed counts of the buckets before that one. Returns false if `act` always did.
    fn at_first(
        &self,
        part: usize,
        hash: u64,
        act: impl Fn(&[AtomicU64]) -> bool,
        change: i64,
    ) -> bool {
        let Some(passed) = self.buckets_from(part, hash).position(act) else { return false };
        for bucket in self.buckets_from(part, hash).take(passed) {
            if let Some(count) = bucket.first() {
                // Only the owner of the part changes the count, so a load and a store suffice.
                let before = count.load(Relaxed);
                let after = before.checked_add_signed(change);
                invariant!(after.is_some(), "every entry that passed a bucket was counted there");
                count.store(after.unwrap_or(0), Relaxed);
            }
        }
        true
    }

    /// The number of entries for which each part has buckets, at the target load.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.buckets.load(Relaxed).saturating_sub(1) * LOAD
    }

    /// Grows each part to `entries` entries, limited by the reserved address space, if it is smaller and the
    /// budget has room. Returns whether it grew; then the index is empty. Only for a thread that owns all
    /// parts.
    pub fn grow(&self, entries: usize) -> bool {
        let buckets_max = self.words.len() / BUCKET_WORDS / self.parts;
        let (old, new) = (self.buckets.load(Relaxed), buckets_for(entries).min(buckets_max));
        let missing = bytes_of(self.parts * new.saturating_sub(old));
        if new <= old || !lock(&self.charge).try_grow(missing) {
            return false;
        }
        for word in self.words.get(0, self.parts * old * BUCKET_WORDS) {
            word.store(0, Relaxed);
        }
        self.buckets.store(new, Release);
        true
    }
}

/// The bytes of `buckets` buckets.
const fn bytes_of(buckets: usize) -> u64 {
    (buckets * BUCKET_WORDS * WORD_BYTES) as u64
}

impl std::fmt::Debug for FrameIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrameIndex({} parts of {} buckets)", self.parts, self.buckets.load(Relaxed))
    }
}

#[cfg(test)]
mod tests;

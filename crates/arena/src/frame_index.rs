//! The index of named frames: from a hash to the places of frames, read without a lock.
//!
//! Parts, each with a table of its own, changed by one thread at a time: its owner sees to that. A table
//! is buckets of a cache line: how many entries went past it because it was full, and [`SLOTS`] slots, each
//! a place and a tag of the hash. An entry lies in the first bucket from its own on that has room, and
//! never moves, so a search ends at the first bucket that nothing went past (F14 of Folly counts so).
//! What a search finds is a hint: places are compared by name ([`crate::FramePool::find`]), and an entry
//! that comes or goes meanwhile is seen or not.
//!
//! Cost: a search touches one line, one in ten a second one; 13 B an entry, charged before (I10).

use std::num::NonZeroU32;

use base::{Account, Charge, Result};

use crate::frame_chunk::FrameId;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use crate::sync::{Mutex, lock};
use crate::words::{WORD_BYTES, Words};

/// Entries of a bucket, and the words of a bucket: the count of what went past, and they.
const SLOTS: usize = 7;
const BUCKET_WORDS: usize = SLOTS + 1;

/// There is a bucket for this many entries.
const LOAD: usize = 5;

/// An index of frames.
pub struct FrameIndex {
    words: Words,
    parts: usize,
    /// The buckets of each part.
    buckets: AtomicUsize,
    charge: Mutex<Charge>,
}

/// The buckets of a part of `entries` entries.
const fn buckets_for(entries: usize) -> usize {
    entries.div_ceil(LOAD) + 1
}

/// What a slot of this hash holds for `place`.
const fn entry(hash: u64, place: FrameId) -> u64 {
    (hash >> 32) << 32 | place.get() as u64
}

impl FrameIndex {
    /// What an index takes for an entry, at most and but for a bucket a part, bytes.
    pub const ENTRY_BYTES: usize = (BUCKET_WORDS * WORD_BYTES).div_ceil(LOAD);

    /// An empty index of so many parts of `entries` entries each, in address space for `entries_max`.
    ///
    /// # Errors
    /// `Retry` where there is no memory for the buckets, or no address space for them.
    pub fn new(
        account: &Account,
        parts: usize,
        entries: usize,
        entries_max: usize,
    ) -> Result<Self> {
        let parts = parts.max(1);
        let charge = account.charge(bytes_of(parts * buckets_for(entries)))?;
        let words = Words::reserve(parts * buckets_for(entries_max.max(entries)) * BUCKET_WORDS)?;
        let most = words.len() / BUCKET_WORDS / parts;
        let buckets = AtomicUsize::new(buckets_for(entries).min(most).max(1));
        Ok(Self { words, parts, buckets, charge: Mutex::new(charge) })
    }

    /// The buckets of `part` from that of `hash` on, in turn.
    #[inline]
    fn buckets_from(&self, part: usize, hash: u64) -> impl Iterator<Item = &[AtomicU64]> {
        let buckets = self.buckets.load(Relaxed);
        let first = (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize;
        (0..buckets).map(move |step| {
            let bucket = first + step;
            let bucket = if bucket < buckets { bucket } else { bucket - buckets };
            self.words.get((part * buckets + bucket) * BUCKET_WORDS, BUCKET_WORDS)
        })
    }

    /// Has `look` look at the places whose tag is that of `hash`, until it finds what it looks for.
    #[inline]
    pub fn find<T>(
        &self,
        part: usize,
        hash: u64,
        mut look: impl FnMut(FrameId) -> Option<T>,
    ) -> Option<T> {
        for bucket in self.buckets_from(part, hash) {
            let (past, slots) = bucket.split_first()?;
            // All slots are looked at before any is gone on with: which it is, no processor guesses.
            let mut like = 0u32;
            for (number, slot) in slots.iter().enumerate() {
                like |= u32::from(slot.load(Relaxed) >> 32 == hash >> 32) << number;
            }
            while like != 0 {
                let slot = slots.get(like.trailing_zeros() as usize)?;
                like &= like - 1;
                // Acquire: whatever was written before the entry was.
                let place = NonZeroU32::new(slot.load(Acquire) as u32);
                if let Some(found) = place.and_then(&mut look) {
                    return Some(found);
                }
            }
            if past.load(Relaxed) == 0 {
                return None;
            }
        }
        None
    }

    /// Asks the processor for what a search of this hash reads first.
    #[inline]
    pub fn prefetch(&self, part: usize, hash: u64) {
        let buckets = self.buckets.load(Relaxed);
        let first = (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize;
        self.words.prefetch((part * buckets + first) * BUCKET_WORDS);
    }

    /// Adds an entry; false where the part is full. For the part's owner.
    pub fn insert(&self, part: usize, hash: u64, place: FrameId) -> bool {
        let room = |bucket: &[AtomicU64]| {
            let free = bucket.iter().skip(1).find(|slot| slot.load(Relaxed) == 0);
            free.map(|slot| slot.store(entry(hash, place), Release)).is_some()
        };
        self.at_first(part, hash, room, 1)
    }

    /// Removes an entry; whether it was there. For the part's owner.
    pub fn remove(&self, part: usize, hash: u64, place: FrameId) -> bool {
        let there = |bucket: &[AtomicU64]| {
            let own = |slot: &&AtomicU64| slot.load(Relaxed) == entry(hash, place);
            bucket.iter().skip(1).find(own).map(|slot| slot.store(0, Relaxed)).is_some()
        };
        self.at_first(part, hash, there, -1)
    }

    /// Has an entry lead to another place; whether it was there. For the part's owner.
    pub fn replace(&self, part: usize, hash: u64, from: FrameId, to: FrameId) -> bool {
        let own = |slot: &&AtomicU64| slot.load(Relaxed) == entry(hash, from);
        self.buckets_from(part, hash).any(|bucket| {
            let slot = bucket.iter().skip(1).find(own);
            slot.map(|slot| slot.store(entry(hash, to), Release)).is_some()
        })
    }

    /// Does `act` to the first bucket where it does something, and adds `past` to the counts of those
    /// before it; whether there is one.
    fn at_first(
        &self,
        part: usize,
        hash: u64,
        act: impl Fn(&[AtomicU64]) -> bool,
        past: i64,
    ) -> bool {
        let Some(passed) = self.buckets_from(part, hash).position(act) else { return false };
        for bucket in self.buckets_from(part, hash).take(passed) {
            if let Some(count) = bucket.first() {
                // Its owner alone changes it.
                count.store(count.load(Relaxed).wrapping_add_signed(past), Relaxed);
            }
        }
        true
    }

    /// How many entries each part has room for.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.buckets.load(Relaxed).saturating_sub(1) * LOAD
    }

    /// Makes room for `entries` entries in each part, as far as there is memory, where there is less;
    /// whether it did, and is empty now. For whoever owns all parts.
    pub fn grow(&self, entries: usize) -> bool {
        let most = self.words.len() / BUCKET_WORDS / self.parts;
        let (now, then) = (self.buckets.load(Relaxed), buckets_for(entries).min(most));
        let missing = bytes_of(self.parts * then.saturating_sub(now));
        if then <= now || !lock(&self.charge).try_grow(missing) {
            return false;
        }
        for word in self.words.get(0, self.parts * now * BUCKET_WORDS) {
            word.store(0, Relaxed);
        }
        self.buckets.store(then, Release);
        true
    }
}

/// What `buckets` take, bytes.
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

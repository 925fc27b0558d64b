//! Buckets of tags: a hash index from keys that lie elsewhere to their places, whose readers take
//! no lock and whose changes tell late writers that they are late.
//!
//! A bucket is one cache line: a version and [`SLOTS`] slots, each a place, a tag of the hash and a
//! heat. The version is a sequence lock: odd while the bucket is changed, another even number after
//! each change. A reader looks at what the slots name and counts it for nothing unless the version
//! stayed ([`TagBuckets::find`]); what lies at a place may only be overwritten once no slot names it.
//! The version is also the bucket's *generation*: who made something out of data that it read after
//! it took [`TagBuckets::bucket`] inserts it only if nothing changed since
//! ([`TagBuckets::insert`]), and who changes the data says so by [`TagBuckets::invalidate`]. What is forgotten
//! is *stale*: no reader finds it, but its slot and heat stay, until it is renewed ([`TagBuckets::renew`]),
//! another entry takes the slot, or it is removed. A stale entry may also stand for one that there was
//! none of yet ([`TagBuckets::note_miss`]): whoever has it to give can tell that it is wanted.
//!
//! Buckets are as many as entries need: one is split in two at a time (linear hashing: Litwin, 1980),
//! under its own lock. A full bucket loses its coldest entry to a new one. Bits of the hash above the
//! least number of buckets are the tag, so a split needs no key.
//!
//! Concurrency: `find` is loads alone, and one compare-exchange where an entry gets warmer; the
//! rest locks one bucket for some stores. Memory is charged in steps before it is used (I10).
//! Cost: a cache line for 2.5 entries. Buckets that are not split yet have up to twice as many as
//! those that are, and one entry in a hundred finds its bucket full.

mod slot;
mod waiting;

use base::{Account, Charge, Result};

use slot::Slot;
pub use slot::{Awaited, Heat, Position, TagEntry};

use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU64, AtomicUsize, fence};
use crate::sync::{CachePadded, Mutex, lock, spin_loop, yield_now};
use crate::words::{WORD_BYTES, Words};

/// Entries of a bucket, and the words of a bucket: its version and they.
const SLOTS: usize = 7;
const BUCKET_WORDS: usize = SLOTS + 1;

/// The least number of buckets, as a power of two; its bits of a hash are in no tag. Few under Miri, to which
/// each look into one is one at all.
const LEVEL_MIN: u32 = match (cfg!(all(test, feature = "shuttle")), cfg!(miri)) {
    (true, _) => 0,
    (false, true) => 4,
    (false, false) => 10,
};
const BUCKETS_MIN: usize = 1 << LEVEL_MIN;

/// The most buckets: beyond it a tag would not tell how to split them.
const BUCKETS_MAX: usize = 1 << 30;

/// There are buckets enough for this many entries each, times two.
const HALF_LOAD: usize = 5;

/// Buckets charged at a time.
const STEP: usize = BUCKETS_MIN;

/// Looks of a reader at a bucket that keeps changing before it goes without.
const TRIES: usize = 4;

/// Looks at a locked bucket before the core is given away.
const SPINS: u32 = 64;

/// An index of tags. Shared by any number of threads.
pub struct TagBuckets {
    words: Words,
    /// How many buckets there are. Changed under the lock of the bucket that is split.
    count: AtomicUsize,
    /// Entries that are found, about.
    len: CachePadded<AtomicU64>,
    /// Stale ones, about.
    stale: CachePadded<AtomicU64>,
    /// One bucket is split at a time.
    growth: Mutex<Charge>,
    buckets_max: usize,
}

/// A bucket at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    number: usize,
    version: u64,
}

/// What [`TagBuckets::remove`] removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// There was none.
    Nothing,
    /// One that was forgotten.
    Stale,
    /// One that would have been found; its bucket from then on.
    Entry(Bucket),
}

/// The tag of a hash: the bits above those that name one of the least buckets.
const fn tag_of(hash: u64) -> u64 {
    slot::tag_of(hash, LEVEL_MIN)
}

/// A bucket locked for changes; `version` is the even one from before.
struct Locked<'a> {
    words: &'a [AtomicU64],
    version: u64,
    changed: bool,
}

impl Locked<'_> {
    fn set(&mut self, slot: &AtomicU64, to: u64) {
        self.changed = true;
        slot.store(to, Relaxed);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let version = if self.changed { self.version + 2 } else { self.version };
        if let Some(word) = self.words.first() {
            word.store(version, Release);
        }
    }
}

impl TagBuckets {
    /// An empty index of at most about `entries_max` entries.
    ///
    /// # Errors
    /// `Retry` where there is no memory for the least number of buckets, or no address space.
    pub fn new(account: &Account, entries_max: usize) -> Result<Self> {
        let buckets_max = (entries_max.saturating_mul(2) / HALF_LOAD)
            .next_multiple_of(STEP)
            .clamp(BUCKETS_MIN, BUCKETS_MAX);
        let charge = account.charge(bytes_of(BUCKETS_MIN))?;
        let words = Words::reserve(buckets_max * BUCKET_WORDS)?;
        let buckets_max = buckets_max.min(words.len() / BUCKET_WORDS);
        Ok(Self {
            words,
            count: AtomicUsize::new(BUCKETS_MIN),
            len: CachePadded::default(),
            stale: CachePadded::default(),
            growth: Mutex::new(charge),
            buckets_max,
        })
    }

    /// Entries that are found, about: other threads are adding and removing some.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.len.0.load(Relaxed) as i64).max(0) as usize
    }

    /// Stale entries, about.
    #[must_use]
    pub fn stale_len(&self) -> usize {
        (self.stale.0.load(Relaxed) as i64).max(0) as usize
    }

    /// Whether none is found, about.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory it takes, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        lock(&self.growth).bytes()
    }

    /// The bucket that `hash` is in while there are `count`.
    #[inline]
    fn number_in(hash: u64, count: usize) -> usize {
        let level = 1usize << count.ilog2();
        let number = hash as usize & (2 * level - 1);
        if number < count { number } else { number & (level - 1) }
    }

    #[inline]
    fn number(&self, hash: u64) -> usize {
        Self::number_in(hash, self.count.load(Acquire))
    }

    #[inline]
    fn words_of(&self, number: usize) -> &[AtomicU64] {
        self.words.get(number * BUCKET_WORDS, BUCKET_WORDS)
    }

    /// Asks the processor for the bucket of `hash`.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.words.prefetch(self.number(hash) * BUCKET_WORDS);
    }

    /// Shows `ask` the places of entries whose tag is that of `hash`: a hint, for who will look for one
    /// soon.
    #[inline]
    pub fn positions(&self, hash: u64, ask: impl FnMut(Position)) {
        let tag = tag_of(hash);
        let slots = self.words_of(self.number(hash)).iter().skip(1);
        let slots = slots.map(|word| Slot(word.load(Relaxed)));
        slots.filter_map(|slot| slot.valid_position(tag)).for_each(ask);
    }

    /// The bucket of `hash` now: to be taken before the data is read that an insert is made of.
    /// `None` while it is changed.
    #[inline]
    #[must_use]
    pub fn bucket(&self, hash: u64) -> Option<Bucket> {
        let number = self.number(hash);
        let version = self.words_of(number).first()?.load(Acquire);
        (version.is_multiple_of(2)).then_some(Bucket { number, version })
    }

    /// Has `look` look at the places of entries whose tag is that of `hash`, until it finds what it
    /// looks for; an entry that is found gets warmer.
    ///
    /// What lies at a place may be anything, and may change while it is looked at: `look` must
    /// tell by its key, take any bytes, and may be called again. What it found counts only where
    /// this returns it.
    #[inline]
    pub fn find<T>(&self, hash: u64, mut look: impl FnMut(Position) -> Option<T>) -> Option<T> {
        let tag = tag_of(hash);
        for _ in 0..TRIES {
            let (version, slots) = self.words_of(self.number(hash)).split_first()?;
            let before = version.load(Acquire);
            if !before.is_multiple_of(2) {
                spin_loop();
                continue;
            }
            let mut found = None;
            for word in slots {
                let slot = Slot(word.load(Relaxed));
                let Some(place) = slot.valid_position(tag) else { continue };
                if let Some(what) = look(place) {
                    found = Some((what, word, slot));
                    break;
                }
            }
            // Pairs with the fence of `lock`: who saw a byte that was written after a change also
            // sees the version of that change.
            fence(Acquire);
            if version.load(Relaxed) != before {
                continue;
            }
            let (what, word, slot) = found?;
            if let Some(warmer) = slot.warmer() {
                // Where the slot changed meanwhile there is nothing to warm.
                let _ = word.compare_exchange(slot.0, warmer.0, Relaxed, Relaxed);
            }
            return Some(what);
        }
        None
    }

    /// Locks bucket `number`.
    fn lock(&self, number: usize) -> Option<Locked<'_>> {
        let words = self.words_of(number);
        let version = words.first()?;
        let mut spins = 0u32;
        loop {
            let seen = version.load(Relaxed);
            if seen.is_multiple_of(2)
                && version.compare_exchange_weak(seen, seen + 1, Acquire, Relaxed).is_ok()
            {
                // The odd version is there before anything that is changed under it, and before
                // what is written where it removes an entry.
                fence(Release);
                return Some(Locked { words, version: seen, changed: false });
            }
            spins += 1;
            if spins.is_multiple_of(SPINS) { yield_now() } else { spin_loop() }
        }
    }

    /// Locks the bucket of `hash`.
    fn lock_of(&self, hash: u64) -> Option<Locked<'_>> {
        loop {
            let number = self.number(hash);
            let locked = self.lock(number)?;
            // A bucket is split under its own lock: it is the right one for as long as this is.
            if self.number(hash) == number {
                return Some(locked);
            }
        }
    }

    /// Inserts the entry at `place`, where nothing changed in its bucket since `bucket` was taken;
    /// whether it did. An entry of the same tag gives way, and in a full bucket the coldest one.
    ///
    /// What lies at `place` was written by this thread, and is not written again while it is in.
    pub fn insert(&self, hash: u64, bucket: Bucket, place: Position, heat: Heat) -> bool {
        let Some(mut locked) = self.lock_unchanged(hash, bucket) else { return false };
        let words = locked.words;
        let tag = tag_of(hash);
        let rank = |word: &AtomicU64| {
            let slot = Slot(word.load(Relaxed));
            match slot.position() {
                Some(_) if slot.tag() == tag => 0,
                None => 1,
                Some(_) if slot.is_expected() => 2,
                Some(_) => 3 + slot.heat(),
            }
        };
        let Some(word) = words.iter().skip(1).min_by_key(|word| rank(word)) else { return false };
        let old = Slot(word.load(Relaxed));
        locked.set(word, Slot::new(place, tag, heat).0);
        drop(locked);
        if old.position().is_none() || old.is_stale() {
            self.len.0.fetch_add(1, Relaxed);
        }
        if old.is_stale() {
            self.stale.0.fetch_sub(1, Relaxed);
        }
        true
    }

    /// Locks the bucket of `hash`, where nothing changed in it since `bucket` was taken.
    fn lock_unchanged(&self, hash: u64, bucket: Bucket) -> Option<Locked<'_>> {
        let words = self.words_of(bucket.number);
        let version = words.first()?;
        version.compare_exchange(bucket.version, bucket.version + 1, Acquire, Relaxed).ok()?;
        fence(Release);
        let locked = Locked { words, version: bucket.version, changed: false };
        (self.number(hash) == bucket.number).then_some(locked)
    }

    /// Has what has the tag of `hash` be found no more, and has every insert refused whose bucket was
    /// taken before; how many entries became stale.
    ///
    /// Whoever changes the data says so before readers can see the change, and after readers that
    /// take their bucket from then on can find out that it is there.
    pub fn invalidate(&self, hash: u64) -> usize {
        let tag = tag_of(hash);
        let is_it = |word: &AtomicU64| Slot(word.load(Relaxed)).valid_position(tag).is_some();
        loop {
            let number = self.number(hash);
            let Some((version, slots)) = self.words_of(number).split_first() else { return 0 };
            let before = version.load(Acquire);
            if !before.is_multiple_of(2) || slots.iter().any(is_it) {
                break;
            }
            // Nothing to forget: another version is all that it takes.
            let bumped = version.compare_exchange(before, before + 2, AcqRel, Relaxed).is_ok();
            if bumped && self.number(hash) == number {
                return 0;
            }
        }
        let Some(mut locked) = self.lock_of(hash) else { return 0 };
        locked.changed = true;
        let mut gone = 0;
        for word in locked.words.iter().skip(1).filter(|word| is_it(word)) {
            word.store(Slot(word.load(Relaxed)).stale().0, Relaxed);
            gone += 1;
        }
        drop(locked);
        self.len.0.fetch_sub(gone as u64, Relaxed);
        self.stale.0.fetch_add(gone as u64, Relaxed);
        gone
    }

    /// The entry at `place`; `None` where there is none.
    #[must_use]
    pub fn entry(&self, hash: u64, place: Position) -> Option<TagEntry> {
        let slots = self.words_of(self.number(hash)).iter().skip(1);
        let mut slots = slots.map(|word| Slot(word.load(Relaxed)));
        let slot = slots.find(|slot| slot.position() == Some(place))?;
        Some(TagEntry { heat: slot.heat(), is_stale: slot.is_stale() })
    }

    /// Moves the entry at `from` to `to`, stale or not; whether there was one. From then on no reader counts
    /// what it sees at `from`.
    pub fn replace(&self, hash: u64, from: Position, to: Position, heat: Heat) -> bool {
        let Some((mut locked, word)) = self.lock_entry(hash, from) else { return false };
        let is_stale = Slot(word.load(Relaxed)).is_stale();
        let new = Slot::new(to, tag_of(hash), heat);
        locked.set(word, if is_stale { new.stale().0 } else { new.0 });
        true
    }

    /// Removes the entry at `from`. From then on no reader counts what it sees there.
    pub fn remove(&self, hash: u64, from: Position) -> Removed {
        let Some((mut locked, word)) = self.lock_entry(hash, from) else { return Removed::Nothing };
        let is_stale = Slot(word.load(Relaxed)).is_stale();
        locked.set(word, 0);
        let after = Bucket { number: self.number(hash), version: locked.version + 2 };
        drop(locked);
        let count = if is_stale { &self.stale } else { &self.len };
        count.0.fetch_sub(1, Relaxed);
        if is_stale { Removed::Stale } else { Removed::Entry(after) }
    }

    /// Whether nothing changed in the bucket of `hash` since it was `bucket`.
    #[must_use]
    pub fn is_unchanged(&self, hash: u64, bucket: Bucket) -> bool {
        self.bucket(hash) == Some(bucket)
    }

    /// Locks the bucket of the entry at `place`; none where there is none.
    fn lock_entry(&self, hash: u64, place: Position) -> Option<(Locked<'_>, &AtomicU64)> {
        let locked = self.lock_of(hash)?;
        let is_it = |word: &&AtomicU64| Slot(word.load(Relaxed)).position() == Some(place);
        let word = locked.words.iter().skip(1).find(is_it)?;
        Some((locked, word))
    }

    /// Splits a bucket or two where there are more entries than buckets are for, and memory for
    /// more of them.
    pub fn grow(&self) {
        for _ in 0..2 {
            let count = self.count.load(Relaxed);
            let entries = self.len() + self.stale_len();
            if entries.saturating_mul(2) <= count * HALF_LOAD || count >= self.buckets_max {
                return;
            }
            self.split();
        }
    }

    fn split(&self) {
        let mut charge = lock(&self.growth);
        let count = self.count.load(Relaxed);
        if count >= self.buckets_max
            || bytes_of(count + 1) > charge.bytes() && !charge.try_grow(bytes_of(STEP))
        {
            return;
        }
        let level = count.ilog2();
        let Some(mut old) = self.lock(count & !(1 << level)) else { return };
        let Some(mut new) = self.lock(count) else { return };
        // The bit of the hash that tells the two apart, where the tag has it.
        let bit = 1u64 << (level - LEVEL_MIN);
        for (from, to) in old.words.iter().zip(new.words).skip(1) {
            let slot = Slot(from.load(Relaxed));
            if slot.position().is_some() && slot.tag() & bit != 0 {
                new.set(to, slot.0);
                old.set(from, 0);
            }
        }
        self.count.store(count + 1, Release);
    }
}

/// What `buckets` take, bytes.
const fn bytes_of(buckets: usize) -> u64 {
    (buckets * BUCKET_WORDS * WORD_BYTES) as u64
}

impl std::fmt::Debug for TagBuckets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TagBuckets({} in {})", self.len(), self.count.load(Relaxed))
    }
}

#[cfg(test)]
mod tests;

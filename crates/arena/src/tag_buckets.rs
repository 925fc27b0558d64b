//! Tag buckets: a hash index from keys, which are stored elsewhere, to positions. Readers take no lock.
//!
//! A bucket is one cache line: a version and [`SLOTS`] slots. A slot holds the position of an entry, a *tag*
//! (bits of the key's hash) and a heat. The version is a sequence lock: odd while a writer changes the
//! bucket, and a new even number after each change. A reader inspects the data at the positions whose tags
//! match, and discards the result if the version changed meanwhile ([`TagBuckets::find`]). The data at a
//! position may be overwritten only after no slot refers to it.
//!
//! The version also detects late inserts. A thread that computes an entry from other data takes
//! [`TagBuckets::bucket`] before it reads that data; [`TagBuckets::insert`] refuses if the bucket has changed
//! since. A writer that changes the data calls [`TagBuckets::invalidate`], which changes the version and
//! makes the key's entry *stale*: no reader finds it, but its slot and heat stay. A stale entry ends when it
//! is renewed ([`TagBuckets::renew`]), when another entry takes its slot, or when it is removed. A stale
//! entry may also be a *miss note*, which has no position ([`TagBuckets::note_miss`]): it tells a later
//! writer of the key that readers want it.
//!
//! The number of buckets follows the number of entries: [`TagBuckets::grow`] splits one bucket at a time
//! (linear hashing: Litwin, 1980), under that bucket's lock. The tag contains the bits of the hash that a
//! split needs. An insert into a full bucket replaces its coldest entry.
//!
//! Concurrency: `find` only loads, plus one compare-exchange if it raises a heat; all other operations lock
//! one bucket for a few stores. Memory is charged in steps before it is used (I10). Cost: a cache line for
//! 2.5 entries at the target load. Buckets that are not split yet have up to twice the load of the others,
//! and one insert in a hundred finds its bucket full.

mod slot;
mod stale;

use base::{Account, Charge, Result, invariant};

use slot::Slot;
pub use slot::{Awaited, Heat, Position, TagEntry};

use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU64, AtomicUsize, fence};
use crate::sync::{CachePadded, Mutex, lock, spin_loop, yield_now};
use crate::words::{WORD_BYTES, Words};

/// Slots of a bucket.
const SLOTS: usize = 7;

/// Words of a bucket: its version and its slots.
const BUCKET_WORDS: usize = SLOTS + 1;

/// Log2 of the smallest number of buckets. The tag omits that many low bits of the hash. Few under Miri, for
/// which a reference to one bucket is one to all.
const LEVEL_MIN: u32 = match (cfg!(all(test, feature = "shuttle")), cfg!(miri)) {
    (true, _) => 0,
    (false, true) => 4,
    (false, false) => 10,
};
const BUCKETS_MIN: usize = 1 << LEVEL_MIN;

/// The most buckets: with more, a tag would lack the bit of the hash that a split needs.
const BUCKETS_MAX: usize = 1 << 30;

// Under shuttle the index stays small.
const _: () = assert!(
    BUCKETS_MAX.ilog2() <= LEVEL_MIN + slot::TAG_BITS || cfg!(all(test, feature = "shuttle"))
);

/// Twice the entries for each bucket above which the index grows.
const HALF_LOAD: usize = 5;

/// The number of buckets that are charged at once.
const STEP: usize = BUCKETS_MIN;

/// Tries of a reader on a bucket that keeps changing; then it finds nothing.
const TRIES: usize = 4;

/// Checks of a locked bucket before the thread yields its core.
const SPINS: u32 = 64;

/// A hash index of tags. Any number of threads share it.
pub struct TagBuckets {
    words: Words,
    /// The number of buckets. Changed under the lock of the bucket that is split.
    count: AtomicUsize,
    /// Valid entries, approximately.
    len: CachePadded<AtomicU64>,
    /// Stale entries and miss notes, approximately.
    stale: CachePadded<AtomicU64>,
    /// Charge of the buckets. Locked during a split: one at a time.
    growth: Mutex<Charge>,
    buckets_max: usize,
}

/// A bucket and its version at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    number: usize,
    version: u64,
}

/// The kind of entry that [`TagBuckets::remove`] removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// There was no entry at the position.
    Nothing,
    /// A stale entry.
    Stale,
    /// A valid entry. Holds the bucket with its version after the removal.
    Entry(Bucket),
}

/// The tag of a hash: bits above those that select one of the [`BUCKETS_MIN`] first buckets.
const fn tag_of(hash: u64) -> u64 {
    slot::tag_of(hash, LEVEL_MIN)
}

/// A locked bucket; `version` is the even one before the lock. Dropping it unlocks the bucket.
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
    /// An empty index for up to about `entries_max` entries.
    ///
    /// # Errors
    /// `Retry` if the budget or the address space has no room for the smallest number of buckets.
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

    /// The number of valid entries; approximate while other threads change entries.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.len.0.load(Relaxed) as i64).max(0) as usize
    }

    /// The number of stale entries and miss notes; approximate as [`TagBuckets::len`].
    #[must_use]
    pub fn stale_len(&self) -> usize {
        (self.stale.0.load(Relaxed) as i64).max(0) as usize
    }

    /// Whether there is no valid entry; approximate as [`TagBuckets::len`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes charged for the index.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        lock(&self.growth).bytes()
    }

    /// The number of the bucket of `hash` if there are `count` buckets.
    #[inline]
    fn number_in(hash: u64, count: usize) -> usize {
        let level = 1usize << count.ilog2();
        let number = hash as usize & (2 * level - 1);
        let number = if number < count { number } else { number & (level - 1) };
        debug_assert!(number < count, "a hash selects an existing bucket");
        number
    }

    #[inline]
    fn number(&self, hash: u64) -> usize {
        Self::number_in(hash, self.count.load(Acquire))
    }

    #[inline]
    fn words_of(&self, number: usize) -> &[AtomicU64] {
        debug_assert!(number < self.buckets_max, "every bucket lies within the address space");
        self.words.get(number * BUCKET_WORDS, BUCKET_WORDS)
    }

    /// Prefetches the bucket of `hash`.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.words.prefetch(self.number(hash) * BUCKET_WORDS);
    }

    /// Calls `visit` with the positions of the valid entries with the tag of `hash`. Only a hint, for
    /// prefetching.
    #[inline]
    pub fn positions(&self, hash: u64, visit: impl FnMut(Position)) {
        let tag = tag_of(hash);
        let slots = self.words_of(self.number(hash)).iter().skip(1);
        let slots = slots.map(|word| Slot(word.load(Relaxed)));
        slots.filter_map(|slot| slot.valid_position(tag)).for_each(visit);
    }

    /// The bucket of `hash` with its current version. Take it before reading the data from which an entry to
    /// insert is computed. `None` while a writer changes the bucket.
    #[inline]
    #[must_use]
    pub fn bucket(&self, hash: u64) -> Option<Bucket> {
        let number = self.number(hash);
        let version = self.words_of(number).first()?.load(Acquire);
        version.is_multiple_of(2).then_some(Bucket { number, version })
    }

    /// Calls `read` with the positions of valid entries with the tag of `hash` until it returns a value,
    /// returns that value, and raises the entry's heat.
    ///
    /// The data at a position may be arbitrary bytes, and may change while `read` reads it. So `read` must
    /// accept any bytes, must compare the key, and may be called again for the same position. Only a value
    /// that `find` returns is valid.
    #[inline]
    pub fn find<T>(&self, hash: u64, mut read: impl FnMut(Position) -> Option<T>) -> Option<T> {
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
                let Some(position) = slot.valid_position(tag) else { continue };
                if let Some(value) = read(position) {
                    found = Some((value, word, slot));
                    break;
                }
            }
            // Pairs with the fence in `lock`: a reader that saw a byte written after a change of the bucket
            // also sees the version of that change.
            fence(Acquire);
            if version.load(Relaxed) != before {
                continue;
            }
            let (value, word, slot) = found?;
            if let Some(warmer) = slot.warmer() {
                // Fails if the slot changed meanwhile: then there is no heat to raise.
                let _ = word.compare_exchange(slot.0, warmer.0, Relaxed, Relaxed);
            }
            return Some(value);
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
                // Orders the odd version before the changes of the slots, and before later stores at
                // positions that these changes free.
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
            // A bucket is split under its own lock, so from here on `number` stays the bucket of `hash`.
            if self.number(hash) == number {
                return Some(locked);
            }
        }
    }

    /// Inserts the entry at `position` if its bucket has not changed since `bucket` was taken. Returns
    /// whether it did. It replaces an entry with the same tag, or else, in a full bucket, a miss note or the
    /// coldest entry.
    ///
    /// This thread wrote the data at `position`, and nobody overwrites it while a slot refers to it.
    pub fn insert(&self, hash: u64, bucket: Bucket, position: Position, heat: Heat) -> bool {
        let Some(mut locked) = self.lock_unchanged(hash, bucket) else { return false };
        let words = locked.words;
        let tag = tag_of(hash);
        let rank = |word: &AtomicU64| {
            let slot = Slot(word.load(Relaxed));
            match slot.position() {
                Some(_) if slot.tag() == tag => 0,
                None => 1,
                Some(_) if slot.is_miss_note() => 2,
                Some(_) => 3 + slot.heat(),
            }
        };
        let Some(word) = words.iter().skip(1).min_by_key(|word| rank(word)) else { return false };
        let old = Slot(word.load(Relaxed));
        locked.set(word, Slot::new(position, tag, heat).0);
        drop(locked);
        if old.position().is_none() || old.is_stale() {
            self.len.0.fetch_add(1, Relaxed);
        }
        if old.is_stale() {
            self.stale.0.fetch_sub(1, Relaxed);
        }
        true
    }

    /// Locks `bucket` if it has not changed since it was taken and still is the bucket of `hash`.
    fn lock_unchanged(&self, hash: u64, bucket: Bucket) -> Option<Locked<'_>> {
        debug_assert!(
            bucket.version.is_multiple_of(2),
            "a bucket is taken while nobody changes it"
        );
        let words = self.words_of(bucket.number);
        let version = words.first()?;
        version.compare_exchange(bucket.version, bucket.version + 1, Acquire, Relaxed).ok()?;
        fence(Release);
        let locked = Locked { words, version: bucket.version, changed: false };
        (self.number(hash) == bucket.number).then_some(locked)
    }

    /// Makes the valid entries with the tag of `hash` stale, and makes every insert fail for which
    /// [`TagBuckets::bucket`] was called before. Returns the number of entries that became stale.
    ///
    /// A writer that changes the data of a key calls this after its change can be detected by a thread that
    /// takes the bucket, and before readers use the changed data.
    pub fn invalidate(&self, hash: u64) -> usize {
        let tag = tag_of(hash);
        let matches = |word: &AtomicU64| Slot(word.load(Relaxed)).valid_position(tag).is_some();
        loop {
            let number = self.number(hash);
            let Some((version, slots)) = self.words_of(number).split_first() else { return 0 };
            let before = version.load(Acquire);
            if !before.is_multiple_of(2) || slots.iter().any(matches) {
                break;
            }
            // No entry to make stale: changing the version is enough.
            let bumped = version.compare_exchange(before, before + 2, AcqRel, Relaxed).is_ok();
            if bumped && self.number(hash) == number {
                return 0;
            }
        }
        let Some(mut locked) = self.lock_of(hash) else { return 0 };
        locked.changed = true;
        let mut invalidated = 0;
        for word in locked.words.iter().skip(1).filter(|word| matches(word)) {
            word.store(Slot(word.load(Relaxed)).stale().0, Relaxed);
            invalidated += 1;
        }
        drop(locked);
        self.len.0.fetch_sub(invalidated, Relaxed);
        self.stale.0.fetch_add(invalidated, Relaxed);
        invalidated as usize
    }

    /// The entry at `position`, valid or stale.
    #[must_use]
    pub fn entry(&self, hash: u64, position: Position) -> Option<TagEntry> {
        let slots = self.words_of(self.number(hash)).iter().skip(1);
        let mut slots = slots.map(|word| Slot(word.load(Relaxed)));
        let slot = slots.find(|slot| slot.position() == Some(position))?;
        Some(TagEntry { heat: slot.heat(), is_stale: slot.is_stale() })
    }

    /// Moves the entry at `from`, valid or stale, to `to`. Returns false if there is none. After this call no
    /// reader returns data that it reads at `from`.
    pub fn replace(&self, hash: u64, from: Position, to: Position, heat: Heat) -> bool {
        let Some((mut locked, word)) = self.lock_entry(hash, from) else { return false };
        let is_stale = Slot(word.load(Relaxed)).is_stale();
        let new = Slot::new(to, tag_of(hash), heat);
        locked.set(word, if is_stale { new.stale().0 } else { new.0 });
        true
    }

    /// Removes the entry at `from`. After this call no reader returns data that it reads there.
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

    /// Whether the bucket of `hash` has not changed since `bucket` was taken.
    #[must_use]
    pub fn is_unchanged(&self, hash: u64, bucket: Bucket) -> bool {
        self.bucket(hash) == Some(bucket)
    }

    /// Locks the bucket of the entry at `position`; `None` if there is no such entry.
    fn lock_entry(&self, hash: u64, position: Position) -> Option<(Locked<'_>, &AtomicU64)> {
        let locked = self.lock_of(hash)?;
        let matches = |word: &&AtomicU64| Slot(word.load(Relaxed)).position() == Some(position);
        let word = locked.words.iter().skip(1).find(matches)?;
        Some((locked, word))
    }

    /// Splits up to two buckets if the load is above the target, as far as the budget has room.
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
        invariant!(
            bytes_of(count + 1) <= charge.bytes(),
            "a bucket is charged before it is used (I10)"
        );
        let level = count.ilog2();
        let Some(mut old) = self.lock(count & !(1 << level)) else { return };
        let Some(mut new) = self.lock(count) else { return };
        // The bit of the hash by which the two buckets differ, as a bit of the tag.
        let bit = 1u64 << (level - LEVEL_MIN);
        let is_empty = new.words.iter().skip(1).all(|word| word.load(Relaxed) == 0);
        invariant!(is_empty, "a new bucket is empty");
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

/// The bytes of `buckets` buckets.
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

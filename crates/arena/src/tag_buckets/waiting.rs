//! Entries that wait: for another version where one was forgotten, for a first one where there is none yet.

use super::slot::{Awaited, Slot};
use super::{Bucket, Locked, Position, TagBuckets, tag_of};
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed};

impl TagBuckets {
    /// Notes that an entry is asked for that there is none of, where its bucket has room for the note;
    /// whether that is news. One that was expected before gets warmer.
    pub fn note_miss(&self, hash: u64) -> bool {
        let (number, tag) = (self.number(hash), tag_of(hash));
        let Some((version, slots)) = self.words_of(number).split_first() else { return false };
        let before = version.load(Acquire);
        let mut room = None;
        for word in slots {
            let slot = Slot(word.load(Relaxed));
            if slot.position().is_none() {
                room = room.or(Some(word));
            } else if slot.tag() == tag {
                if let Some(warmer) = slot.warmer().filter(|_| slot.is_expected()) {
                    let _ = word.compare_exchange(slot.0, warmer.0, Relaxed, Relaxed);
                }
                return false;
            }
        }
        let Some(room) = room else { return false };
        // Whoever has the bucket does more than take a note.
        if !before.is_multiple_of(2)
            || version.compare_exchange(before, before + 1, Acquire, Relaxed).is_err()
        {
            return false;
        }
        // No reader finds it, so the version stays: nobody's fill is refused for it.
        let _locked = Locked { words: self.words_of(number), version: before, changed: false };
        let is_free = self.number(hash) == number && room.load(Relaxed) == 0;
        if is_free {
            room.store(Slot::expected(tag).0, Relaxed);
            self.stale.0.fetch_add(1, Relaxed);
        }
        is_free
    }

    /// The bucket of `hash`, as [`TagBuckets::bucket`], where it holds a stale entry of that tag, and
    /// what that waits for.
    #[must_use]
    pub fn awaited(&self, hash: u64) -> Option<(Bucket, Awaited)> {
        let bucket = self.bucket(hash)?;
        let tag = tag_of(hash);
        let slots = self.words_of(bucket.number).iter().skip(1);
        let mut slots = slots.map(|word| Slot(word.load(Relaxed)));
        let slot = slots.find(|slot| slot.is_stale_with_tag(tag))?;
        let awaited = match slot.is_expected() {
            true => Awaited::Expected(slot.heat()),
            false => Awaited::Version,
        };
        Some((bucket, awaited))
    }

    /// Removes the stale entry of that tag, if there is one.
    pub fn remove_stale(&self, hash: u64) {
        let Some(mut locked) = self.lock_of(hash) else { return };
        let tag = tag_of(hash);
        let is_it = |word: &&AtomicU64| Slot(word.load(Relaxed)).is_stale_with_tag(tag);
        if let Some(word) = locked.words.iter().skip(1).find(is_it) {
            locked.set(word, 0);
            self.stale.0.fetch_sub(1, Relaxed);
        }
    }

    /// As [`TagBuckets::insert`], in the place and with the heat of the stale entry of that tag; false
    /// where there is none.
    pub fn renew(&self, hash: u64, bucket: Bucket, place: Position) -> bool {
        let Some(mut locked) = self.lock_unchanged(hash, bucket) else { return false };
        let tag = tag_of(hash);
        let is_it = |word: &&AtomicU64| Slot(word.load(Relaxed)).is_stale_with_tag(tag);
        let Some(word) = locked.words.iter().skip(1).find(is_it) else { return false };
        let heat = Slot(word.load(Relaxed)).heat();
        locked.set(word, Slot::new(place, tag, heat).0);
        drop(locked);
        self.len.0.fetch_add(1, Relaxed);
        self.stale.0.fetch_sub(1, Relaxed);
        true
    }
}

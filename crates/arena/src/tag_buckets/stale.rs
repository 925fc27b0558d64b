//! Stale entries: invalidated ones, which wait for a new version, and miss notes, which wait for a first
//! entry.

use super::slot::{Awaited, Slot};
use super::{Bucket, Locked, Position, TagBuckets, tag_of};
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed};

impl TagBuckets {
    /// Notes that a lookup missed the key of `hash`, if its bucket has an empty slot. Returns whether the
    /// note is new; an existing note gets warmer.
    pub fn note_miss(&self, hash: u64) -> bool {
        let (number, tag) = (self.number(hash), tag_of(hash));
        let Some((version, slots)) = self.words_of(number).split_first() else { return false };
        let before = version.load(Acquire);
        let mut empty = None;
        for word in slots {
            let slot = Slot(word.load(Relaxed));
            if slot.position().is_none() {
                empty = empty.or(Some(word));
            } else if slot.tag() == tag {
                if let Some(warmer) = slot.warmer().filter(|_| slot.is_miss_note()) {
                    let _ = word.compare_exchange(slot.0, warmer.0, Relaxed, Relaxed);
                }
                return false;
            }
        }
        let Some(empty) = empty else { return false };
        // If another thread has the bucket locked, drop the note: it is not worth waiting for.
        if !before.is_multiple_of(2)
            || version.compare_exchange(before, before + 1, Acquire, Relaxed).is_err()
        {
            return false;
        }
        // No reader finds a note, so the version stays the same, and inserts computed meanwhile succeed.
        let _locked = Locked { words: self.words_of(number), version: before, changed: false };
        let is_free = self.number(hash) == number && empty.load(Relaxed) == 0;
        if is_free {
            empty.store(Slot::miss_note(tag).0, Relaxed);
            self.stale.0.fetch_add(1, Relaxed);
        }
        is_free
    }

    /// The bucket of `hash`, as [`TagBuckets::bucket`], and the entry that its stale entry with this tag
    /// waits for; `None` without such a stale entry.
    #[must_use]
    pub fn awaited(&self, hash: u64) -> Option<(Bucket, Awaited)> {
        let bucket = self.bucket(hash)?;
        let tag = tag_of(hash);
        let slots = self.words_of(bucket.number).iter().skip(1);
        let mut slots = slots.map(|word| Slot(word.load(Relaxed)));
        let slot = slots.find(|slot| slot.is_stale_with_tag(tag))?;
        let awaited = match slot.is_miss_note() {
            true => Awaited::Expected(slot.heat()),
            false => Awaited::Version,
        };
        Some((bucket, awaited))
    }

    /// Removes the stale entry with the tag of `hash`, if there is one.
    pub fn remove_stale(&self, hash: u64) {
        let Some(mut locked) = self.lock_of(hash) else { return };
        let tag = tag_of(hash);
        let matches = |word: &&AtomicU64| Slot(word.load(Relaxed)).is_stale_with_tag(tag);
        if let Some(word) = locked.words.iter().skip(1).find(matches) {
            locked.set(word, 0);
            self.stale.0.fetch_sub(1, Relaxed);
        }
    }

    /// As [`TagBuckets::insert`], into the slot of the stale entry with this tag, with its heat. Returns
    /// false if there is none.
    pub fn renew(&self, hash: u64, bucket: Bucket, position: Position) -> bool {
        let Some(mut locked) = self.lock_unchanged(hash, bucket) else { return false };
        let tag = tag_of(hash);
        let matches = |word: &&AtomicU64| Slot(word.load(Relaxed)).is_stale_with_tag(tag);
        let Some(word) = locked.words.iter().skip(1).find(matches) else { return false };
        let heat = Slot(word.load(Relaxed)).heat();
        locked.set(word, Slot::new(position, tag, heat).0);
        drop(locked);
        self.len.0.fetch_add(1, Relaxed);
        self.stale.0.fetch_sub(1, Relaxed);
        true
    }
}

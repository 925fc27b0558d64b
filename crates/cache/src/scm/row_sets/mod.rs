//! Rows in the tier: rows that DRAM evicted, and whose pages were on the device. The page of a row would take
//! ten or twenty times as much of the tier.
//!
//! Pages and rows share the slots of each set of the slot map: the last slots of a set, as many as the
//! [`RowShare`] says, hold the rows of one [`group`]. A row's hash gives its group and its page in the group,
//! so rows take no DRAM but 8 B per group. A page of rows ([`set`]) is memory shared as words
//! ([`media::scm::SlotWords`]): many threads read it while one changes it. A reader then checks the group's
//! version: if it changed, the read does not count.
//!
//! Coherence is that of the rows in DRAM ([`crate::RowCache`]): a writer invalidates a row in DRAM first and
//! then here, and a row is put here only if its bucket in DRAM did not change since the row was evicted
//! ([`RowSets::put`]). Rows end with the process, because no medium records which of them are stale. So only
//! a tier on memory that ends with the process holds rows; other tiers hold only pages, which are found
//! again.
//!
//! I8: a row's check is verified at each use.

mod counters;
mod group;
mod set;
mod share;
mod tier;

#[cfg(test)]
mod tests;

use std::hint::spin_loop;
use std::sync::atomic::AtomicU64;

use arena::WORD_BYTES;
use base::{Seqno, invariant};
use media::scm::{Facts, Persistence, SLOT_WORDS, SlotWords};

pub(super) use counters::RowSetCounters;
pub use counters::RowSetStatistics;
#[cfg(test)]
use group::WIDTH_MAX;
use group::{Group, page_of};
pub(super) use set::Scratch;
use set::{PUT_BYTES_MAX, Put, RowSet, SCRATCH_BYTES, StoredRow, check_of};
pub(super) use share::{RowShare, ghost_pages, ghost_rows};

use super::slot_map::WAYS;
use super::statistics::count;
use crate::rows::{ROW_BYTES_MAX, RowHit, RowOwner, RowRef};

/// Tries of a reader while a group keeps changing; after that the lookup misses.
const TRIES: usize = 4;

/// A group gets another page when its rows use this much of the pages it has.
const FULL_PERCENT: usize = 85;

/// The rows of a tier, in groups.
#[derive(Debug)]
pub(super) struct RowSets {
    groups: Box<[Group]>,
    pub(super) counters: RowSetCounters,
}

/// Access to the pages of rows, by slot.
pub(super) trait RowPages {
    /// The words of a slot; `None` if the slot does not hold rows.
    fn words(&self, slot: usize) -> Option<SlotWords<'_>>;
}

/// A row to put into the tier.
pub(crate) struct NewRow<'a> {
    pub(crate) hash: u64,
    pub(crate) words: &'a [AtomicU64],
    /// Whether other rows may be evicted for it.
    pub(crate) may_evict: bool,
}

/// Outcome of [`RowSets::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The tier had the row already.
    Present,
    /// The row was written; the number of bytes written.
    Written(usize),
    /// The key was written since DRAM evicted the row.
    Stale,
    /// Refused: other rows would have to be evicted for it.
    Cold,
    /// Refused: its group has no page, or no room that can be made.
    NoRoom,
}

/// Whether a tier on this medium holds rows: only in memory that ends with the process. On a medium that
/// outlives the process, stale rows would be found again after a restart.
pub(super) const fn holds_rows(facts: &Facts) -> bool {
    facts.byte_addressable && matches!(facts.persistence, Persistence::Process)
}

impl RowSets {
    /// `groups` groups without rows.
    pub(super) fn new(groups: usize) -> Self {
        let groups = (0..groups).map(|_| Group::default()).collect();
        Self { groups, counters: RowSetCounters::default() }
    }

    /// Memory of `groups` groups and of the writer's buffers, bytes.
    pub(super) const fn bytes_of(groups: usize) -> u64 {
        (groups * size_of::<Group>() + SCRATCH_BYTES) as u64
    }

    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The group of the row with this hash.
    fn number(&self, hash: u64) -> usize {
        let mixed = hash.wrapping_mul(0xa076_1d64_78bd_642f) >> 32;
        ((mixed * self.groups.len() as u64) >> 32) as usize
    }

    fn group(&self, hash: u64) -> Option<&Group> {
        self.groups.get(self.number(hash))
    }

    /// The slot of page `page` of group `group`.
    const fn slot(group: usize, page: usize) -> usize {
        group * WAYS + WAYS - 1 - page
    }

    /// The slot of the row's page if its group has `width` pages.
    fn slot_of(&self, hash: u64, width: usize) -> usize {
        Self::slot(self.number(hash), page_of(hash, width))
    }

    /// Number of pages of group `group`.
    pub(super) fn width(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, Group::width)
    }

    /// Looks a row up, as [`crate::RowCache::get`].
    pub(super) fn find(
        &self,
        pages: &impl RowPages,
        owner: &RowOwner,
        (key, hash): (&[u8], u64),
        at: Seqno,
        value: &mut Vec<u8>,
    ) -> Option<RowHit> {
        let (floor, group) = (owner.floor(), self.group(hash)?);
        for _ in 0..TRIES {
            let Some((version, width)) = group.begin_read() else {
                spin_loop();
                continue;
            };
            if width == 0 {
                return None;
            }
            let words = pages.words(self.slot_of(hash, width))?;
            let set = RowSet(&words);
            let found = set.find(hash, |row, check| {
                let hit = row.hit(owner, floor, key, at)?;
                row.copy_value(value);
                let is_right = check_of(hash, row, value) == check;
                Some((hit, is_right, row.words()))
            });
            let read = set.entries_bytes();
            if !group.is_unchanged(version) {
                continue;
            }
            let Some(((hit, is_right, row_words), place)) = found else {
                words.delay(true, read);
                return None;
            };
            words.delay(true, read + row_words * WORD_BYTES);
            if words.is_lost() {
                return None;
            }
            if !is_right {
                drop(words);
                self.invalidate(pages, hash);
                count(&self.counters.damaged);
                return None;
            }
            set.heat_up(place);
            count(&self.counters.hits);
            return Some(hit);
        }
        None
    }

    /// Drops the row with this hash, whose key is being written, as [`crate::RowCache::invalidate`] after it
    /// did so in DRAM.
    pub(super) fn invalidate(&self, pages: &impl RowPages, hash: u64) {
        let Some(group) = self.group(hash) else { return };
        if let Some((version, width)) = group.begin_read() {
            let may_contain = width > 0 && {
                let words = pages.words(self.slot_of(hash, width));
                words.is_none_or(|words| {
                    words.delay(true, RowSet(&words).entries_bytes());
                    RowSet(&words).may_contain(hash)
                })
            };
            // No row to drop. The bumped version orders this before the next put, which then sees the changed
            // bucket in DRAM.
            if !may_contain && group.bump(version) {
                return;
            }
        }
        let _locked = group.lock();
        let width = group.width();
        // Under the lock the page stays shared as words. If too many readers use it to get another handle,
        // one of them soon drops its handle.
        let mut removed = 0;
        if width > 0 {
            let words = self.words(pages, self.slot_of(hash, width));
            removed = RowSet(&words).remove(hash);
        }
        self.counters.removed(removed);
    }

    /// The words of a page of a locked group. Waits while the page has too many readers.
    fn words<'a>(&self, pages: &'a impl RowPages, slot: usize) -> SlotWords<'a> {
        let mut found = pages.words(slot);
        loop {
            match found {
                Some(words) => return words,
                None => {
                    std::thread::yield_now();
                    found = pages.words(slot);
                }
            }
        }
    }

    /// Whether a row of `words` words with this hash needs another page in its group: its own page has no
    /// room and the group's pages are nearly full. Pages that were added earlier would otherwise stay half
    /// full.
    pub(super) fn needs_page(&self, pages: &impl RowPages, hash: u64, words: usize) -> bool {
        let (group, width) = (self.number(hash), self.group(hash).map_or(0, Group::width));
        let set = |page| pages.words(Self::slot(group, page));
        if width == 0 || set(page_of(hash, width)).is_some_and(|it| RowSet(&it).has_room(words)) {
            return width == 0;
        }
        let used: usize = (0..width).filter_map(set).map(|it| RowSet(&it).len().1).sum();
        used * 100 >= width * SLOT_WORDS * FULL_PERCENT
    }

    /// Puts a row, if `is_current` says that its key was not written since DRAM evicted the row. Calls
    /// `on_evicted` with the hash of each row that is evicted for it. For the one writer.
    pub(super) fn put(
        &self,
        pages: &impl RowPages,
        NewRow { hash, words: new, may_evict }: NewRow<'_>,
        is_current: impl FnOnce() -> bool,
        scratch: &mut Scratch,
        mut on_evicted: impl FnMut(u64),
    ) -> Outcome {
        let (Some(group), Some(row)) = (self.group(hash), RowRef::read(new)) else {
            return Outcome::NoRoom;
        };
        invariant!(new.len() * WORD_BYTES <= ROW_BYTES_MAX, "a row is no longer here than in DRAM");
        let mut bytes = std::mem::take(&mut scratch.bytes);
        row.copy_value(&mut bytes);
        let check = check_of(hash, &row, &bytes);
        let locked = group.lock();
        // A writer of the key invalidates the row in DRAM first and then here. If it was here before this
        // lock, `is_current` sees what it did in DRAM; if it comes after, it finds the row and drops it.
        let (width, is_current) = (group.width(), is_current());
        let words = (width > 0).then(|| self.words(pages, self.slot_of(hash, width)));
        let put = words.as_ref().filter(|_| is_current).map(|words| {
            let stored = StoredRow { hash, row: &row, words: new, check };
            RowSet(words).put(&stored, may_evict, scratch, |row| {
                count(&self.counters.evicted);
                self.counters.removed(1);
                on_evicted(row.hash(&mut bytes));
            })
        });
        drop(locked);
        scratch.bytes = bytes;
        let Some((put, older)) = put else {
            return if is_current { Outcome::NoRoom } else { Outcome::Stale };
        };
        self.counters.removed(older);
        match put {
            Put::Present => Outcome::Present,
            Put::Written(bytes) => {
                self.counters.added();
                // Readers do not wait for this emulated delay.
                words.iter().for_each(|words| words.delay(false, bytes));
                Outcome::Written(bytes)
            }
            Put::Cold => Outcome::Cold,
            Put::Refused => Outcome::NoRoom,
        }
    }

    /// Adds a page to group `group`; the page's slot is shared as words. Returns the bytes written.
    pub(super) fn add_page(
        &self,
        pages: &impl RowPages,
        group: usize,
        scratch: &mut Scratch,
    ) -> usize {
        let Some(it) = self.groups.get(group) else { return 0 };
        let width = it.width();
        let added = self.words(pages, Self::slot(group, width));
        RowSet(&added).clear();
        let locked = it.lock();
        let mut before = 0;
        let mut after = 0;
        for page in 0..width {
            let words = self.words(pages, Self::slot(group, page));
            let set = RowSet(&words);
            before += set.len().0;
            let moves = |hash: u64| page_of(hash, width + 1) == width;
            set.move_rows(RowSet(&added), scratch, moves);
            after += set.len().0;
        }
        locked.set_width(width + 1);
        drop(locked);
        let (moved, words) = RowSet(&added).len();
        after += moved;
        let written = words * WORD_BYTES;
        added.delay(false, written);
        self.counters.removed(before.saturating_sub(after));
        self.counters.slots(1);
        written
    }

    /// Removes the last page of group `group`; returns its slot. Calls `on_evicted` with the hash of each row
    /// there.
    pub(super) fn remove_page(
        &self,
        pages: &impl RowPages,
        group: usize,
        scratch: &mut Scratch,
        mut on_evicted: impl FnMut(u64),
    ) -> Option<usize> {
        let it = self.groups.get(group)?;
        let locked = it.lock();
        let width = it.width().checked_sub(1)?;
        let slot = Self::slot(group, width);
        let mut rows = 0;
        RowSet(&self.words(pages, slot)).drain(|row| {
            rows += 1;
            on_evicted(row.hash(&mut scratch.bytes));
        });
        locked.set_width(width);
        drop(locked);
        self.counters.removed(rows);
        self.counters.slots(-1);
        Some(slot)
    }
}

//! Rows in the tier: what left the rows of DRAM and was read from the device lies here by itself, where its
//! page would take ten or twenty times as much.
//!
//! The slots of a set of the map are shared by pages and rows: from the last one on as many as the
//! [`RowShare`] says hold rows, those of one [`group`]. A row's hash tells its group and its page in it, so
//! that rows take no DRAM but 8 B a group. A page of rows ([`set`]) is lent memory ([`media::scm::Lent`]):
//! many read it while one changes it, and who read it asks the group's version whether what it saw counts.
//!
//! Rows here are as coherent as those above ([`crate::RowCache`]), since writers forget a key above first and
//! then here, and a row is put only where its bucket above did not change since it left ([`RowSets::put`]).
//! They end with the process: which of them were forgotten is nowhere in the medium. So they lie only on
//! a medium that ends with it, too, and leave other tiers to pages, which are found again.
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
use base::Seqno;
use media::scm::{Facts, Lent, Persistence, SLOT_WORDS};

pub(super) use counters::RowSetCounters;
pub use counters::RowSetStatistics;
#[cfg(test)]
use group::WIDTH_MAX;
use group::{Group, page_of};
pub(super) use set::Scratch;
use set::{PUT_BYTES_MAX, Put, RowSet, SCRATCH_BYTES, check_of};
pub(super) use share::{RowShare, ghost_pages, ghost_rows};

use super::slot_map::WAYS;
use super::statistics::count;
use crate::rows::{RowHit, RowOwner, RowRef};

/// Looks of a reader at a group that keeps changing before it goes without.
const TRIES: usize = 4;

/// A group gets another page once rows take so much of those it has.
const FULL_PERCENT: usize = 85;

/// See the module.
#[derive(Debug)]
pub(super) struct RowSets {
    groups: Box<[Group]>,
    pub(super) counters: RowSetCounters,
}

/// Where the pages of rows are: their words by slot.
pub(super) trait RowPages {
    /// None where the slot is not lent.
    fn words(&self, slot: usize) -> Option<Lent<'_>>;
}

/// A row that is to be put here.
pub(crate) struct NewRow<'a> {
    pub(crate) hash: u64,
    pub(crate) words: &'a [AtomicU64],
    /// Whether others may go for it.
    pub(crate) may_evict: bool,
}

/// What became of a row that was to be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was there already.
    Present,
    /// It is there now, and so many bytes were written.
    Written(usize),
    /// Its key was written since it left DRAM.
    Stale,
    /// Others would have to go for it.
    Cold,
    /// There is no page for it.
    NoRoom,
}

/// Whether a tier on this medium holds rows: only in memory that ends with the process. On a medium that
/// outlives the process, stale rows would be found again after a restart.
pub(super) const fn holds_rows(facts: &Facts) -> bool {
    facts.byte_addressable && matches!(facts.persistence, Persistence::Process)
}

impl RowSets {
    /// None yet, of so many groups.
    pub(super) fn new(groups: usize) -> Self {
        let groups = (0..groups).map(|_| Group::default()).collect();
        Self { groups, counters: RowSetCounters::default() }
    }

    /// What it takes, with what changes it, bytes.
    pub(super) const fn bytes_of(groups: usize) -> u64 {
        (groups * size_of::<Group>() + SCRATCH_BYTES) as u64
    }

    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The group of a row with this hash.
    fn number(&self, hash: u64) -> usize {
        let mixed = hash.wrapping_mul(0xa076_1d64_78bd_642f) >> 32;
        ((mixed * self.groups.len() as u64) >> 32) as usize
    }

    fn group(&self, hash: u64) -> Option<&Group> {
        self.groups.get(self.number(hash))
    }

    /// The slot of page `page` of a group.
    const fn slot(group: usize, page: usize) -> usize {
        group * WAYS + WAYS - 1 - page
    }

    /// The slot of the row's page where its group has `width`.
    fn slot_of(&self, hash: u64, width: usize) -> usize {
        Self::slot(self.number(hash), page_of(hash, width))
    }

    /// How many pages group `group` has.
    pub(super) fn width(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, Group::width)
    }

    /// As [`crate::RowCache::get`].
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
                self.forget(pages, hash);
                count(&self.counters.damaged);
                return None;
            }
            set.heat_up(place);
            count(&self.counters.hits);
            return Some(hit);
        }
        None
    }

    /// A key with this hash is written, and was forgotten above: as [`crate::RowCache::forget`].
    pub(super) fn forget(&self, pages: &impl RowPages, hash: u64) {
        let Some(group) = self.group(hash) else { return };
        if let Some((version, width)) = group.begin_read() {
            let may_contain = width > 0 && {
                let words = pages.words(self.slot_of(hash, width));
                words.is_none_or(|words| {
                    words.delay(true, RowSet(&words).entries_bytes());
                    RowSet(&words).may_contain(hash)
                })
            };
            // Nothing to forget. Whoever puts a row next sees by the version what was forgotten above.
            if !may_contain && group.bump(version) {
                return;
            }
        }
        let _locked = group.lock();
        let width = group.width();
        // Under the lock its page is lent, and used by as many as look at it: one that cannot be used for
        // them comes free.
        let mut gone = 0;
        if width > 0 {
            let words = self.words(pages, self.slot_of(hash, width));
            gone = RowSet(&words).remove(hash);
        }
        self.counters.removed(gone);
    }

    /// The words of a page of a group that is locked.
    fn words<'a>(&self, pages: &'a impl RowPages, slot: usize) -> Lent<'a> {
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

    /// Whether a row of `words` words with this hash needs another page in its group: its own one has no
    /// room, and the others have not much. Pages that are added before that hold half of what they could.
    pub(super) fn needs_page(&self, pages: &impl RowPages, hash: u64, words: usize) -> bool {
        let (group, width) = (self.number(hash), self.group(hash).map_or(0, Group::width));
        let set = |page| pages.words(Self::slot(group, page));
        if width == 0 || set(page_of(hash, width)).is_some_and(|it| RowSet(&it).has_room(words)) {
            return width == 0;
        }
        let used: usize = (0..width).filter_map(set).map(|it| RowSet(&it).len().1).sum();
        used * 100 >= width * SLOT_WORDS * FULL_PERCENT
    }

    /// Puts a row here where `is_current` says that its key was not written since it left DRAM; tells of the
    /// rows that go for it. For one at a time.
    pub(super) fn put(
        &self,
        pages: &impl RowPages,
        NewRow { hash, words: new, may_evict }: NewRow<'_>,
        is_current: impl FnOnce() -> bool,
        scratch: &mut Scratch,
        mut gone: impl FnMut(u64),
    ) -> Outcome {
        let (Some(group), Some(row)) = (self.group(hash), RowRef::read(new)) else {
            return Outcome::NoRoom;
        };
        let mut bytes = std::mem::take(&mut scratch.bytes);
        row.copy_value(&mut bytes);
        let check = check_of(hash, &row, &bytes);
        let locked = group.lock();
        // A writer forgets above first and then here. Where it was here before the lock, what it did above is
        // seen now; otherwise it comes after, and finds the row.
        let (width, is_current) = (group.width(), is_current());
        let words = (width > 0).then(|| self.words(pages, self.slot_of(hash, width)));
        let put = words.as_ref().filter(|_| is_current).map(|words| {
            RowSet(words).put(hash, (&row, new, check), may_evict, scratch, |row| {
                count(&self.counters.evicted);
                self.counters.removed(1);
                gone(row.hash(&mut bytes));
            })
        });
        drop(locked);
        scratch.bytes = bytes;
        match put {
            Some(Put::Present) => Outcome::Present,
            Some(Put::Written { bytes, replaced }) => {
                self.counters.added();
                self.counters.removed(replaced);
                // Readers do not wait for it.
                words.iter().for_each(|words| words.delay(false, bytes));
                Outcome::Written(bytes)
            }
            None if !is_current => Outcome::Stale,
            Some(Put::Cold) => Outcome::Cold,
            Some(Put::Refused) | None => Outcome::NoRoom,
        }
    }

    /// Adds the next page of group `group`, whose slot is lent; the bytes written.
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

    /// Takes the last page from group `group`; its slot. Tells of the rows that go.
    pub(super) fn remove_page(
        &self,
        pages: &impl RowPages,
        group: usize,
        scratch: &mut Scratch,
        mut gone: impl FnMut(u64),
    ) -> Option<usize> {
        let it = self.groups.get(group)?;
        let locked = it.lock();
        let width = it.width().checked_sub(1)?;
        let slot = Self::slot(group, width);
        let mut rows = 0;
        RowSet(&self.words(pages, slot)).drain(|row| {
            rows += 1;
            gone(row.hash(&mut scratch.bytes));
        });
        locked.set_width(width);
        drop(locked);
        self.counters.removed(rows);
        self.counters.slots(-1);
        Some(slot)
    }
}

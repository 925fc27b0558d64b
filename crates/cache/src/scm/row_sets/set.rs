//! A page of rows: a header, entries from the front, rows from the back. In units of 64-bit words.
//!
//! Header word: where rows start (16 bits), the number of entries (16), the CLOCK hand (16), and the number
//! of row words that no entry names (16). One entry word per row: where the row starts (9 bits), its heat
//! (2), a tag of its hash (21), a check of its content (32). Then free words, then rows as they are stored in
//! DRAM. So a lookup costs the cache lines of the entries and of the row.
//!
//! Eviction from a full page is CLOCK: a hand walks the entries, takes a unit of heat from those it passes,
//! and stops at the first one without heat. A new row of about the same length replaces that row in place;
//! otherwise rows are moved together.
//!
//! Words may change by themselves (I8): any bits are accepted, an entry out of bounds names no row, and a row
//! counts only if its check matches. Concurrency is up to [`super::group`]: one thread at a time changes a
//! page, and readers learn afterwards that it changed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arena::WORD_BYTES;
use base::{hash64, invariant};
use media::scm::SLOT_WORDS;

use crate::rows::{ROW_BYTES_MAX, RowRef};

/// The words of a page, shared by many threads.
pub(super) type Words = [AtomicU64; SLOT_WORDS];

/// The bits of a row's hash that are its tag.
const TAG_AT: u32 = 40;
const TAG_MASK: u64 = (1 << 21) - 1;

const AT_MASK: u64 = (1 << 9) - 1;
const HEAT_ONE: u64 = 1 << 9;
const HEAT_MAX: u64 = 3 << 9;
const TAG_SHIFT: u32 = 11;
const CHECK_SHIFT: u32 = 32;

/// A row replaces another in place if that is longer by at most this many words.
const SLACK_WORDS: usize = 3;

/// Bytes written for an entry and the header: a cache line each.
const ENTRY_BYTES: usize = 2 * 64;

/// Most bytes written for one row: the row, its entry, the header, and once all other rows, moved together.
pub(super) const PUT_BYTES_MAX: usize = ROW_BYTES_MAX + ENTRY_BYTES + SLOT_WORDS * WORD_BYTES;

/// The entry of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowEntry(u64);

impl RowEntry {
    fn new(at: usize, hash: u64, check: u32) -> Self {
        let tag = tag_of(hash) << TAG_SHIFT;
        Self(at as u64 & AT_MASK | tag | u64::from(check) << CHECK_SHIFT)
    }

    const fn at(self) -> usize {
        (self.0 & AT_MASK) as usize
    }

    const fn check(self) -> u32 {
        (self.0 >> CHECK_SHIFT) as u32
    }

    const fn is_of(self, tag: u64) -> bool {
        self.0 >> TAG_SHIFT & TAG_MASK == tag
    }

    const fn is_warm(self) -> bool {
        self.0 & HEAT_MAX > 0
    }

    const fn cooler(self) -> Self {
        Self(self.0 - HEAT_ONE)
    }

    const fn warmer(self) -> Self {
        if self.0 & HEAT_MAX < HEAT_MAX { Self(self.0 + HEAT_ONE) } else { self }
    }

    /// The entry of the same row, moved to `at`.
    const fn moved(self, at: usize) -> Self {
        Self(self.0 & !AT_MASK | at as u64 & AT_MASK)
    }
}

const fn tag_of(hash: u64) -> u64 {
    hash >> TAG_AT & TAG_MASK
}

/// The check of a row with this hash; `value` is its value as stored.
pub(super) fn check_of(hash: u64, row: &RowRef<'_>, value: &[u8]) -> u32 {
    (hash64(hash ^ row.header_hash(), value) >> 32) as u32
}

/// The header of a page of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetHeader {
    rows_start: usize,
    count: usize,
    hand: usize,
    unreferenced: usize,
}

impl SetHeader {
    const EMPTY: Self = Self { rows_start: SLOT_WORDS, count: 0, hand: 0, unreferenced: 0 };

    fn of(word: u64) -> Self {
        let part = |at: u32| (word >> at) as u16 as usize;
        let header =
            Self { rows_start: part(0), count: part(16), hand: part(32), unreferenced: part(48) };
        // A zero or invalid header means an empty page.
        if header.rows_start > SLOT_WORDS || header.rows_start <= header.count {
            Self::EMPTY
        } else {
            header
        }
    }

    const fn word(self) -> u64 {
        self.rows_start as u64
            | (self.count as u64) << 16
            | (self.hand as u64) << 32
            | (self.unreferenced as u64) << 48
    }

    /// Free words between the entries and the rows.
    const fn room(self) -> usize {
        self.rows_start.saturating_sub(1 + self.count)
    }
}

/// Buffers that the writer reuses: for a page, and for a value.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    page: Vec<u64>,
    pub(super) bytes: Vec<u8>,
}

/// Most memory of a [`Scratch`], bytes.
pub(super) const SCRATCH_BYTES: usize = SLOT_WORDS * WORD_BYTES + ROW_BYTES_MAX;

/// Outcome of [`RowSet::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// The page had the row already.
    Present,
    /// The row was written; the number of bytes written.
    Written(usize),
    /// Refused: other rows would have to be evicted for it.
    Cold,
    /// Refused: no room for a row of this size can be made.
    Refused,
}

/// A row to put, as stored.
pub(super) struct StoredRow<'a> {
    pub(super) hash: u64,
    pub(super) row: &'a RowRef<'a>,
    pub(super) words: &'a [AtomicU64],
    /// See [`check_of`].
    pub(super) check: u32,
}

/// A page of rows.
#[derive(Clone, Copy)]
pub(super) struct RowSet<'a>(pub(super) &'a Words);

impl<'a> RowSet<'a> {
    fn header(self) -> SetHeader {
        self.0.first().map_or(SetHeader::EMPTY, |word| SetHeader::of(word.load(Relaxed)))
    }

    fn set_header(self, header: SetHeader) {
        invariant!(
            (header.count + 1..=SLOT_WORDS).contains(&header.rows_start),
            "rows and entries do not overlap"
        );
        if let Some(word) = self.0.first() {
            word.store(header.word(), Relaxed);
        }
    }

    fn entry(self, number: usize) -> RowEntry {
        RowEntry(self.0.get(1 + number).map_or(0, |word| word.load(Relaxed)))
    }

    fn set_entry(self, number: usize, entry: RowEntry) {
        if let Some(word) = self.0.get(1 + number) {
            word.store(entry.0, Relaxed);
        }
    }

    fn row(self, entry: RowEntry) -> Option<RowRef<'a>> {
        self.0.get(entry.at()..).filter(|_| entry.at() > 0).and_then(RowRef::read)
    }

    /// Empties the page, whatever it held.
    pub(super) fn clear(self) {
        self.set_header(SetHeader::EMPTY);
    }

    /// The number of rows, and the words that they and their entries use.
    pub(super) fn len(self) -> (usize, usize) {
        let SetHeader { rows_start, count, unreferenced, .. } = self.header();
        (count, (SLOT_WORDS - rows_start).saturating_sub(unreferenced) + count)
    }

    /// Bytes that a lookup reads if it finds no row.
    pub(super) fn entries_bytes(self) -> usize {
        (1 + self.header().count) * WORD_BYTES
    }

    /// Calls `look` with each row that has the tag of `hash`, and its check, until `look` returns something;
    /// also returns which row that was. As [`arena::TagBuckets::find`]: `look` may see any bytes.
    pub(super) fn find<T>(
        self,
        hash: u64,
        mut look: impl FnMut(&RowRef<'a>, u32) -> Option<T>,
    ) -> Option<(T, SetHit)> {
        let tag = tag_of(hash);
        for number in 0..self.header().count {
            let entry = self.entry(number);
            if entry.is_of(tag)
                && let Some(row) = self.row(entry)
                && let Some(found) = look(&row, entry.check())
            {
                return Some((found, SetHit { number, entry }));
            }
        }
        None
    }

    /// Counts a use of a row that was found, if its entry did not change since.
    pub(super) fn heat_up(self, SetHit { number, entry }: SetHit) {
        let warmer = entry.warmer();
        if warmer != entry
            && let Some(word) = self.0.get(1 + number)
        {
            let _ = word.compare_exchange(entry.0, warmer.0, Relaxed, Relaxed);
        }
    }

    /// Whether any row has the tag of `hash`.
    pub(super) fn may_contain(self, hash: u64) -> bool {
        (0..self.header().count).any(|number| self.entry(number).is_of(tag_of(hash)))
    }

    /// Removes all rows with the tag of `hash`; returns how many.
    pub(super) fn remove(self, hash: u64) -> usize {
        let (tag, mut header) = (tag_of(hash), self.header());
        let before = header.count;
        for number in (0..before).rev() {
            if self.entry(number).is_of(tag) {
                self.remove_entry(&mut header, number);
            }
        }
        self.set_header(header);
        before - header.count
    }

    fn remove_entry(self, header: &mut SetHeader, number: usize) {
        header.unreferenced += self.row(self.entry(number)).map_or(0, |row| row.words());
        header.count -= 1;
        self.set_entry(number, self.entry(header.count));
    }

    /// Whether a row of `words` words fits without evicting another.
    pub(super) fn has_room(self, words: usize) -> bool {
        let header = self.header();
        header.room() + header.unreferenced > words
    }

    /// Puts a row. Evicts other rows only if it `may_evict`, and calls `on_evicted` with each. Writes at most
    /// [`PUT_BYTES_MAX`]. Also returns how many older rows of its key were removed, whatever the outcome.
    pub(super) fn put(
        self,
        new: &StoredRow<'_>,
        may_evict: bool,
        scratch: &mut Scratch,
        on_evicted: impl FnMut(&RowRef<'_>),
    ) -> (Put, usize) {
        let mut header = self.header();
        let before = header.count;
        let is_present = self.remove_older(&mut header, new);
        let removed = before - header.count;
        let put = match is_present {
            true => Put::Present,
            false => self.insert(&mut header, new, may_evict, scratch, on_evicted),
        };
        self.set_header(header);
        (put, removed)
    }

    /// Removes rows with the key of `new` and other content; returns whether a row with the same content is
    /// here.
    fn remove_older(self, header: &mut SetHeader, new: &StoredRow<'_>) -> bool {
        let mut is_present = false;
        for number in (0..header.count).rev() {
            let entry = self.entry(number);
            let is_tagged = entry.is_of(tag_of(new.hash));
            if !is_tagged || !self.row(entry).is_some_and(|old| old.has_key_of(new.row)) {
                continue;
            }
            if entry.check() == new.check {
                self.set_entry(number, if entry.is_warm() { entry } else { entry.warmer() });
                is_present = true;
            } else {
                self.remove_entry(header, number);
            }
        }
        is_present
    }

    /// Writes a row of which the page has no version.
    fn insert(
        self,
        header: &mut SetHeader,
        new: &StoredRow<'_>,
        may_evict: bool,
        scratch: &mut Scratch,
        mut on_evicted: impl FnMut(&RowRef<'_>),
    ) -> Put {
        let words = new.words.len();
        let mut bytes = words * WORD_BYTES + ENTRY_BYTES;
        // Bounded: each turn ends the loop, removes a row, or frees the words that no entry names.
        let at = loop {
            if header.room() > words {
                header.rows_start -= words;
                self.set_entry(header.count, RowEntry::new(header.rows_start, new.hash, new.check));
                header.count += 1;
                break header.rows_start;
            }
            if header.room() + header.unreferenced > words {
                bytes += self.defragment(header, scratch);
                // Damaged words may have made fewer words unreferenced than the header says (I8).
                if header.room() <= words {
                    return Put::Refused;
                }
                continue;
            }
            if !may_evict {
                return Put::Cold;
            }
            let Some(number) = self.coldest(header) else { return Put::Refused };
            let entry = self.entry(number);
            let old = self.row(entry);
            if let Some(old) = &old {
                on_evicted(old);
            }
            let room = old.map_or(0, |old| old.words());
            if (words..=words + SLACK_WORDS).contains(&room) {
                self.set_entry(number, RowEntry::new(entry.at(), new.hash, new.check));
                header.hand = number + 1;
                break entry.at();
            }
            self.remove_entry(header, number);
        };
        for (to, from) in self.0.iter().skip(at).zip(new.words) {
            to.store(from.load(Relaxed), Relaxed);
        }
        invariant!(bytes <= PUT_BYTES_MAX, "the write budget had room for this put");
        Put::Written(bytes)
    }

    /// The row to evict, by CLOCK.
    fn coldest(self, header: &mut SetHeader) -> Option<usize> {
        let turns = header.count * (1 + (HEAT_MAX / HEAT_ONE) as usize);
        for _ in 0..turns {
            let number = if header.hand < header.count { header.hand } else { 0 };
            let entry = self.entry(number);
            if !entry.is_warm() {
                header.hand = number;
                return Some(number);
            }
            self.set_entry(number, entry.cooler());
            header.hand = number + 1;
        }
        None
    }

    /// Moves all rows together at the end of the page; returns the bytes written. Drops entries that name no
    /// row.
    fn defragment(self, header: &mut SetHeader, scratch: &mut Scratch) -> usize {
        let (mut rows_start, mut count) = (SLOT_WORDS, 0);
        scratch.page.resize(SLOT_WORDS, 0);
        for number in 0..header.count {
            let entry = self.entry(number);
            let Some(row) = self.row(entry) else { continue };
            let Some(to) = rows_start.checked_sub(row.words()).filter(|to| *to > header.count)
            else {
                continue;
            };
            let from = self.0.get(entry.at()..).unwrap_or_default();
            let into = scratch.page.get_mut(to..rows_start).unwrap_or_default();
            into.iter_mut().zip(from).for_each(|(to, from)| *to = from.load(Relaxed));
            self.set_entry(count, entry.moved(to));
            (rows_start, count) = (to, count + 1);
        }
        for (to, from) in self.0.iter().zip(scratch.page.iter()).skip(rows_start) {
            to.store(*from, Relaxed);
        }
        *header = SetHeader { rows_start, count, unreferenced: 0, ..*header };
        (SLOT_WORDS - rows_start + count) * WORD_BYTES
    }

    /// Moves the rows for whose hash `moves` is true to the page `to`, which nobody else uses yet.
    pub(super) fn move_rows(
        self,
        to: RowSet<'_>,
        scratch: &mut Scratch,
        moves: impl Fn(u64) -> bool,
    ) {
        let (mut header, mut target) = (self.header(), to.header());
        for number in (0..header.count).rev() {
            let entry = self.entry(number);
            let Some(row) = self.row(entry) else { continue };
            if !moves(row.hash(&mut scratch.bytes)) {
                continue;
            }
            let words = row.words();
            if target.room() > words {
                target.rows_start -= words;
                let from = self.0.get(entry.at()..).unwrap_or_default();
                let into =
                    to.0.get(target.rows_start..target.rows_start + words).unwrap_or_default();
                for (to, from) in into.iter().zip(from) {
                    to.store(from.load(Relaxed), Relaxed);
                }
                to.set_entry(target.count, entry.moved(target.rows_start));
                target.count += 1;
            }
            self.remove_entry(&mut header, number);
        }
        self.set_header(header);
        to.set_header(target);
    }

    /// Calls `on_evicted` with every row, and empties the page.
    pub(super) fn drain(self, mut on_evicted: impl FnMut(&RowRef<'_>)) {
        for number in 0..self.header().count {
            if let Some(row) = self.row(self.entry(number)) {
                on_evicted(&row);
            }
        }
        self.clear();
    }
}

/// Which row a lookup found.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetHit {
    number: usize,
    entry: RowEntry,
}

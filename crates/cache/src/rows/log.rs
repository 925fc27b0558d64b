//! Rows in the order in which they came: two queues of segments, written at their ends and cleaned
//! from their fronts.
//!
//! Cleaning a segment looks at each of its rows: one that no entry of the index names is dead, one
//! that [`policy::fate`] keeps is written again at the end of the main queue, the others go. So
//! memory has no holes, rows of any size share it, and a whole segment comes free at a time.
//!
//! A row's bytes are written over only after no entry names them, and behind a release fence, as
//! [`TagBuckets`] asks for. Owned by a mutex in [`super::RowCache`].

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

use arena::{Awaited, Bucket, Heat, Position, Removed, TagBuckets, Words};
use base::{Account, Charge};

use super::evicted_rows::{EvictedRow, EvictedRows, Queued};
use super::ghost::Ghost;
use super::policy::{self, Admission, Queue, Verdict};
use super::row::{ROW_BYTES_LEAST, Row, RowFrom, RowRef};
use super::segments::{CHUNK_BYTES, CHUNK_SEGMENTS, SEGMENT_WORDS, Segments};
use super::statistics::{Refusal, RowStatistics};
use crate::scm::ScmTier;

/// Segments that cleaning may need before it frees one.
const SPARE_SEGMENTS: usize = 1;

/// The least chunks: one to write and one to clean.
const CHUNKS_MIN: usize = 1;

/// The least rows that a memory of what went is made for.
const GHOST_ROWS_MIN: usize = 4096;

/// Memory is not short where rows fill at most one part in so many of what they may have. More, and rows that
/// come soon push out others: the ones that stay for good came early.
const ROOMY_PART: u64 = 4;

/// Turns of an entry at most, new and as warm as can be, before it goes.
const ROUNDS_MAX: usize = 5;

/// What the log works on beside itself.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) words: &'a Words,
    pub(super) index: &'a TagBuckets,
    /// Where rows go that leave; none where there is no such tier, or it takes none.
    pub(super) below: Option<&'a ScmTier>,
}

#[derive(Debug)]
pub(super) struct RowLog {
    segments: Segments,
    new: VecDeque<Segment>,
    main: VecDeque<Segment>,
    pub(super) bytes_max: u64,
    ghost: Ghost,
    /// What went last or was not let in, as much of it as lies in `shadow_bytes`.
    shadow: Ghost,
    /// As much memory as more or less of it is weighed by, whatever rows have now; 0 where nobody weighs.
    shadow_bytes: u64,
    /// For both (I10).
    charge: Charge,
    admission: Admission,
    pub(super) counts: RowStatistics,
    /// Rows on their way to the tier below, and the memory of that; none where none go there.
    evicted: EvictedRows,
    evicted_charge: Option<Charge>,
    /// Kept for their memory: the rows of a segment, and a key.
    rows: Vec<(usize, u64)>,
    scratch: Vec<u8>,
}

/// A segment of a queue: its number and the words written.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: usize,
    end: usize,
}

impl Segment {
    /// The place of the row at word `at` of it. Position 0 is none: places are one word on.
    fn place(self, at: usize) -> Option<Position> {
        u32::try_from(self.number * SEGMENT_WORDS + at + 1).ok().and_then(Position::new)
    }
}

/// The first word of the row at `place`.
pub(super) const fn word_of(place: Position) -> usize {
    place.get() as usize - 1
}

impl RowLog {
    pub(super) fn new(account: &Account, words: &Words, bytes_max: u64) -> Self {
        Self {
            segments: Segments::new(account, words),
            new: VecDeque::new(),
            main: VecDeque::new(),
            bytes_max,
            ghost: Ghost::default(),
            shadow: Ghost::default(),
            shadow_bytes: 0,
            charge: account.empty_charge(),
            admission: Admission::default(),
            counts: RowStatistics::default(),
            evicted: EvictedRows::default(),
            evicted_charge: None,
            rows: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segments.chunks() as u64 * CHUNK_BYTES
    }

    pub(super) fn free_bytes(&self) -> u64 {
        (self.segments.free() * SEGMENT_WORDS * arena::WORD_BYTES) as u64
    }

    /// Has what went last remembered as far as it lay in so many bytes.
    pub(super) const fn set_shadow_bytes(&mut self, bytes: u64) {
        self.shadow_bytes = bytes;
    }

    pub(super) fn ghost_bytes(&self) -> u64 {
        Ghost::bytes_of(self.ghost.capacity()) + Ghost::bytes_of(self.shadow.capacity())
    }

    /// Puts a row of `owner` in, made of what was read after `bucket` was taken.
    pub(super) fn fill(
        &mut self,
        shared: Shared<'_>,
        owner: u32,
        hash: u64,
        bucket: Bucket,
        row: Row<'_>,
    ) -> Result<(), Refusal> {
        if self.shadow.recall(hash) {
            match row.from {
                RowFrom::Device => self.counts.missed_device += 1,
                RowFrom::Scm | RowFrom::ScmRow => self.counts.missed_below += 1,
                RowFrom::Dram => self.counts.missed_cached += 1,
            }
        }
        let recalled = self.ghost.recall(hash);
        // Where a chunk lies unused, nothing has to go for what is let in.
        let unused = || (self.segments.free() > CHUNK_SEGMENTS).then_some(Queue::New);
        let Some(queue) = self.admission.queue(hash, recalled).or_else(unused) else {
            self.remember(shared, hash);
            // With more memory it might have been let in: where rows are few, next to none go.
            self.shadow.remember(hash);
            return Err(Refusal::Seldom);
        };
        let (place, words) =
            self.append(shared, queue, row.words(), true).ok_or(Refusal::Memory)?;
        row.write(owner, words);
        if !shared.index.insert(hash, bucket, place, 0) {
            self.undo_append(queue, row.words());
            return Err(Refusal::Written);
        }
        shared.index.grow();
        self.counts.fills += 1;
        self.counts.recalled += u64::from(recalled);
        self.counts.packed += u64::from(row.packed);
        Ok(())
    }

    /// Puts the row that is awaited in its place, where it still is as of after `bucket` was taken.
    pub(super) fn renew(
        &mut self,
        shared: Shared<'_>,
        owner: u32,
        hash: u64,
        (bucket, awaited): (Bucket, Awaited),
        row: Row<'_>,
    ) -> Result<(), Refusal> {
        let queue = policy::queue_of_renewed(awaited);
        let (place, words) =
            self.append(shared, queue, row.words(), true).ok_or(Refusal::Memory)?;
        row.write(owner, words);
        if !shared.index.renew(hash, bucket, place) {
            self.undo_append(queue, row.words());
            return Err(Refusal::Written);
        }
        shared.index.grow();
        self.counts.renewed += 1;
        self.counts.packed += u64::from(row.packed);
        Ok(())
    }

    /// Gives up what was appended last to `queue`: nobody knows of it.
    fn undo_append(&mut self, queue: Queue, words: usize) {
        if let Some(segment) = self.queue(queue).back_mut() {
            segment.end -= words;
        }
    }

    /// Whether rows that come are let in, and push out others or soon will.
    pub(super) fn is_tight(&self) -> bool {
        self.bytes() - self.free_bytes() > self.bytes_max / ROOMY_PART
            && self.admission.admits_new()
    }

    /// What a row takes, about.
    fn row_bytes(&self, shared: Shared<'_>) -> u64 {
        (self.bytes() / shared.index.len().max(1) as u64).max(ROW_BYTES_LEAST as u64)
    }

    fn remember(&mut self, shared: Shared<'_>, hash: u64) {
        let rows = policy::ghost_entries(shared.index.len().max(GHOST_ROWS_MIN));
        if rows > self.ghost.capacity() / 4 * 5 || rows < self.ghost.capacity() / 4 {
            let shadow = (self.shadow_bytes / self.row_bytes(shared)) as usize;
            let bytes = Ghost::bytes_of(rows) + Ghost::bytes_of(shadow);
            // Both are there while one is made of the other.
            let missing = (bytes + self.ghost_bytes()).saturating_sub(self.charge.bytes());
            if missing == 0 || self.charge.try_grow(missing) {
                self.ghost.resize(rows);
                self.shadow.resize(shadow);
                self.charge.shrink_to(bytes);
            }
        }
        self.ghost.remember(hash);
    }

    fn queue(&mut self, queue: Queue) -> &mut VecDeque<Segment> {
        match queue {
            Queue::New => &mut self.new,
            Queue::Main => &mut self.main,
        }
    }

    /// Room for a row of `count` words at the end of `queue`, where there is some, or cleaning makes
    /// it. The words may be written.
    fn append<'a>(
        &mut self,
        shared: Shared<'a>,
        queue: Queue,
        count: usize,
        cleans: bool,
    ) -> Option<(Position, &'a [std::sync::atomic::AtomicU64])> {
        let is_full = |segment: &Segment| segment.end + count > SEGMENT_WORDS;
        if self.queue(queue).back().is_none_or(is_full) {
            if cleans {
                self.make_room(shared)?;
            }
            // Cleaning may have begun another segment there.
            if self.queue(queue).back().is_none_or(is_full) {
                let number = self.segments.take()?;
                self.queue(queue).push_back(Segment { number, end: 0 });
            }
        }
        let segment = self.queue(queue).back_mut()?;
        let at = segment.end;
        segment.end += count;
        let place = segment.place(at)?;
        // No entry names what lay here: who sees what is written now sees that, too.
        fence(Release);
        Some((place, shared.words.get(word_of(place), count)))
    }

    /// Sees to it that a segment is free beside the spare ones.
    fn make_room(&mut self, shared: Shared<'_>) -> Option<()> {
        if self.segments.free() > SPARE_SEGMENTS {
            return Some(());
        }
        let may_grow = self.bytes() + CHUNK_BYTES <= self.bytes_max.max(CHUNK_BYTES);
        if may_grow && self.segments.grow() {
            return Some(());
        }
        self.clean_until(shared, SPARE_SEGMENTS + 1)
    }

    /// Cleans until `free` segments are free.
    fn clean_until(&mut self, shared: Shared<'_>, free: usize) -> Option<()> {
        let rounds = (self.new.len() + self.main.len()) * ROUNDS_MAX;
        for _ in 0..rounds {
            if self.segments.free() >= free {
                break;
            }
            self.clean(shared)?;
        }
        (self.segments.free() >= free).then_some(())
    }

    /// Cleans the segment whose turn it is.
    fn clean(&mut self, shared: Shared<'_>) -> Option<()> {
        let queue = policy::victim(self.new.len() as u64, self.main.len() as u64);
        let segment = self.queue(queue).pop_front()?;
        let rows = self.rows_of(shared, segment);
        for (at, hash) in &rows {
            let Some(place) = segment.place(*at) else { continue };
            let Some(entry) = shared.index.entry(*hash, place) else { continue };
            if queue == Queue::New {
                self.admission.note_left_new(entry.heat);
            }
            let verdict = match entry.is_stale {
                true => policy::STALE,
                false => policy::verdict(queue, entry.heat),
            };
            match verdict {
                Verdict::Keep(heat) if self.rewrite(shared, place, *hash, heat) => {
                    self.counts.kept += 1
                }
                Verdict::Evict { remember: true } => {
                    self.evict(shared, place, *hash, queue);
                    self.remember(shared, *hash);
                }
                _ => self.evict(shared, place, *hash, queue),
            }
        }
        self.rows = rows;
        self.segments.put(segment.number);
        Some(())
    }

    fn evict(&mut self, shared: Shared<'_>, place: Position, hash: u64, queue: Queue) {
        let removed = shared.index.remove(hash, place);
        if removed == Removed::Nothing {
            return;
        }
        self.counts.evicted += 1;
        self.shadow.remember(hash);
        if let (Some(below), Removed::Entry(bucket)) = (shared.below, removed) {
            self.demote(shared, below, (hash, bucket, queue), place);
        }
    }

    /// Has the row at `place`, which is removed, written to the tier below, where its page did not lie.
    fn demote(
        &mut self,
        shared: Shared<'_>,
        below: &ScmTier,
        (hash, bucket, queue): (u64, Bucket, Queue),
        place: Position,
    ) {
        let words = shared.words.get(word_of(place), SEGMENT_WORDS);
        let Some(row) = RowRef::read(words).filter(RowRef::is_from_device) else { return };
        let words = words.get(..row.words()).unwrap_or_default();
        let left = match self.evicted_charge {
            Some(_) => self.evicted.push(EvictedRow { hash, bucket, queue }, words),
            None => Queued::Full,
        };
        match left {
            Queued::Waiting => {}
            Queued::WakeWriter => below.wake(),
            Queued::Full => below.note_row_refused(),
        }
    }

    /// Has rows that leave wait for the tier below, as far as there is memory for that.
    pub(super) fn enable_demotion(&mut self, account: &Account) {
        self.evicted_charge = EvictedRows::charge(account);
    }

    /// Gives the rows that wait for `taken`, which holds none any more.
    pub(super) fn take_evicted(&mut self, taken: &mut EvictedRows) {
        std::mem::swap(&mut self.evicted, taken);
    }

    /// Where the rows of a segment begin, and their hashes; asks for their buckets.
    fn rows_of(&mut self, shared: Shared<'_>, segment: Segment) -> Vec<(usize, u64)> {
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        let words = shared.words.get(segment.number * SEGMENT_WORDS, segment.end);
        let mut at = 0;
        while let Some(row) = words.get(at..).and_then(RowRef::read) {
            let hash = row.hash(&mut self.scratch);
            shared.index.prefetch(hash);
            rows.push((at, hash));
            at += row.words();
        }
        rows
    }

    /// Writes the row at `from` again at the end of the main queue; false where there is no room.
    fn rewrite(&mut self, shared: Shared<'_>, from: Position, hash: u64, heat: Heat) -> bool {
        let old = shared.words.get(word_of(from), SEGMENT_WORDS);
        let Some(count) = RowRef::read(old).map(|row| row.words()) else { return false };
        let Some((to, words)) = self.append(shared, Queue::Main, count, false) else {
            return false;
        };
        words.iter().zip(old).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        shared.index.replace(hash, from, (to, heat))
    }

    /// Takes up to `chunks` chunks more, where there is memory for them.
    pub(super) fn grow(&mut self, chunks: u64) {
        (0..chunks).take_while(|_| self.segments.grow()).for_each(drop);
    }

    /// Gives a chunk back; its bytes, 0 where it is the last.
    pub(super) fn give_back(&mut self, shared: Shared<'_>) -> u64 {
        if self.segments.chunks() <= CHUNKS_MIN {
            return 0;
        }
        if self.clean_until(shared, CHUNK_SEGMENTS + SPARE_SEGMENTS).is_none() {
            return 0;
        }
        let Some(chunk) = self.segments.emptiest() else { return 0 };
        for queue in [Queue::New, Queue::Main] {
            for at in 0..self.queue(queue).len() {
                let segment = self.queue(queue).get(at).copied();
                let Some(from) = segment.filter(|it| it.number / CHUNK_SEGMENTS == chunk) else {
                    continue;
                };
                let Some(number) = self.segments.take_elsewhere(chunk) else { return 0 };
                let to = Segment { number, ..from };
                self.relocate(shared, from, to);
                if let Some(segment) = self.queue(queue).get_mut(at) {
                    *segment = to;
                }
                self.segments.put(from.number);
            }
        }
        if !self.segments.give_back(chunk, shared.words) {
            return 0;
        }
        self.counts.chunks_given_back += 1;
        CHUNK_BYTES
    }

    /// Moves what lies in segment `from` to `to`, row by row.
    fn relocate(&mut self, shared: Shared<'_>, from: Segment, to: Segment) {
        let old = shared.words.get(from.number * SEGMENT_WORDS, from.end);
        let new = shared.words.get(to.number * SEGMENT_WORDS, from.end);
        fence(Release);
        new.iter().zip(old).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        let rows = self.rows_of(shared, from);
        for (at, hash) in &rows {
            if let (Some(old), Some(new)) = (from.place(*at), to.place(*at))
                && let Some(entry) = shared.index.entry(*hash, old)
            {
                shared.index.replace(*hash, old, (new, entry.heat));
            }
        }
        self.rows = rows;
    }
}

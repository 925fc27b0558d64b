//! The row log: rows in the order in which they came, in two queues of segments, appended at their ends and
//! cleaned from their fronts.
//!
//! Cleaning a segment visits each of its rows. A row that no index entry names is dead. A row that
//! [`policy::verdict`] keeps is appended to the main queue again. Other rows are evicted. So memory has no
//! holes, rows of any size share it, and whole segments come free.
//!
//! A row's bytes are overwritten only after no index entry names them, and behind a release fence, as
//! [`TagBuckets`] requires. Owned by a mutex in [`super::RowCache`].

mod hot_rows;

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

use arena::{Awaited, Bucket, Heat, Position, Removed, TagBuckets, Words};
use base::{Account, Charge, invariant};

use super::evicted_rows::{EvictedRow, EvictedRows, Queued};
use super::ghost::Ghost;
use super::policy::{self, Admission, Queue, Rules, Verdict};
use super::row::{ROW_BYTES_LEAST, Row, RowFrom, RowRef};
use super::segments::{CHUNK_BYTES, CHUNK_SEGMENTS, SEGMENT_WORDS, Segments};
use super::statistics::{Refusal, RowStatistics};
use crate::scm::ScmTier;

/// Free segments that cleaning may need before it frees one.
const SPARE_SEGMENTS: usize = 1;

/// Least number of chunks: it has a segment to append to and one to clean.
const CHUNKS_MIN: usize = 1;

/// Least size that the ghost list is made for, rows.
const GHOST_ROWS_MIN: usize = 4096;

/// Memory is short once rows use more than their limit divided by this: new rows then soon evict others. The
/// threshold is low because rows that are kept for long come early, and should be stored compressed.
const ROOMY_PART: u64 = 4;

/// Most turns of a row before it is evicted: full heat in the queue of new rows.
const ROUNDS_MAX: usize = 5;

/// What the log shares with readers, and the lower tier.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) words: &'a Words,
    pub(super) index: &'a TagBuckets,
    /// The tier that evicted rows are written to, if there is one that holds rows.
    pub(super) lower: Option<&'a ScmTier>,
    /// The rules of the policy.
    pub(super) rules: Rules,
}

#[derive(Debug)]
pub(super) struct RowLog {
    segments: Segments,
    new: VecDeque<Segment>,
    main: VecDeque<Segment>,
    pub(super) bytes_max: u64,
    ghost: Ghost,
    /// Shadow ghost list: rows evicted or refused last, as many as fit `shadow_bytes`.
    shadow: Ghost,
    /// Bytes of rows that the shadow ghost list covers, whatever rows use now; 0 without a
    /// [`crate::Balance`].
    shadow_bytes: u64,
    /// Memory of both ghost lists (I10).
    charge: Charge,
    admission: Admission,
    pub(super) counts: RowStatistics,
    /// Evicted rows that wait for the lower tier, and the memory of their buffers; `None` without such a
    /// tier.
    evicted: EvictedRows,
    evicted_charge: Option<Charge>,
    /// Reused buffers: the rows of a segment, and a key.
    rows: Vec<(usize, u64)>,
    scratch: Vec<u8>,
}

/// A segment of a queue: its number, and how many of its words are used.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: usize,
    end: usize,
}

impl Segment {
    /// The position of the row at word `at`. Positions are counted from 1, because 0 stands for none.
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

    /// Sets the bytes of rows that the shadow ghost list covers.
    pub(super) const fn set_shadow_bytes(&mut self, bytes: u64) {
        self.shadow_bytes = bytes;
    }

    pub(super) fn ghost_bytes(&self) -> u64 {
        Ghost::bytes_of(self.ghost.capacity()) + Ghost::bytes_of(self.shadow.capacity())
    }

    /// Inserts a row of `owner`, read after `bucket` was taken.
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
        // While a whole chunk is unused, a new row evicts nothing.
        let unused = || (self.segments.free() > CHUNK_SEGMENTS).then_some(Queue::New);
        let Some(queue) = self.admission.queue(shared.rules, hash, recalled).or_else(unused) else {
            self.remember(shared, hash);
            // With more memory the row might have been admitted. While rows are refused, few are evicted.
            self.shadow.remember(hash);
            return Err(Refusal::Seldom);
        };
        self.insert(shared, owner, (hash, bucket), row, (queue, true))?;
        self.counts.fills += 1;
        self.counts.recalled += u64::from(recalled);
        self.counts.packed += u64::from(row.packed);
        Ok(())
    }

    /// Appends the row to `queue` and makes the index name it. `cleans`: segments may be cleaned for it.
    fn insert(
        &mut self,
        shared: Shared<'_>,
        owner: u32,
        (hash, bucket): (u64, Bucket),
        row: Row<'_>,
        (queue, cleans): (Queue, bool),
    ) -> Result<(), Refusal> {
        let (place, words) =
            self.append(shared, queue, row.words(), cleans).ok_or(Refusal::Memory)?;
        row.write(owner, words);
        if !shared.index.insert(hash, bucket, place, 0) {
            self.undo_append(queue, row.words());
            return Err(Refusal::Written);
        }
        shared.index.grow();
        Ok(())
    }

    /// Inserts a row that is awaited, if its bucket did not change since `bucket` was taken.
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

    /// Gives up the words that were appended last to `queue`; no index entry names them.
    fn undo_append(&mut self, queue: Queue, words: usize) {
        if let Some(segment) = self.queue(queue).back_mut() {
            invariant!(segment.end >= words, "the words to give up were appended last");
            segment.end -= words;
        }
    }

    /// Whether memory is short: new rows are admitted, and evict others or soon will.
    pub(super) fn is_tight(&self) -> bool {
        self.bytes() - self.free_bytes() > self.bytes_max / ROOMY_PART
            && self.admission.admits_new()
    }

    /// Average memory of a row, bytes.
    fn row_bytes(&self, shared: Shared<'_>) -> u64 {
        (self.bytes() / shared.index.len().max(1) as u64).max(ROW_BYTES_LEAST as u64)
    }

    fn remember(&mut self, shared: Shared<'_>, hash: u64) {
        let rows = policy::ghost_entries(shared.rules, shared.index.len().max(GHOST_ROWS_MIN));
        if rows > self.ghost.capacity() / 4 * 5 || rows < self.ghost.capacity() / 2 {
            let shadow = (self.shadow_bytes / self.row_bytes(shared)) as usize;
            let bytes = Ghost::bytes_of(rows) + Ghost::bytes_of(shadow);
            // Both sizes exist while entries move from the old list to the new one.
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

    /// Space for a row of `count` words at the end of `queue`. `cleans`: segments may be cleaned for it. The
    /// caller may write the words.
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
            // Cleaning may have appended rows, and so begun another segment.
            if self.queue(queue).back().is_none_or(is_full) {
                let number = self.segments.take()?;
                self.queue(queue).push_back(Segment { number, end: 0 });
            }
        }
        let segment = self.queue(queue).back_mut()?;
        let at = segment.end;
        invariant!(at + count <= SEGMENT_WORDS, "a row lies in one segment");
        segment.end += count;
        let place = segment.place(at)?;
        // No entry names the old row here. Readers that see words written from now on also see that.
        fence(Release);
        Some((place, shared.words.get(word_of(place), count)))
    }

    /// Makes sure that a segment is free beside the spare ones.
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

    /// Cleans segments until `free` are free.
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

    /// Cleans the segment that the policy picks.
    fn clean(&mut self, shared: Shared<'_>) -> Option<()> {
        let queue = policy::victim(shared.rules, self.new.len() as u64, self.main.len() as u64);
        let segment = self.queue(queue).pop_front()?;
        let rows = self.rows_of(shared, segment);
        for (at, hash) in &rows {
            let place = segment.place(*at);
            invariant!(place.is_some(), "positions of the log have 32 bits");
            let Some(place) = place else { continue };
            let Some(entry) = shared.index.entry(*hash, place) else { continue };
            self.admission.note_turn(queue, entry.heat);
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
        if let (Some(lower), Removed::Entry(bucket)) = (shared.lower, removed) {
            self.demote(shared, lower, (hash, bucket, queue), place);
        }
    }

    /// Queues the evicted row at `place` for the lower tier, unless that had the row's page.
    fn demote(
        &mut self,
        shared: Shared<'_>,
        lower: &ScmTier,
        (hash, bucket, queue): (u64, Bucket, Queue),
        place: Position,
    ) {
        let words = shared.words.get(word_of(place), SEGMENT_WORDS);
        let row = RowRef::read(words);
        invariant!(row.is_some(), "an evicted row can be read until its segment is reused");
        let Some(row) = row.filter(RowRef::is_from_device) else { return };
        let words = words.get(..row.words()).unwrap_or_default();
        let queued = match self.evicted_charge {
            Some(_) => self.evicted.push(EvictedRow { hash, bucket, queue }, words),
            None => Queued::Full,
        };
        match queued {
            Queued::Waiting => {}
            Queued::WakeWriter => lower.wake(),
            Queued::Full => lower.note_row_refused(),
        }
    }

    /// Queues evicted rows for the lower tier from now on, if there is memory for the buffers.
    pub(super) fn enable_demotion(&mut self, account: &Account) {
        self.evicted_charge = EvictedRows::charge(account);
    }

    /// Swaps the rows that wait with `taken`, which is empty.
    pub(super) fn take_evicted(&mut self, taken: &mut EvictedRows) {
        std::mem::swap(&mut self.evicted, taken);
    }

    /// The rows of a segment: their first words and hashes. Prefetches their buckets.
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
        invariant!(at == segment.end, "a segment is filled with whole rows");
        rows
    }

    /// Appends the row at `from` to the main queue again; false if there is no room.
    fn rewrite(&mut self, shared: Shared<'_>, from: Position, hash: u64, heat: Heat) -> bool {
        let old = shared.words.get(word_of(from), SEGMENT_WORDS);
        let row = RowRef::read(old);
        invariant!(row.is_some(), "an index entry names a whole row");
        let Some(count) = row.map(|row| row.words()) else { return false };
        let Some((to, words)) = self.append(shared, Queue::Main, count, false) else {
            return false;
        };
        words.iter().zip(old).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        shared.index.replace(hash, from, to, heat)
    }

    /// Adds up to `chunks` chunks, as far as there is memory.
    pub(super) fn grow(&mut self, chunks: u64) {
        (0..chunks).take_while(|_| self.segments.grow()).for_each(drop);
    }

    /// Gives one chunk back; returns its bytes, 0 if it is the last one or cannot be emptied.
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
                let free = self.segments.take_elsewhere(chunk);
                invariant!(free.is_some(), "cleaning freed segments for all of a chunk elsewhere");
                let Some(number) = free else { return 0 };
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

    /// Copies segment `from` to segment `to`, and makes the index name the copies.
    fn relocate(&mut self, shared: Shared<'_>, from: Segment, to: Segment) {
        let old = shared.words.get(from.number * SEGMENT_WORDS, from.end);
        let new = shared.words.get(to.number * SEGMENT_WORDS, from.end);
        invariant!(new.len() == old.len(), "segments have the same size");
        fence(Release);
        new.iter().zip(old).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        let rows = self.rows_of(shared, from);
        for (at, hash) in &rows {
            if let (Some(old), Some(new)) = (from.place(*at), to.place(*at))
                && let Some(entry) = shared.index.entry(*hash, old)
            {
                shared.index.replace(*hash, old, new, entry.heat);
            }
        }
        self.rows = rows;
    }
}

//! Memory of the row log: chunks of 2 MiB, charged one by one (I10), cut into segments of 64 KiB.
//!
//! A segment is free or belongs to a queue. A chunk can be given back when all its segments are free; the log
//! moves rows out of it before. Owned by the log's mutex.

use arena::{CHUNK_WORDS, WORD_BYTES, Words};
use base::{Account, Charge, invariant};

/// Words of a segment: 64 KiB, or a whole chunk if that is smaller, as under Miri.
pub(super) const SEGMENT_WORDS: usize = if CHUNK_WORDS < 8192 { CHUNK_WORDS } else { 8192 };
const _: () = assert!(CHUNK_WORDS.is_multiple_of(SEGMENT_WORDS));

/// Segments of a chunk.
pub(super) const CHUNK_SEGMENTS: usize = CHUNK_WORDS / SEGMENT_WORDS;

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: u64 = (CHUNK_WORDS * WORD_BYTES) as u64;

/// The segments that have memory.
#[derive(Debug)]
pub(super) struct Segments {
    account: Account,
    chunks_max: usize,
    /// The charge of each chunk that was ever used; `None` while the chunk has no memory.
    chunks: Vec<Option<Charge>>,
    /// Chunks that have memory.
    present: usize,
    /// Numbers of the free segments.
    free: Vec<usize>,
}

impl Segments {
    pub(super) fn new(account: &Account, words: &Words) -> Self {
        let chunks_max = words.len() / CHUNK_WORDS;
        Self {
            account: account.clone(),
            chunks_max,
            chunks: Vec::new(),
            present: 0,
            free: Vec::new(),
        }
    }

    /// Chunks that have memory.
    pub(super) const fn chunks(&self) -> usize {
        self.present
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    pub(super) fn put(&mut self, segment: usize) {
        debug_assert!(!self.free.contains(&segment), "a segment is free or in a queue, never both");
        self.free.push(segment);
        invariant!(
            self.free.len() <= self.present * CHUNK_SEGMENTS,
            "free segments are in chunks that have memory"
        );
    }

    /// Adds a chunk of free segments; false if there is no memory for one.
    pub(super) fn grow(&mut self) -> bool {
        let absent = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        if absent >= self.chunks_max {
            return false;
        }
        let Some(charge) = self.account.try_charge(CHUNK_BYTES) else { return false };
        match self.chunks.get_mut(absent) {
            Some(place) => *place = Some(charge),
            None => self.chunks.push(Some(charge)),
        }
        self.present += 1;
        self.free.extend((absent * CHUNK_SEGMENTS..(absent + 1) * CHUNK_SEGMENTS).rev());
        true
    }

    /// The chunk with the most free segments.
    pub(super) fn emptiest(&self) -> Option<usize> {
        let mut free = vec![0usize; self.chunks.len()];
        for segment in &self.free {
            if let Some(count) = free.get_mut(segment / CHUNK_SEGMENTS) {
                *count += 1;
            }
        }
        let present = self.chunks.iter().zip(free).enumerate().filter(|(_, (it, _))| it.is_some());
        present.max_by_key(|(_, (_, free))| *free).map(|(number, _)| number)
    }

    /// Takes a free segment outside `chunk`.
    pub(super) fn take_elsewhere(&mut self, chunk: usize) -> Option<usize> {
        let at = self.free.iter().rposition(|segment| segment / CHUNK_SEGMENTS != chunk)?;
        Some(self.free.swap_remove(at))
    }

    /// Gives `chunk` back if all its segments are free; returns whether it did.
    pub(super) fn give_back(&mut self, chunk: usize, words: &Words) -> bool {
        let is_of = |segment: &usize| segment / CHUNK_SEGMENTS == chunk;
        if self.free.iter().filter(|segment| is_of(segment)).count() < CHUNK_SEGMENTS {
            return false;
        }
        self.free.retain(|segment| !is_of(segment));
        words.discard(chunk);
        // After the memory is discarded: charged memory is never less than used memory (I10).
        let given = self.chunks.get_mut(chunk).and_then(Option::take).is_some();
        invariant!(given, "a chunk with free segments has memory");
        self.present -= usize::from(given);
        given
    }
}

//! Rows that DRAM evicted and that wait to be written to the lower tier. Bounded: a row that finds no room is
//! lost.
//!
//! There are two of these buffers: [`super::log::RowLog`] fills one under its mutex, while the background
//! task writes the other to the tier.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arena::{Bucket, WORD_BYTES};
use base::{Account, Charge, invariant};

use super::policy::Queue;

/// Most words of rows that wait: 256 KiB, that is a thousand rows of 250 bytes. While readers keep all
/// processors busy, so many rows are evicted in some 25 ms.
const WORDS_MAX: usize = 32 << 10;

/// Most rows that wait.
const ROWS_MAX: usize = 2048;

/// The background task is woken when this many rows wait; fewer wait until its next regular step.
const WAKE_AT: usize = 64;

/// A buffer of evicted rows.
#[derive(Debug, Default)]
pub(super) struct EvictedRows {
    words: Vec<AtomicU64>,
    rows: Vec<QueuedRow>,
}

/// An evicted row.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvictedRow {
    pub(super) hash: u64,
    /// Its bucket in the index just after the eviction. A later write of the key changes the bucket.
    pub(super) bucket: Bucket,
    /// The queue that it was evicted from.
    pub(super) queue: Queue,
}

/// An evicted row in the buffer.
#[derive(Clone, Copy, Debug)]
struct QueuedRow {
    row: EvictedRow,
    /// First word and number of words.
    at: usize,
    len: usize,
}

/// Outcome of [`EvictedRows::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// The row waits.
    Waiting,
    /// The row waits, and the background task is to be woken.
    WakeWriter,
    /// There is no room for the row.
    Full,
}

impl EvictedRows {
    /// Charges the memory of two buffers.
    pub(super) fn charge(account: &Account) -> Option<Charge> {
        let one = WORDS_MAX * WORD_BYTES + ROWS_MAX * size_of::<QueuedRow>();
        account.try_charge(2 * one as u64)
    }

    /// Adds the row in `words`.
    pub(super) fn push(&mut self, row: EvictedRow, words: &[AtomicU64]) -> Queued {
        let (at, len) = (self.words.len(), words.len());
        if at + len > WORDS_MAX || self.rows.len() >= ROWS_MAX {
            return Queued::Full;
        }
        self.words.extend(words.iter().map(|word| AtomicU64::new(word.load(Relaxed))));
        self.rows.push(QueuedRow { row, at, len });
        if self.rows.len() == WAKE_AT { Queued::WakeWriter } else { Queued::Waiting }
    }

    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows with their words.
    pub(super) fn rows(&self) -> impl Iterator<Item = (EvictedRow, &[AtomicU64])> {
        let words = |row: &QueuedRow| {
            let words = self.words.get(row.at..row.at + row.len);
            invariant!(words.is_some(), "the words of a queued row are in the buffer");
            words.unwrap_or_default()
        };
        self.rows.iter().map(move |row| (row.row, words(row)))
    }

    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.rows.clear();
    }
}

#[cfg(test)]
mod tests {
    use arena::TagBuckets;

    use super::*;

    #[test]
    fn the_buffer_refuses_rows_beyond_its_bounds() {
        let index = TagBuckets::new(&Account::unlimited("test"), 100).unwrap();
        let bucket = index.bucket(1).unwrap();
        let row = |hash| EvictedRow { hash, bucket, queue: Queue::Main };
        let words: Vec<_> = (0..100).map(AtomicU64::new).collect();
        let mut evicted = EvictedRows::default();
        let outcomes: Vec<_> =
            (0..WORDS_MAX / 100).map(|n| evicted.push(row(n as u64), &words)).collect();
        assert_eq!(outcomes.iter().filter(|it| **it == Queued::WakeWriter).count(), 1);
        assert!(!outcomes.contains(&Queued::Full));
        assert_eq!(evicted.push(row(7), &words), Queued::Full);
        assert_eq!((evicted.len(), evicted.rows().count()), (WORDS_MAX / 100, WORDS_MAX / 100));
        let (third, lies) = evicted.rows().nth(3).unwrap();
        assert_eq!((third.hash, lies[99].load(Relaxed), third.bucket), (3, 99, bucket));
        evicted.clear();
        assert_eq!((evicted.push(row(7), &words), evicted.rows().count()), (Queued::Waiting, 1));
        let short = &words[..4];
        let more = (0..).take_while(|n| evicted.push(row(*n), short) != Queued::Full).count();
        assert_eq!(more + 1, ROWS_MAX);
    }
}

//! Rows that leave DRAM for the tier below, until they are written there. Bounded: what finds no room goes.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arena::{Bucket, WORD_BYTES};
use base::{Account, Charge};

use super::policy::Queue;

/// Words of rows that wait at once, at most: 256 KiB, a thousand rows of 250 bytes, which leave in some 25 ms
/// beside readers that keep all processors busy.
const WORDS_MAX: usize = 32 << 10;

/// Rows that do.
const ROWS_MAX: usize = 2048;

/// From so many rows on, whoever writes them is woken; fewer wait until it looks by itself.
const WAKE_AT: usize = 64;

/// Rows that wait. There are two of it: one is filled while the other is written.
#[derive(Debug, Default)]
pub(super) struct EvictedRows {
    words: Vec<AtomicU64>,
    rows: Vec<QueuedRow>,
}

/// A row that leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvictedRow {
    pub(super) hash: u64,
    /// Its bucket once it was gone: it changes as its key is written.
    pub(super) bucket: Bucket,
    /// Which it left.
    pub(super) queue: Queue,
}

/// A row that left.
#[derive(Clone, Copy, Debug)]
struct QueuedRow {
    row: EvictedRow,
    /// Where it begins among the words, and how many they are.
    at: usize,
    len: usize,
}

/// What became of a row that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// It waits.
    Waiting,
    /// As above, and those that wait are to be written now.
    WakeWriter,
    /// There is no room.
    Full,
}

impl EvictedRows {
    /// The memory of two of it.
    pub(super) fn charge(account: &Account) -> Option<Charge> {
        let one = WORDS_MAX * WORD_BYTES + ROWS_MAX * size_of::<QueuedRow>();
        account.try_charge(2 * one as u64)
    }

    /// Has the row in `words` wait.
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

    /// The rows, as they lie in words.
    pub(super) fn rows(&self) -> impl Iterator<Item = (EvictedRow, &[AtomicU64])> {
        let words = |row: &QueuedRow| self.words.get(row.at..row.at + row.len).unwrap_or_default();
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
    fn rows_wait_until_they_are_too_many() {
        let index = TagBuckets::new(&Account::unlimited("test"), 100).unwrap();
        let bucket = index.bucket(1).unwrap();
        let row = |hash| EvictedRow { hash, bucket, queue: Queue::Main };
        let words: Vec<_> = (0..100).map(AtomicU64::new).collect();
        let mut evicted = EvictedRows::default();
        let told: Vec<_> =
            (0..WORDS_MAX / 100).map(|n| evicted.push(row(n as u64), &words)).collect();
        assert_eq!(told.iter().filter(|it| **it == Queued::WakeWriter).count(), 1);
        assert!(!told.contains(&Queued::Full));
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

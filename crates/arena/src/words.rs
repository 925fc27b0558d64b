//! Address space read and written a word at a time by any number of threads.
//!
//! What lies here may be overwritten while it is read: whoever reads checks afterwards, by a count
//! of changes kept elsewhere, whether what it saw was whole ([`crate::TagBuckets`]). So every access
//! is a relaxed atomic one, and none is ever out of place: the address space stays for as long as
//! the [`Words`] do. Memory comes when a word is touched and goes by [`Words::discard`], a chunk of
//! 2 MiB at a time; what went reads as zeros. The owner charges it before it touches it (I10).

use base::{Error, Result};

use crate::chunk::CHUNK_BYTES;
use crate::sync::atomic::AtomicU64;

/// The size of a word, bytes.
pub const WORD_BYTES: usize = size_of::<u64>();

/// The words of a chunk.
pub const CHUNK_WORDS: usize = if SMALL { 64 } else { CHUNK_BYTES / WORD_BYTES };

/// Under test schedulers a chunk is small, so that all of it is used.
const SMALL: bool = cfg!(any(miri, all(test, feature = "shuttle")));

/// The words of a cache line.
const LINE_WORDS: usize = 8;

/// The least address space worth having, words: a chunk.
const WORDS_MIN: usize = CHUNK_WORDS;

/// Words in one piece of address space, zero at first.
pub struct Words {
    #[cfg(not(any(miri, all(test, feature = "shuttle"))))]
    memory: crate::chunk::Chunk,
    #[cfg(any(miri, all(test, feature = "shuttle")))]
    memory: Box<[AtomicU64]>,
    len: usize,
}

impl Words {
    /// Address space for `words` words, rounded up to whole chunks, or for half as many, and so on,
    /// where the process may not have that much. It takes no memory before it is touched.
    ///
    /// # Errors
    /// `Retry` where there is not even a chunk of it.
    pub fn reserve(words: usize) -> Result<Self> {
        let mut len = words.max(WORDS_MIN).next_multiple_of(CHUNK_WORDS);
        loop {
            match Self::of(len) {
                Err(_) if len > WORDS_MIN => len = (len / 2).next_multiple_of(CHUNK_WORDS),
                made => return made,
            }
        }
    }

    #[cfg(not(any(miri, all(test, feature = "shuttle"))))]
    fn of(len: usize) -> Result<Self> {
        let bytes = len.checked_mul(WORD_BYTES).ok_or_else(|| Error::retry("address space"))?;
        Ok(Self { memory: crate::chunk::Chunk::reserve(bytes)?, len })
    }

    #[cfg(any(miri, all(test, feature = "shuttle")))]
    fn of(len: usize) -> Result<Self> {
        if len > 1 << 20 {
            return Err(Error::retry("address space"));
        }
        Ok(Self { memory: (0..len).map(|_| AtomicU64::new(0)).collect(), len })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none; there always are.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn all(&self) -> &[AtomicU64] {
        #[cfg(not(any(miri, all(test, feature = "shuttle"))))]
        {
            let start = self.memory.start().cast::<AtomicU64>();
            // SAFETY: the mapping is `len` words long, aligned to a chunk, zeroed by the operating
            // system and valid for as long as `self`; it is only ever accessed as atomic words.
            unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) }
        }
        #[cfg(any(miri, all(test, feature = "shuttle")))]
        &self.memory
    }

    /// The `count` words from `at` on; fewer where they end before.
    #[inline]
    #[must_use]
    pub fn get(&self, at: usize, count: usize) -> &[AtomicU64] {
        let start = at.min(self.len);
        let end = start.saturating_add(count).min(self.len);
        self.all().get(start..end).unwrap_or_default()
    }

    /// Asks the processor for the cache line of word `at`.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        if let Some(word) = self.all().get(at) {
            crate::prefetch::line(std::ptr::NonNull::from(word).cast());
        }
    }

    /// Asks the processor for every cache line of the `count` words from `at` on but the first.
    #[inline]
    pub fn prefetch_lines(&self, at: usize, count: usize) {
        for line in self.get(at, count).chunks(LINE_WORDS).skip(1) {
            crate::prefetch::line(std::ptr::NonNull::from(line).cast());
        }
    }

    /// Gives the memory of chunk number `chunk` back to the operating system: to every thread it is
    /// as if zeros were stored in its words, one by one.
    pub fn discard(&self, chunk: usize) {
        let from = chunk.saturating_mul(CHUNK_WORDS);
        #[cfg(not(any(miri, all(test, feature = "shuttle"))))]
        self.memory.discard_within(from * WORD_BYTES, CHUNK_BYTES);
        #[cfg(any(miri, all(test, feature = "shuttle")))]
        for word in self.get(from, CHUNK_WORDS) {
            word.store(0, crate::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Words({})", self.len)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::sync::atomic::Ordering::Relaxed;

    #[test]
    fn words_are_zero_until_written_and_after_their_chunk_went() {
        let words = Words::reserve(3 * CHUNK_WORDS - 1).unwrap();
        assert_eq!(words.len(), 3 * CHUNK_WORDS);
        let edge = words.get(CHUNK_WORDS - 1, 2);
        assert_eq!((edge.len(), edge[0].load(Relaxed)), (2, 0));
        edge.iter().for_each(|word| word.store(7, Relaxed));
        words.discard(0);
        assert_eq!((edge[0].load(Relaxed), edge[1].load(Relaxed)), (0, 7));
        edge[0].store(8, Relaxed);
        assert_eq!(words.get(CHUNK_WORDS - 1, 1)[0].load(Relaxed), 8);
        assert_eq!(words.get(3 * CHUNK_WORDS - 1, 9).len(), 1);
        assert!(words.get(usize::MAX, 1).is_empty());
        words.discard(9);
        words.prefetch(usize::MAX);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri fills all that is asked for, for minutes")]
    fn more_than_there_is_becomes_less() {
        let words = Words::reserve(usize::MAX / 16).unwrap();
        assert!(words.len() >= CHUNK_WORDS);
    }
}

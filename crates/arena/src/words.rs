//! An array of words in reserved address space, which any number of threads read and write.
//!
//! Words may be overwritten while they are read. So every access is a relaxed atomic one, and a reader checks
//! afterwards, by a version kept elsewhere ([`crate::TagBuckets`]), whether the words that it saw belong
//! together. Every access is valid, because the address space stays reserved as long as the [`Words`] exist.
//! Memory is allocated when a word is touched, and given back by [`Words::discard`] in chunks of 2 MiB;
//! discarded words read as zeros. The owner charges memory before it touches it (I10).

use base::{Error, Result};

use crate::chunk::CHUNK_BYTES;
use crate::sync::atomic::AtomicU64;

/// The size of a word, bytes.
pub const WORD_BYTES: usize = size_of::<u64>();

/// The number of words in a chunk.
pub const CHUNK_WORDS: usize = if SMALL { 64 } else { CHUNK_BYTES / WORD_BYTES };

/// Under Miri and shuttle a chunk is small, so that tests use all of it.
const SMALL: bool = cfg!(any(miri, all(test, feature = "shuttle")));

/// The number of words in a cache line.
const LINE_WORDS: usize = 8;

/// The smallest reservation, words: one chunk.
const WORDS_MIN: usize = CHUNK_WORDS;

/// Words in one piece of address space, initially zero.
pub struct Words {
    #[cfg(not(any(miri, all(test, feature = "shuttle"))))]
    memory: crate::chunk::Chunk,
    #[cfg(any(miri, all(test, feature = "shuttle")))]
    memory: Box<[AtomicU64]>,
    len: usize,
}

impl Words {
    /// Reserves address space for `words` words, rounded up to whole chunks. If the process may not have that
    /// much, reserves half of it, and so on. It uses no memory before a word is touched.
    ///
    /// # Errors
    /// `Retry` if the process may not even reserve one chunk.
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
        let bytes = len
            .checked_mul(WORD_BYTES)
            .ok_or_else(|| Error::retry("address space").never_heals())?;
        Ok(Self { memory: crate::chunk::Chunk::reserve(bytes)?, len })
    }

    #[cfg(any(miri, all(test, feature = "shuttle")))]
    fn of(len: usize) -> Result<Self> {
        if len > 1 << 20 {
            return Err(Error::retry("address space"));
        }
        Ok(Self { memory: (0..len).map(|_| AtomicU64::new(0)).collect(), len })
    }

    /// The number of words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no words; always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn all(&self) -> &[AtomicU64] {
        #[cfg(not(any(miri, all(test, feature = "shuttle"))))]
        {
            let start = self.memory.start().cast::<AtomicU64>();
            // SAFETY: the mapping has `len` words, is aligned to a chunk, zeroed by the operating system and
            // valid as long as `self`. It is accessed only as atomic words.
            unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) }
        }
        #[cfg(any(miri, all(test, feature = "shuttle")))]
        &self.memory
    }

    /// The `count` words from `at` on; fewer at the end of the array.
    #[inline]
    #[must_use]
    pub fn get(&self, at: usize, count: usize) -> &[AtomicU64] {
        let start = at.min(self.len);
        let end = start.saturating_add(count).min(self.len);
        self.all().get(start..end).unwrap_or_default()
    }

    /// Prefetches the cache line of word `at`.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        if let Some(word) = self.all().get(at) {
            crate::prefetch::line(std::ptr::NonNull::from(word).cast());
        }
    }

    /// Prefetches all cache lines but the first of the `count` words from `at` on.
    #[inline]
    pub fn prefetch_lines(&self, at: usize, count: usize) {
        for line in self.get(at, count).chunks(LINE_WORDS).skip(1) {
            crate::prefetch::line(std::ptr::NonNull::from(line).cast());
        }
    }

    /// Gives the memory of chunk number `chunk` back to the operating system. To other threads this looks as
    /// if zeros were stored in its words, one by one.
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
    fn words_are_zero_until_written_and_after_their_chunk_is_discarded() {
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
    #[cfg_attr(miri, ignore = "Miri fills the whole reservation, which takes minutes")]
    fn reserve_halves_a_request_that_is_too_large() {
        let words = Words::reserve(usize::MAX / 16).unwrap();
        assert!(words.len() >= CHUNK_WORDS);
    }
}

//! A sparse set of numbers: one bit per number, allocated in chunks as numbers are set. The ledger keeps the
//! keys of a run in it, which may be few out of many.
//!
//! Concurrency: any number of threads set and read bits. Cost: 128 KiB for each chunk of a million numbers of
//! which one is set, 16 bytes for each other chunk.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::{Error, Result};

/// Words per chunk.
const CHUNK_WORDS: u64 = 1 << 14;

type Chunk = Box<[AtomicU64]>;

pub(super) struct Bits(Box<[OnceLock<Chunk>]>);

impl Bits {
    /// An empty set for the numbers below `end`.
    pub(super) fn new(end: u64) -> Result<Self> {
        let no_memory = || Error::retry("memory to note the keys that were written").got(end / 8);
        let chunks = usize::try_from(end.div_ceil(CHUNK_WORDS * 64)).map_err(|_| no_memory())?;
        let mut bits = Vec::new();
        bits.try_reserve_exact(chunks).map_err(|_| no_memory())?;
        bits.resize_with(chunks, OnceLock::new);
        Ok(Self(bits.into_boxed_slice()))
    }

    /// Sets the bit of `number`. A number past the end has no bit and is ignored.
    #[inline]
    pub(super) fn set(&self, number: u64) {
        let Some(chunk) = self.0.get((number / 64 / CHUNK_WORDS) as usize) else { return };
        let chunk = chunk.get_or_init(|| (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect());
        if let Some(word) = chunk.get((number / 64 % CHUNK_WORDS) as usize) {
            // Ordered against other bits: `Ledger::inserted` looks at the bits of neighbours.
            word.fetch_or(1 << (number % 64), SeqCst);
        }
    }

    #[inline]
    pub(super) fn has(&self, number: u64) -> bool {
        self.word(number) >> (number % 64) & 1 == 1
    }

    /// The 64 bits around `number`.
    #[inline]
    pub(super) fn word(&self, number: u64) -> u64 {
        let chunk = self.0.get((number / 64 / CHUNK_WORDS) as usize).and_then(OnceLock::get);
        let word = chunk.and_then(|words| words.get((number / 64 % CHUNK_WORDS) as usize));
        word.map_or(0, |word| word.load(SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_set_bits_read_as_set() {
        let bits = Bits::new(1 << 32).unwrap();
        let set = [0, 63, 64, (1 << 20) - 1, 1 << 20, 3_000_000_000, (1 << 32) - 1];
        set.iter().for_each(|number| bits.set(*number));
        bits.set(1 << 40);
        for number in set {
            assert!(bits.has(number), "{number}");
            assert_eq!(bits.has(number ^ 2), set.contains(&(number ^ 2)));
        }
        assert_eq!((bits.word(5), bits.word(1 << 40)), (1 << 63 | 1, 0));
        assert_eq!(bits.0.iter().filter(|chunk| chunk.get().is_some()).count(), 4);
    }
}

//! A bit for each number, made as numbers come: what a run wrote, out of more keys than it may
//! touch.
//!
//! Concurrency: bits are set and read by any number of threads. Cost: 128 KiB for each stretch of a
//! million numbers in which one is set, 16 bytes for each in which none is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::{Error, Result};

/// Words of a stretch.
const STRETCH_WORDS: u64 = 1 << 14;

type Stretch = Box<[AtomicU64]>;

pub(super) struct Bits(Box<[OnceLock<Stretch>]>);

impl Bits {
    /// Room for the numbers below `end`, all bits clear.
    pub(super) fn new(end: u64) -> Result<Self> {
        let no_memory = || Error::retry("memory to note which keys were written").got(end / 8);
        let stretches =
            usize::try_from(end.div_ceil(STRETCH_WORDS * 64)).map_err(|_| no_memory())?;
        let mut bits = Vec::new();
        bits.try_reserve_exact(stretches).map_err(|_| no_memory())?;
        bits.resize_with(stretches, OnceLock::new);
        Ok(Self(bits.into_boxed_slice()))
    }

    /// Sets the bit of `number`; one past the end has none.
    #[inline]
    pub(super) fn set(&self, number: u64) {
        let Some(stretch) = self.0.get((number / 64 / STRETCH_WORDS) as usize) else { return };
        let stretch =
            stretch.get_or_init(|| (0..STRETCH_WORDS).map(|_| AtomicU64::new(0)).collect());
        if let Some(word) = stretch.get((number / 64 % STRETCH_WORDS) as usize) {
            // Ordered against other bits: the end of the keys advances by looking at its neighbours'.
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
        let stretch = self.0.get((number / 64 / STRETCH_WORDS) as usize).and_then(OnceLock::get);
        let word = stretch.and_then(|words| words.get((number / 64 % STRETCH_WORDS) as usize));
        word.map_or(0, |word| word.load(SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_where_they_were_set() {
        let bits = Bits::new(1 << 32).unwrap();
        let set = [0, 63, 64, (1 << 20) - 1, 1 << 20, 3_000_000_000, (1 << 32) - 1];
        set.iter().for_each(|number| bits.set(*number));
        bits.set(1 << 40);
        for number in set {
            assert!(bits.has(number), "{number}");
            assert_eq!(bits.has(number ^ 2), set.contains(&(number ^ 2)));
        }
        assert_eq!((bits.word(5), bits.word(1 << 40)), (1 << 63 | 1, 0));
        assert_eq!(bits.0.iter().filter(|stretch| stretch.get().is_some()).count(), 4);
    }
}

//! What the driver knows to be in the store: for each key number, the run that wrote it last.
//!
//! A stack of layers, newest on top, one for each run of writes: all keys, or a bit for each key
//! written. An ordered fill hides what is below it, so the common fill-then-read sequence keeps
//! nothing at all. Below the layers lies an empty store, or an unknown one.
//!
//! Concurrency: writers set bits in the top layer while a run lasts; layers change only between
//! runs, by `&mut`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::{Error, Result};

/// The most layers kept. An older one is given up, and what lies below becomes unknown.
const LAYERS_MAX: usize = 16;

/// What must be found under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Anything, or nothing.
    Unknown,
    /// Nothing.
    Absent,
    /// The value written in this epoch.
    Written(u8),
}

pub(super) struct Ledger {
    num: u64,
    layers: Vec<Layer>,
    below_is_unknown: bool,
}

struct Layer {
    epoch: u8,
    written: Written,
}

enum Written {
    All,
    Bits(Box<[AtomicU64]>),
}

impl Written {
    fn has(&self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Bits(words) => word(words, number) >> (number % 64) & 1 == 1,
        }
    }
}

fn word(words: &[AtomicU64], number: u64) -> u64 {
    let at = usize::try_from(number / 64).ok();
    at.and_then(|at| words.get(at)).map_or(0, |word| word.load(Relaxed))
}

impl Ledger {
    pub(super) fn new(num: u64, existing: bool) -> Self {
        Self { num, layers: Vec::new(), below_is_unknown: existing }
    }

    /// Opens the layer of a run of writes. An ordered fill does without one until it is complete.
    pub(super) fn begin(&mut self, epoch: u8, fills_in_order: bool) -> Result<()> {
        if self.layers.len() >= LAYERS_MAX {
            self.layers.remove(0);
            self.below_is_unknown = true;
        }
        let written = if fills_in_order { Written::All } else { Written::Bits(bits(self.num)?) };
        self.layers.push(Layer { epoch, written });
        Ok(())
    }

    /// Ends an ordered fill: every key is in its layer, and the layers below are hidden.
    pub(super) fn complete(&mut self) {
        let hidden = self.layers.len().saturating_sub(1);
        self.layers.drain(..hidden);
    }

    /// Gives everything up, after a run that failed half way.
    pub(super) fn forget(&mut self) {
        self.layers.clear();
        self.below_is_unknown = true;
    }

    /// Notes a write of the current run.
    #[inline]
    pub(super) fn wrote(&self, number: u64) {
        if let Some(Layer { written: Written::Bits(words), .. }) = self.layers.last()
            && let Some(word) = words.get((number / 64) as usize)
        {
            // The bits are read after the run's threads are joined, which orders them.
            word.fetch_or(1 << (number % 64), Relaxed);
        }
    }

    /// What must be under the key of `number`, or under a key of no number.
    #[inline]
    pub(super) fn expected(&self, number: Option<u64>) -> Expected {
        let number = number.filter(|number| *number < self.num);
        let layer = number
            .and_then(|number| self.layers.iter().rev().find(|layer| layer.written.has(number)));
        match layer {
            Some(layer) => Expected::Written(layer.epoch),
            None if self.below_is_unknown => Expected::Unknown,
            None => Expected::Absent,
        }
    }

    /// The first key there must be from `number` on; `None` past the last. Only where the whole
    /// store is known ([`Ledger::live`] is some).
    pub(super) fn next(&self, number: u64) -> Option<u64> {
        let mut at = number;
        while at < self.num {
            let mut union = 0;
            for layer in &self.layers {
                match &layer.written {
                    Written::All => return Some(at),
                    Written::Bits(words) => union |= word(words, at),
                }
            }
            let ahead = union >> (at % 64);
            if ahead != 0 {
                return Some(at + u64::from(ahead.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// How many keys there must be; `None` where that is unknown.
    pub(super) fn live(&self) -> Option<u64> {
        if self.below_is_unknown {
            return None;
        }
        if self.layers.iter().any(|layer| matches!(layer.written, Written::All)) {
            return Some(self.num);
        }
        let words = (0..self.num.div_ceil(64)).map(|at| {
            self.layers.iter().fold(0, |union, layer| match &layer.written {
                Written::All => u64::MAX,
                Written::Bits(words) => union | word(words, at * 64),
            })
        });
        Some(words.map(|union| u64::from(union.count_ones())).sum())
    }
}

fn bits(num: u64) -> Result<Box<[AtomicU64]>> {
    let no_memory = || Error::retry("memory to note which keys were written").got(num / 8);
    let words = usize::try_from(num.div_ceil(64)).map_err(|_| no_memory())?;
    let mut bits = Vec::new();
    bits.try_reserve_exact(words).map_err(|_| no_memory())?;
    bits.resize_with(words, || AtomicU64::new(0));
    Ok(bits.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_layer_with_the_key_counts() {
        let mut ledger = Ledger::new(200, false);
        assert_eq!(ledger.expected(Some(5)), Expected::Absent);
        assert_eq!((ledger.live(), ledger.next(0)), (Some(0), None));
        ledger.begin(1, false).unwrap();
        for number in [5, 64, 199] {
            ledger.wrote(number);
        }
        ledger.begin(2, false).unwrap();
        ledger.wrote(64);
        ledger.wrote(65);
        assert_eq!(ledger.expected(Some(5)), Expected::Written(1));
        assert_eq!(ledger.expected(Some(64)), Expected::Written(2));
        assert_eq!(ledger.expected(Some(6)), Expected::Absent);
        assert_eq!(ledger.expected(Some(200)), Expected::Absent);
        assert_eq!(ledger.live(), Some(4));
        let next: Vec<_> = [0, 5, 6, 65, 66, 199].map(|from| ledger.next(from)).into();
        assert_eq!(next, [Some(5), Some(5), Some(64), Some(65), Some(199), Some(199)]);
        ledger.begin(3, true).unwrap();
        ledger.complete();
        assert_eq!(ledger.expected(Some(6)), Expected::Written(3));
        assert_eq!((ledger.live(), ledger.next(66)), (Some(200), Some(66)));
        assert_eq!((ledger.layers.len(), ledger.next(200)), (1, None));
    }

    #[test]
    fn an_existing_store_is_unknown_but_for_what_was_written() {
        let mut ledger = Ledger::new(100, true);
        ledger.begin(1, false).unwrap();
        ledger.wrote(3);
        assert_eq!(ledger.expected(Some(3)), Expected::Written(1));
        assert_eq!(ledger.expected(Some(4)), Expected::Unknown);
        assert_eq!((ledger.expected(None), ledger.live()), (Expected::Unknown, None));
    }

    #[test]
    fn layers_are_bounded() {
        let mut ledger = Ledger::new(10, false);
        for epoch in 0..100 {
            ledger.begin(epoch, false).unwrap();
            ledger.wrote(u64::from(epoch % 10));
        }
        assert_eq!(ledger.layers.len(), LAYERS_MAX);
        assert_eq!(ledger.expected(Some(9)), Expected::Written(99));
        assert_eq!(ledger.live(), None);
    }
}

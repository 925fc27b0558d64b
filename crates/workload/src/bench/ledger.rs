//! The content that the driver expects in the store: for each key number, the run that wrote it last.
//!
//! The ledger is a stack of layers, the newest on top, one per run of writes or deletes. A layer covers all
//! keys below a number, or has a bit for each key that its run touched. A fill in order hides all layers
//! below it, so a store that was filled in order and then read needs no bits. Below the layers lies an empty
//! store, or one of unknown content.
//!
//! Concurrency: during a run, its threads set bits of the top layer. Layers change only between runs, through
//! `&mut`. A run that reads the keys it writes also notes the beginning of each write: a read that overlaps
//! the write may find the old version or the new one.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::{Result, invariant};

use super::bits::Bits;

/// The most layers. One layer more drops the oldest, and the content below becomes unknown.
const LAYERS_MAX: usize = 16;

// Epochs have 8 bits, and must differ among the runs of the layers.
const _: () = assert!(LAYERS_MAX <= u8::MAX as usize);

/// The expected answer for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Any value, or none.
    Unknown,
    /// No value.
    Absent,
    /// This value.
    Written(Version),
}

/// The version that a run gives to every key it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// The run's epoch, which its values carry.
    pub(super) epoch: u8,
    /// The size of its values, bytes; `None` if sizes vary.
    pub(super) bytes: Option<usize>,
}

/// The effect of a run on the keys of its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The run writes the keys.
    Put(Version),
    /// The run deletes the keys.
    Delete,
}

pub(super) struct Ledger {
    /// The number of keys that a fill writes.
    num: u64,
    /// One past the last key that readers expect: `num` plus the completed inserts before the first one that
    /// is still under way.
    end: AtomicU64,
    /// The next key to insert.
    next_insert: AtomicU64,
    layers: Vec<Layer>,
    below_is_unknown: bool,
}

struct Layer {
    effect: Effect,
    touched: Touched,
    /// Keys that the run began to write; only in a run that also reads.
    begun: Option<Bits>,
}

enum Touched {
    /// Every key below this number.
    Below(u64),
    Some(Bits),
}

impl Touched {
    fn has(&self, number: u64) -> bool {
        match self {
            Self::Below(end) => number < *end,
            Self::Some(bits) => bits.has(number),
        }
    }

    fn word(&self, number: u64) -> u64 {
        match self {
            Self::Below(end) => match end.saturating_sub(number / 64 * 64) {
                0 => 0,
                inside => u64::MAX >> (64 - inside.min(64)),
            },
            Self::Some(bits) => bits.word(number),
        }
    }
}

impl Ledger {
    pub(super) fn new(num: u64, existing: bool) -> Self {
        let (end, next_insert) = (AtomicU64::new(num), AtomicU64::new(num));
        Self { num, end, next_insert, layers: Vec::new(), below_is_unknown: existing }
    }

    /// Opens the layer of a run that inserts at most `inserts` new keys. `reads_too` if the run also reads
    /// the keys that it writes.
    pub(super) fn begin(&mut self, effect: Effect, reads_too: bool, inserts: u64) -> Result<()> {
        let end = self.end();
        self.next_insert.store(end, SeqCst);
        let room = end.saturating_add(inserts);
        let begun = reads_too.then(|| Bits::new(room)).transpose()?;
        self.push(Layer { effect, touched: Touched::Some(Bits::new(room)?), begun });
        Ok(())
    }

    /// Opens the layer of a run that writes every key, and then calls [`Ledger::complete`].
    pub(super) fn begin_all(&mut self, version: Version) {
        self.push(Layer {
            effect: Effect::Put(version),
            touched: Touched::Below(self.num),
            begun: None,
        });
    }

    fn push(&mut self, layer: Layer) {
        if self.layers.len() >= LAYERS_MAX {
            self.layers.remove(0);
            self.below_is_unknown = true;
        }
        self.layers.push(layer);
    }

    /// Ends a run that wrote every key below `num`: the layers below are hidden, unless keys were inserted.
    pub(super) fn complete(&mut self) {
        let touched = self.layers.last().map(|layer| &layer.touched);
        let wrote_all = matches!(touched, Some(Touched::Below(end)) if *end == self.num);
        invariant!(wrote_all, "a completed run is a fill of every key");
        if self.end() > self.num {
            return;
        }
        let hidden = self.layers.len().saturating_sub(1);
        self.layers.drain(..hidden);
    }

    /// Makes all content unknown, after a run that failed half way.
    pub(super) fn forget(&mut self) {
        self.layers.clear();
        self.below_is_unknown = true;
    }

    /// Notes that the current run begins to write a key.
    #[inline]
    pub(super) fn writing(&self, number: u64) {
        if let Some(begun) = self.layers.last().and_then(|layer| layer.begun.as_ref()) {
            begun.set(number);
        }
    }

    /// Notes that the current run has written or deleted a key.
    #[inline]
    pub(super) fn wrote(&self, number: u64) {
        if let Some(Layer { touched: Touched::Some(bits), .. }) = self.layers.last() {
            bits.set(number);
            debug_assert!(bits.has(number), "a layer has room for every key of its run");
        }
    }

    /// One past the last key that readers expect.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.end.load(SeqCst)
    }

    /// The number of a new key. The caller notes its write as any other.
    pub(super) fn insert(&self) -> u64 {
        self.next_insert.fetch_add(1, SeqCst)
    }

    /// Advances [`Ledger::end`] over all completed inserts, in order.
    pub(super) fn inserted(&self) {
        let Some(Layer { touched: Touched::Some(bits), .. }) = self.layers.last() else { return };
        let mut end = self.end();
        // The thread that completes the first unfinished insert also passes those that completed behind it.
        // Each thread sets its bit before it looks at the end, so one of two neighbours sees the other's bit.
        while bits.has(end) {
            let advanced = self.end.compare_exchange(end, end + 1, SeqCst, SeqCst);
            end = advanced.map_or_else(|other| other, |old| old + 1);
        }
    }

    /// The expected answer for the key of `number`; `None` stands for a key that is never written.
    #[inline]
    pub(super) fn expected(&self, number: Option<u64>) -> Expected {
        self.expected_of(&self.layers, number)
    }

    /// The answer expected before the current run, if that run also reads: a reader that began before the key
    /// was written may find it.
    #[inline]
    pub(super) fn expected_before(&self, number: Option<u64>) -> Expected {
        match self.layers.split_last() {
            Some((top, below)) if top.begun.is_some() => self.expected_of(below, number),
            _ => self.expected(number),
        }
    }

    #[inline]
    fn expected_of(&self, layers: &[Layer], number: Option<u64>) -> Expected {
        let number = number.filter(|number| *number < self.end());
        let layer =
            number.and_then(|number| layers.iter().rev().find(|layer| layer.touched.has(number)));
        match layer.map(|layer| layer.effect) {
            Some(Effect::Put(version)) => Expected::Written(version),
            Some(Effect::Delete) => Expected::Absent,
            None if self.below_is_unknown => Expected::Unknown,
            None => Expected::Absent,
        }
    }

    /// The version that the current run may already have written to the key of `number`, besides the one
    /// expected before.
    #[inline]
    pub(super) fn under_way(&self, number: u64) -> Option<Version> {
        let top = self.layers.last()?;
        match top.effect {
            Effect::Put(version) if top.begun.as_ref()?.has(number) => Some(version),
            _ => None,
        }
    }

    /// The expected keys among the 64 around `number`, a bit each.
    fn word(&self, number: u64) -> u64 {
        self.layers.iter().fold(0, |there, layer| {
            let touched = layer.touched.word(number);
            match layer.effect {
                Effect::Put(_) => there | touched,
                Effect::Delete => there & !touched,
            }
        })
    }

    /// The first expected key from `number` on; `None` past the last. Valid only if the whole content is
    /// known, that is if [`Ledger::live`] is some.
    pub(super) fn next(&self, number: u64) -> Option<u64> {
        let mut at = number;
        let end = self.end();
        while at < end {
            let ahead = self.word(at) >> (at % 64);
            if ahead != 0 {
                return Some(at + u64::from(ahead.trailing_zeros())).filter(|next| *next < end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The number of expected keys; `None` if that is unknown.
    pub(super) fn live(&self) -> Option<u64> {
        if self.below_is_unknown {
            return None;
        }
        if let [Layer { touched: Touched::Below(end), .. }] = self.layers.as_slice() {
            return Some(*end);
        }
        let words = (0..self.end().div_ceil(64)).map(|at| self.word(at * 64).count_ones());
        Some(words.map(u64::from).sum())
    }

    /// Bytes of all expected keys and values, with keys of `key_bytes`; `None` if that is unknown.
    pub(super) fn live_bytes(&self, key_bytes: usize) -> Option<u64> {
        let mut value_bytes = None;
        for layer in &self.layers {
            if let Effect::Put(version) = layer.effect {
                let bytes = version.bytes?;
                if *value_bytes.get_or_insert(bytes) != bytes {
                    return None;
                }
            }
        }
        let entry_bytes = (key_bytes + value_bytes.unwrap_or_default()) as u64;
        Some(self.live()? * entry_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(epoch: u8) -> Effect {
        Effect::Put(version(epoch))
    }

    fn version(epoch: u8) -> Version {
        Version { epoch, bytes: Some(10) }
    }

    fn written(epoch: u8) -> Expected {
        Expected::Written(version(epoch))
    }

    #[test]
    fn the_newest_layer_that_has_a_key_decides() {
        let mut ledger = Ledger::new(200, false);
        assert_eq!(ledger.expected(Some(5)), Expected::Absent);
        assert_eq!((ledger.live(), ledger.next(0)), (Some(0), None));
        ledger.begin(put(1), false, 0).unwrap();
        for number in [5, 64, 199] {
            ledger.wrote(number);
        }
        ledger.begin(put(2), false, 0).unwrap();
        ledger.wrote(64);
        ledger.wrote(65);
        assert_eq!(ledger.expected(Some(5)), written(1));
        assert_eq!(ledger.expected(Some(64)), written(2));
        assert_eq!(ledger.expected(Some(6)), Expected::Absent);
        assert_eq!(ledger.expected(Some(200)), Expected::Absent);
        assert_eq!((ledger.live(), ledger.live_bytes(6)), (Some(4), Some(64)));
        let next: Vec<_> = [0, 5, 6, 65, 66, 199].map(|from| ledger.next(from)).into();
        assert_eq!(next, [Some(5), Some(5), Some(64), Some(65), Some(199), Some(199)]);
        ledger.begin_all(version(3));
        ledger.complete();
        assert_eq!(ledger.expected(Some(6)), written(3));
        assert_eq!((ledger.live(), ledger.next(66)), (Some(200), Some(66)));
        assert_eq!((ledger.layers.len(), ledger.next(200)), (1, None));
    }

    #[test]
    fn deleted_keys_are_absent_until_they_are_written_again() {
        let mut ledger = Ledger::new(70, false);
        ledger.begin_all(version(1));
        ledger.complete();
        ledger.begin(Effect::Delete, false, 0).unwrap();
        (60..70).for_each(|number| ledger.wrote(number));
        assert_eq!(ledger.expected(Some(65)), Expected::Absent);
        assert_eq!((ledger.live(), ledger.next(59), ledger.next(60)), (Some(60), Some(59), None));
        ledger.begin(put(3), false, 0).unwrap();
        ledger.wrote(65);
        assert_eq!(ledger.expected(Some(65)), written(3));
        assert_eq!((ledger.live(), ledger.next(60), ledger.next(66)), (Some(61), Some(65), None));
    }

    /// While a write is under way, readers may find the old version or the new; afterwards only the new.
    #[test]
    fn a_write_under_way_may_be_seen() {
        let mut ledger = Ledger::new(10, false);
        ledger.begin(put(1), true, 0).unwrap();
        assert_eq!(ledger.under_way(3), None);
        ledger.writing(3);
        assert_eq!(ledger.expected(Some(3)), Expected::Absent);
        assert_eq!(ledger.under_way(3), Some(version(1)));
        ledger.wrote(3);
        assert_eq!(ledger.expected(Some(3)), written(1));
        assert_eq!(ledger.expected_before(Some(3)), Expected::Absent);
        ledger.begin(put(2), false, 0).unwrap();
        ledger.writing(3);
        assert_eq!(ledger.under_way(3), None, "a run that only writes has no readers");
    }

    /// New keys become visible in order, whatever the order in which their writes end.
    #[test]
    fn an_insert_is_expected_once_all_earlier_ones_ended() {
        let mut ledger = Ledger::new(100, false);
        ledger.begin_all(version(1));
        ledger.complete();
        ledger.begin(put(2), true, 10).unwrap();
        let numbers = [ledger.insert(), ledger.insert(), ledger.insert()];
        assert_eq!((numbers, ledger.end()), ([100, 101, 102], 100));
        for (number, end) in [(101, 100), (100, 102), (102, 103)] {
            ledger.writing(number);
            assert_eq!(ledger.under_way(number), Some(version(2)));
            ledger.wrote(number);
            ledger.inserted();
            assert_eq!(ledger.end(), end);
        }
        assert_eq!(ledger.expected(Some(102)), written(2));
        assert_eq!((ledger.expected(Some(103)), ledger.live()), (Expected::Absent, Some(103)));
        assert_eq!(ledger.next(102), Some(102));
    }

    #[test]
    fn an_existing_store_is_unknown_except_for_what_was_written() {
        let mut ledger = Ledger::new(100, true);
        ledger.begin(put(1), false, 0).unwrap();
        ledger.wrote(3);
        assert_eq!(ledger.expected(Some(3)), written(1));
        assert_eq!(ledger.expected(Some(4)), Expected::Unknown);
        assert_eq!((ledger.expected(None), ledger.live()), (Expected::Unknown, None));
    }

    #[test]
    fn layers_are_bounded() {
        let mut ledger = Ledger::new(10, false);
        for epoch in 0..100 {
            ledger.begin(put(epoch), false, 0).unwrap();
            ledger.wrote(u64::from(epoch % 10));
        }
        assert_eq!(ledger.layers.len(), LAYERS_MAX);
        assert_eq!(ledger.expected(Some(9)), written(99));
        assert_eq!(ledger.live(), None);
    }
}

//! The clock of a window: a counter of two bits for some entries. A read sets it, each partial discard that
//! considers the entry decrements it, and the discard keeps the entries whose counter was not 0 (CLOCK,
//! Corbato 1968, with more than one chance). So an entry stays for three discards after its last read, which
//! is about the time in which a fifth of the window is written anew.
//!
//! Only reads of the oldest quarter of the window set counters, because only a read that is recent when the
//! entry's turn comes should count. The counter of an entry is found by the hash that its stored key begins
//! with, among at least as many counters as that quarter has entries: entries that share one are kept
//! together, which is harmless. The order of the counters is that of the stored keys.
//!
//! The counters are in memory only: after an open, no entry counts as read. They are charged (I10); without
//! memory there are fewer, or none, and then no entry is kept.
//!
//! Any thread may call. A read of an old entry costs two loads, and one store if its counter is not at its
//! maximum.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwapOption;
use base::{Account, Charge, KEY_HASH_BYTES, Seqno};
use parking_lot::Mutex;

use crate::Version;

/// The level of flushed runs; that of the run that partial discards leave is higher.
const FLUSHED_LEVEL: u8 = 0;

/// Part of the window in which reads count.
const OLD_PART: u64 = 4;

/// Bits of a counter, and its greatest value.
const COUNTER_BITS: u32 = 2;
const COUNTER_MAX: u64 = 3;

/// The lowest bit of each counter of a word.
const LOW_BITS: u64 = u64::MAX / COUNTER_MAX;

/// Counters in a word.
const PER_WORD: u64 = (u64::BITS / COUNTER_BITS) as u64;

/// Least and greatest number of counters, as logarithms: 8 B, and 1 GiB for 2^32 entries.
const LOG_COUNTERS: (u32, u32) = (5, 32);

/// The clock of one window.
#[derive(Debug)]
pub(crate) struct ReadClock {
    account: Account,
    /// Length of the window, bytes.
    window_bytes: u64,
    counters: ArcSwapOption<Counters>,
    /// Reads of entries up to this seqno count.
    old_up_to: AtomicU64,
    /// Held while the counters are replaced by more or fewer.
    change: Mutex<()>,
}

/// A power of two of counters, charged.
#[derive(Debug)]
pub(crate) struct Counters {
    words: Vec<AtomicU64>,
    log_counters: u32,
    _charge: Charge,
}

/// The word of counter `number`, and the counter's position in it.
fn place(number: u64) -> (usize, u32) {
    let shift = u32::try_from(number % PER_WORD).unwrap_or(0) * COUNTER_BITS;
    (usize::try_from(number / PER_WORD).unwrap_or(usize::MAX), shift)
}

impl Counters {
    /// `2^log_counters` counters, all 0; `None` if memory is short.
    fn new(log_counters: u32, account: &Account) -> Option<Self> {
        let words = 1usize << (log_counters - PER_WORD.ilog2());
        let _charge = account.try_charge((words * size_of::<u64>()) as u64)?;
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Some(Self { words, log_counters, _charge })
    }

    /// The number of the counter for the stored key `key`.
    fn number_of(&self, key: &[u8]) -> Option<u64> {
        let hash = u64::from_be_bytes(*key.first_chunk::<KEY_HASH_BYTES>()?);
        Some(hash >> (u64::BITS - self.log_counters))
    }

    /// Counter `number`.
    fn value(&self, number: u64) -> u64 {
        let (word, shift) = place(number);
        self.words.get(word).map_or(0, |word| word.load(Relaxed) >> shift & COUNTER_MAX)
    }

    /// The counter for `key`.
    pub(crate) fn of(&self, key: &[u8]) -> u8 {
        // At most `COUNTER_MAX`.
        self.number_of(key).map_or(0, |number| self.value(number) as u8)
    }

    /// Sets the counter for `key` to its maximum. One that has it already is not stored again: reads of many
    /// threads share the word.
    pub(crate) fn set(&self, key: &[u8]) {
        let Some((word, shift)) = self.number_of(key).map(place) else { return };
        let mask = COUNTER_MAX << shift;
        if let Some(word) = self.words.get(word)
            && word.load(Relaxed) & mask != mask
        {
            word.fetch_or(mask, Relaxed);
        }
    }

    /// As many counters, all 0, for those of this that a discard considers; `None` if memory is short.
    pub(crate) fn same_size(&self, account: &Account) -> Option<Self> {
        Self::new(self.log_counters, account)
    }

    /// The values in this of counter `number` of a set of `2^log_counters`, which may be several.
    fn values_for(&self, number: u64, log_counters: u32) -> impl Iterator<Item = u64> {
        let own = match self.log_counters.checked_sub(log_counters) {
            Some(more) => number << more..(number + 1) << more,
            None => {
                let own = number >> (log_counters - self.log_counters);
                own..own + 1
            }
        };
        own.map(|number| self.value(number))
    }

    /// The numbers of the counters.
    fn numbers(&self) -> std::ops::Range<u64> {
        0..1 << self.log_counters
    }

    /// Decrements the counters that a discard considered. If the numbers of counters differ, a counter stays
    /// if only some of its counterparts were considered.
    fn age(&self, considered: &Self) {
        if self.log_counters == considered.log_counters {
            return self.age_words(considered);
        }
        let is_aged =
            |number: &u64| considered.values_for(*number, self.log_counters).all(|value| value > 0);
        for number in self.numbers().filter(is_aged) {
            let (word, shift) = place(number);
            let Some(word) = self.words.get(word) else { continue };
            // The counter is in the word with others, which reads set meanwhile.
            let aged =
                |old: u64| (old >> shift & COUNTER_MAX > 0).then(|| old.wrapping_sub(1 << shift));
            // The update fails if the counter is 0 already.
            let _ = word.fetch_update(Relaxed, Relaxed, aged);
        }
    }

    /// As [`Counters::age`] for as many counters, a word at a time: a large window has hundreds of millions.
    fn age_words(&self, considered: &Self) {
        for (word, considered) in self.words.iter().zip(&considered.words) {
            let considered = considered.load(Relaxed);
            let aged = |old: u64| {
                // Counters above 0 borrow nothing from each other.
                let ones = (old | old >> 1) & considered & LOW_BITS;
                (ones > 0).then(|| old - ones)
            };
            if considered > 0 {
                // The update fails if all considered counters are 0 already.
                let _ = word.fetch_update(Relaxed, Relaxed, aged);
            }
        }
    }

    /// Takes over the counters of `other`, which has another number of them.
    fn take_over(&self, other: &Self) {
        for number in self.numbers() {
            let value = other.values_for(number, self.log_counters).max().unwrap_or(0);
            let (word, shift) = place(number);
            if let Some(word) = self.words.get(word) {
                word.fetch_or(value << shift, Relaxed);
            }
        }
    }

    /// Bytes of the counters.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.words.len() * size_of::<u64>()) as u64
    }
}

impl ReadClock {
    /// The clock of a window of `window_bytes` bytes, without counters yet. They are charged to `account`.
    pub(crate) fn new(window_bytes: u64, account: &Account) -> Self {
        Self {
            account: account.clone(),
            window_bytes,
            counters: ArcSwapOption::empty(),
            old_up_to: AtomicU64::new(0),
            change: Mutex::new(()),
        }
    }

    /// The account that is charged.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Notes a read of the entry of the stored key `key` at `seqno`.
    #[inline]
    pub(crate) fn note_read(&self, key: &[u8], seqno: Seqno) {
        if seqno.get() > self.old_up_to.load(Relaxed) {
            return;
        }
        if let Some(counters) = &*self.counters.load() {
            counters.set(key);
        }
    }

    /// The counters now; `None` if no entry counts as read.
    pub(crate) fn counters(&self) -> Option<Arc<Counters>> {
        self.counters.load_full()
    }

    /// Decrements the counters of the entries that a discard considered.
    pub(crate) fn age(&self, considered: &Counters) {
        let _change = self.change.lock();
        if let Some(counters) = self.counters.load_full() {
            counters.age(considered);
        }
    }

    /// Adapts the boundary of the oldest quarter, and the number of counters, to `version`.
    pub(crate) fn adapt(&self, version: &Version) {
        let (old_up_to, entries) = self.old_part(version);
        self.old_up_to.store(old_up_to.get(), Relaxed);
        let needed = entries.max(1).checked_next_power_of_two();
        let (least, most) = LOG_COUNTERS;
        let log_counters = needed.map_or(most, u64::ilog2).clamp(least, most);
        let old = self.counters.load_full();
        // Twice as many are kept for a while, so that the number does not change back and forth.
        let is_fit = old.as_ref().is_some_and(|old| {
            old.log_counters == log_counters || old.log_counters == log_counters + 1
        });
        if entries == 0 || is_fit {
            return;
        }
        let _change = self.change.lock();
        let Some(counters) = Counters::new(log_counters, &self.account) else { return };
        if let Some(old) = &old {
            counters.take_over(old);
        }
        self.counters.store(Some(Arc::new(counters)));
    }

    /// The highest seqno of the oldest quarter of the window in `version`, and the entries in that part. The
    /// run that discards left is in it, and so is the oldest flushed run, unless it is the only one.
    fn old_part(&self, version: &Version) -> (Seqno, u64) {
        let (mut seqno, mut entries, mut bytes) = (Seqno::ZERO, 0u64, 0u64);
        for (number, run) in version.runs().iter().enumerate().rev() {
            let is_flushed = run.pieces().iter().any(|piece| piece.level() == FLUSHED_LEVEL);
            if is_flushed && (number == 0 || bytes >= self.window_bytes / OLD_PART) {
                break;
            }
            for piece in run.pieces() {
                let entry = piece.entry();
                seqno = seqno.max(entry.seqno_max);
                entries = entries.saturating_add(entry.entries);
                let values = entry.values.iter().map(|(_, bytes)| *bytes);
                let own = values.fold(entry.file_bytes, u64::saturating_add);
                bytes = bytes.saturating_add(if is_flushed { own } else { 0 });
            }
        }
        (seqno, entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(hash: u64) -> Vec<u8> {
        [&hash.to_be_bytes()[..], b"key"].concat()
    }

    fn with_counters(log_counters: u32) -> ReadClock {
        let account = Account::unlimited("test");
        let clock = ReadClock::new(1 << 20, &account);
        clock.counters.store(Counters::new(log_counters, &account).map(Arc::new));
        clock.old_up_to.store(10, Relaxed);
        clock
    }

    #[test]
    fn reads_of_old_entries_set_the_counter_of_their_hash() {
        let clock = with_counters(7);
        clock.note_read(&key(3 << 57), Seqno::new(10));
        clock.note_read(&key(9 << 57), Seqno::new(11));
        let counters = clock.counters().unwrap();
        assert_eq!([counters.of(&key(3 << 57)), counters.of(&key((4 << 57) - 1))], [3, 3]);
        assert_eq!([counters.of(&key(4 << 57)), counters.of(&key(9 << 57))], [0, 0], "too new");
        assert_eq!(counters.of(b"short"), 0);
        assert_eq!(clock.account().used(), 32);
    }

    #[test]
    fn an_entry_is_read_for_three_discards() {
        let clock = with_counters(7);
        let (one, other) = (key(6 << 57), key(7 << 57));
        clock.note_read(&one, Seqno::new(1));
        clock.note_read(&other, Seqno::new(1));
        for left in [2, 1, 0, 0] {
            let counters = clock.counters().unwrap();
            let considered = counters.same_size(clock.account()).unwrap();
            considered.set(&one);
            clock.age(&considered);
            assert_eq!([counters.of(&one), counters.of(&other)], [left, 3]);
        }
    }

    #[test]
    fn considered_counters_age_whatever_their_number_became() {
        for (log_now, left) in [(7, [2, 3]), (9, [2, 3]), (6, [3, 3])] {
            let clock = with_counters(7);
            let (one, other) = (key(6 << 57), key(7 << 57));
            let considered = clock.counters().unwrap().same_size(clock.account()).unwrap();
            considered.set(&one);
            let now = Counters::new(log_now, clock.account()).unwrap();
            now.set(&one);
            now.set(&other);
            clock.counters.store(Some(Arc::new(now)));
            // With half as many counters the two share one, which stays for the other.
            clock.age(&considered);
            let counters = clock.counters().unwrap();
            assert_eq!([counters.of(&one), counters.of(&other)], left, "2^{log_now}");
        }
    }

    #[test]
    fn counters_are_kept_when_their_number_changes() {
        let account = Account::unlimited("test");
        let old = Counters::new(7, &account).unwrap();
        old.set(&key(6 << 57));
        for log_counters in [6, 8, 10] {
            let new = Counters::new(log_counters, &account).unwrap();
            new.take_over(&old);
            let set = new.numbers().filter(|number| new.value(*number) > 0).count();
            assert_eq!(new.of(&key(6 << 57)), 3, "2^{log_counters}");
            assert_eq!(set, 1 << log_counters.saturating_sub(7), "2^{log_counters}");
        }
    }

    #[test]
    fn counters_are_charged() {
        let budget = base::Budget::new(1 << 10);
        let account = budget.account("test");
        assert!(Counters::new(12, &account).is_some_and(|it| it.memory_bytes() == 1 << 10));
        assert!(Counters::new(13, &account).is_none());
        assert_eq!(account.used(), 0);
    }
}

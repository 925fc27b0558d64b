//! Which rules of the policy miss least: one small simulated cache for each of the [`Rules`], which all see
//! the same sample of keys.
//!
//! A cache owns a contest and follows it: [`Contest::rules`]. [`Scores`] decide.
//!
//! Concurrency: any thread may call. An access that is not sampled costs a multiplication and a comparison. A
//! sampled access takes a mutex if it is free, and is not counted if not. Memory: at most [`BYTES_MAX`],
//! charged at once (I10).

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use base::{Account, Charge, invariant};
use parking_lot::Mutex;

use super::scores::{ACCESSES_A_DECISION, RULES, Scores};
use super::simulation::{PAGE_BYTES, Subject};
use super::simulations::{Simulations, is_sampled};
use crate::PageKind;
use crate::rows::policy::Rules;

/// A contest takes the cache's memory divided by this, at most [`BYTES_MAX`].
const MEMORY_PART: u64 = 256;
const BYTES_MAX: u64 = 96 << 10;

/// With less memory the simulated caches would be too small to tell the rules apart.
const BYTES_MIN: u64 = 48 << 10;

/// About the keys that the simulated caches have room for.
const KEYS: f64 = 1000.0;

/// Share of keys that is sampled at first: least and most. [`Simulations`] lowers it if there are too many
/// keys.
const RATES: (f64, f64) = (1.0 / 64.0, 1.0 / 8.0);

/// A contest of the rules, for one cache.
pub struct Contest {
    /// The sampling threshold of the simulations, and the rules that win, as an index of [`Rules::ALL`].
    /// Plain numbers: `Relaxed`.
    threshold: AtomicU32,
    rules: AtomicUsize,
    /// `None`: there is no memory for a contest.
    state: Option<Mutex<ContestState>>,
    charge: Option<Charge>,
}

#[derive(Debug)]
struct ContestState {
    subject: Subject,
    simulations: Simulations,
    /// Bytes of the simulated caches, and of the simulations.
    bytes: u64,
    bytes_max: usize,
    accesses: u32,
    scores: Scores,
}

impl ContestState {
    fn new(subject: Subject, bytes: u64, bytes_max: usize) -> Self {
        let simulations = simulations(subject, bytes, bytes_max);
        invariant!(
            simulations.misses().count() == RULES,
            "each of the rules has a simulated cache"
        );
        Self { subject, simulations, bytes, bytes_max, accesses: 0, scores: Scores::default() }
    }
}

fn simulations(subject: Subject, bytes: u64, bytes_max: usize) -> Simulations {
    let (least, most) = RATES;
    invariant!(bytes > 0, "a simulated cache has a size");
    let rate = (KEYS * PAGE_BYTES as f64 / bytes as f64).clamp(least, most);
    Simulations::of_rules(subject, &Rules::ALL, bytes, rate, bytes_max)
}

impl Contest {
    /// A contest for a cache of `memory_bytes`. Without memory for it, [`Rules::Open`] wins.
    #[must_use]
    pub fn new(account: &Account, subject: Subject, memory_bytes: u64) -> Self {
        let bytes = (memory_bytes / MEMORY_PART).min(BYTES_MAX);
        let charge = if bytes >= BYTES_MIN { account.try_charge(bytes) } else { None };
        let state =
            charge.is_some().then(|| ContestState::new(subject, memory_bytes, bytes as usize));
        Self {
            threshold: AtomicU32::new(state.as_ref().map_or(0, |it| it.simulations.threshold())),
            rules: AtomicUsize::new(0),
            state: state.map(Mutex::new),
            charge,
        }
    }

    /// Memory of the contest, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    /// The rules that miss least.
    #[inline]
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules::ALL.get(self.rules.load(Relaxed)).copied().unwrap_or_default()
    }

    /// Counts an access of an entry of `bytes` bytes. `cache_bytes` returns the size of the cache now.
    #[inline]
    pub fn ask(&self, hash: u64, bytes: usize, kind: PageKind, cache_bytes: impl FnOnce() -> u64) {
        if is_sampled(hash, self.threshold.load(Relaxed)) {
            self.sample(hash, bytes, kind, cache_bytes);
        }
    }

    #[cold]
    fn sample(&self, hash: u64, bytes: usize, kind: PageKind, cache_bytes: impl FnOnce() -> u64) {
        let Some(mut state) = self.state.as_ref().and_then(Mutex::try_lock) else { return };
        state.simulations.ask(hash, u32::try_from(bytes).unwrap_or(u32::MAX), kind);
        state.accesses += 1;
        if state.accesses.is_multiple_of(ACCESSES_A_DECISION) {
            let ContestState { simulations, scores, .. } = &mut *state;
            scores.add(simulations.misses(), simulations.rate());
            let rules = scores.next(self.rules.load(Relaxed));
            invariant!(rules < RULES, "some rules are in force");
            self.rules.store(rules, Relaxed);
            state.fit(cache_bytes());
        }
        debug_assert!(
            state.simulations.bytes() <= state.bytes_max,
            "a contest stays within the memory that it charged"
        );
        // Every access reads it: a store that changes nothing would take the line from other threads.
        let threshold = state.simulations.threshold();
        if threshold != self.threshold.load(Relaxed) {
            self.threshold.store(threshold, Relaxed);
        }
    }
}

impl ContestState {
    /// Simulates caches of `bytes` from now on, if that is another size than before by a quarter.
    fn fit(&mut self, bytes: u64) {
        if bytes.abs_diff(self.bytes) > self.bytes / 4 && bytes > 0 {
            self.bytes = bytes;
            self.simulations = simulations(self.subject, bytes, self.bytes_max);
            self.scores.restart();
        }
    }
}

impl fmt::Debug for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contest({:?} wins)", self.rules())
    }
}

#[cfg(test)]
mod tests;

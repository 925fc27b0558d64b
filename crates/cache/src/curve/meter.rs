//! A curve that is kept while a store is read.
//!
//! Concurrency: an access that is not sampled costs a multiplication and a comparison; a sampled one takes
//! a lock if nobody has it, and is not counted where someone does. That happens to keys that are asked for
//! all the time, whose accesses are hits at every size, and hits count for nothing. A sampled key that is
//! written waits for the lock: a write that went uncounted would be a hit that never was.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use base::{Account, Charge};
use parking_lot::Mutex;

use super::miss_curve::MissCurve;
use super::simulation::Subject;
use super::simulations::{Simulations, is_sampled, sizes_about};
use crate::PageKind;

/// Of all keys, one of so many is sampled at first: at this, what samples cost is under a hundredth of what
/// the reads do that they are taken of (docs/performance.md).
const KEYS_A_SAMPLE: f64 = 128.0;

/// A meter takes one of so many bytes of the memory it is for. With one for pages and one for rows, both
/// stay below half a hundredth.
const MEMORY_PART: u64 = 420;

/// Keeps the curve of one kind of lookups.
#[derive(Debug)]
pub struct Meter {
    /// That of the simulations. Only a number: `Relaxed`.
    threshold: AtomicU32,
    simulations: Mutex<Simulations>,
    _charge: Charge,
}

impl Meter {
    /// For `memory_bytes` of cache, and from a sixteenth to sixteen times as much, where it is one of so many
    /// that share the memory. Its own is charged at once (I10); none where there is none.
    #[must_use]
    pub fn new(account: &Account, subject: Subject, memory_bytes: u64, of: u64) -> Option<Self> {
        let bytes = memory_bytes / MEMORY_PART / of.max(1);
        let _charge = account.try_charge(bytes)?;
        let sizes = sizes_about(memory_bytes);
        let bytes_max = usize::try_from(bytes).unwrap_or(usize::MAX);
        let simulations = Simulations::new(subject, &sizes, 1.0 / KEYS_A_SAMPLE, bytes_max);
        let threshold = AtomicU32::new(simulations.threshold());
        Some(Self { threshold, simulations: Mutex::new(simulations), _charge })
    }

    /// Something of `bytes` bytes is looked up.
    #[inline]
    pub fn ask(&self, hash: u64, bytes: usize, kind: PageKind) {
        if is_sampled(hash, self.threshold.load(Relaxed)) {
            self.sample(hash, bytes, kind);
        }
    }

    /// Something of `bytes` bytes comes in that nobody looked up there.
    #[inline]
    pub fn bring(&self, hash: u64, bytes: usize) {
        if is_sampled(hash, self.threshold.load(Relaxed))
            && let Some(mut simulations) = self.simulations.try_lock()
        {
            simulations.bring(hash, u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    #[cold]
    fn sample(&self, hash: u64, bytes: usize, kind: PageKind) {
        let Some(mut simulations) = self.simulations.try_lock() else { return };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if simulations.ask(hash, bytes, kind).is_some() {
            self.threshold.store(simulations.threshold(), Relaxed);
        }
    }

    /// What is cached of a key is of no use any more.
    #[inline]
    pub fn forget(&self, hash: u64) {
        if is_sampled(hash, self.threshold.load(Relaxed)) {
            self.forget_sampled(hash);
        }
    }

    #[cold]
    fn forget_sampled(&self, hash: u64) {
        self.simulations.lock().forget(hash);
    }

    /// The curve so far, of `accesses` lookups.
    #[must_use]
    pub fn curve(&self, accesses: u64) -> MissCurve {
        self.simulations.lock().curve(accesses)
    }

    /// Memory taken, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.simulations.lock().bytes()
    }
}

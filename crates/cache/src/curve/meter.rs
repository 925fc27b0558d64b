//! A miss-ratio curve that is kept up to date while a store is read.
//!
//! Concurrency: any thread may call. An access that is not sampled costs a multiplication and a comparison. A
//! sampled access takes a mutex if it is free, and is not counted if not: that mostly affects keys that are
//! accessed all the time, which hit at every size, and hits count for nothing. A sampled write waits for the
//! mutex: a write that was not counted would later show as a hit that never was.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use base::{Account, Charge};
use parking_lot::Mutex;

use super::miss_curve::MissCurve;
use super::simulation::Subject;
use super::simulations::{Simulations, is_sampled, sizes_about};
use crate::PageKind;

/// One key in this many is sampled at first: sampling then costs under 1 % of the reads that it samples
/// (docs/ledger.md).
const KEYS_A_SAMPLE: f64 = 128.0;

/// A meter uses the cache's memory divided by this. One meter for pages and one for rows stay below 0.5 %.
const MEMORY_PART: u64 = 420;

/// Keeps the curve of one kind of lookups.
#[derive(Debug)]
pub struct Meter {
    /// The sampling threshold of the simulations. A plain number: `Relaxed`.
    threshold: AtomicU32,
    simulations: Mutex<Simulations>,
    _charge: Charge,
}

impl Meter {
    /// A meter for a cache of `memory_bytes`, and for sizes from 1/16 to 16 times that. It is one of `of`
    /// meters that share the memory for meters. Charges its own memory at once (I10); `None` if there is
    /// none.
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

    /// Counts a lookup of an entry of `bytes` bytes.
    #[inline]
    pub fn ask(&self, hash: u64, bytes: usize, kind: PageKind) {
        if is_sampled(hash, self.threshold.load(Relaxed)) {
            self.sample(hash, bytes, kind);
        }
    }

    /// Inserts an entry of `bytes` bytes that was not looked up: no miss counts.
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

    /// Invalidates the cached entry of a key, because the key was written.
    #[inline]
    pub fn invalidate(&self, hash: u64) {
        if is_sampled(hash, self.threshold.load(Relaxed)) {
            self.invalidate_sampled(hash);
        }
    }

    #[cold]
    fn invalidate_sampled(&self, hash: u64) {
        self.simulations.lock().invalidate(hash);
    }

    /// The curve so far, given the number of all lookups.
    #[must_use]
    pub fn curve(&self, accesses: u64) -> MissCurve {
        self.simulations.lock().curve(accesses)
    }

    /// Memory used, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.simulations.lock().bytes()
    }
}

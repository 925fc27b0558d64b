//! Simulated caches of many sizes that see the same sample of keys.

use arena::Heat;
use base::invariant;

use super::miss_curve::{MissCurve, Point};
use super::residents::{Residency, Residents};
use super::scores::{ACCESSES_A_DECISION, RULES, Scores};
use super::simulation::{AccessContext, HEAT_MAX, Simulation, Subject};
use crate::PageKind;
use crate::rows::policy::Rules;

/// Most simulated caches: misses are reported as bits of a word.
const CACHES_MAX: usize = 64;

/// Factor on the sampling rate when there are too many keys.
const STEP: f64 = 7.0 / 8.0;

/// The memory of the queues is checked once per this many new keys.
const NEW_KEYS: u32 = 32;

/// Simulated caches. Owned by one thread at a time.
#[derive(Debug)]
pub struct Simulations {
    subject: Subject,
    caches: Vec<Simulation>,
    /// For each size the rules in force, if each size has a cache for each of the rules; else empty.
    followed: Vec<Followed>,
    /// Sampled accesses.
    accesses: u32,
    residents: Residents,
    /// Keys with a sample hash of at most this are sampled.
    threshold: u32,
    /// Share of all keys that the caller passes at all.
    asked: f64,
    /// Limit of the memory, bytes.
    bytes_max: usize,
    new_keys: u32,
}

/// A cache that follows the rules which miss least.
#[derive(Debug, Default)]
struct Followed {
    scores: Scores,
    /// The rules in force, as an index of [`Rules::ALL`].
    rules: usize,
    /// Misses under the rules that were in force, each weighted as those of [`Simulation`].
    misses: f64,
}

/// Outcome of an access of a sampled key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// A bit for each size at which the access missed; the smallest size is the lowest bit.
    pub missed: u64,
}

/// Sizes around `bytes`: from 1/16 of it to 16 times as much, each 1.41 times the one before.
#[must_use]
pub fn sizes_about(bytes: u64) -> Vec<u64> {
    (-8i32..=8).map(|step| (bytes as f64 * 2f64.powf(f64::from(step) / 2.0)) as u64).collect()
}

/// A hash for sampling: evenly distributed, and of other bits than the caches use.
const fn sample_hash(hash: u64) -> u32 {
    (hash.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as u32
}

/// Whether a key of this hash is sampled at `threshold`.
#[inline]
pub(crate) const fn is_sampled(hash: u64, threshold: u32) -> bool {
    sample_hash(hash) <= threshold
}

impl Simulations {
    /// Simulates caches of these sizes in bytes, smallest first, at most 64 of them. One of `1 / rate` keys
    /// is sampled at first, fewer if those would use more memory than `bytes_max`.
    #[must_use]
    pub fn new(subject: Subject, sizes: &[u64], rate: f64, bytes_max: usize) -> Self {
        invariant!(sizes.is_sorted(), "sizes are simulated smallest first");
        let caches = sizes.iter().map(|bytes| (*bytes, Rules::Open));
        Self::of_caches(subject, caches, rate, bytes_max)
    }

    /// As [`Simulations::new`], of caches of one size by different rules.
    pub(super) fn of_rules(
        subject: Subject,
        rules: &[Rules],
        bytes: u64,
        rate: f64,
        bytes_max: usize,
    ) -> Self {
        Self::of_caches(subject, rules.iter().map(|rules| (bytes, *rules)), rate, bytes_max)
    }

    fn of_caches(
        subject: Subject,
        caches: impl Iterator<Item = (u64, Rules)>,
        rate: f64,
        bytes_max: usize,
    ) -> Self {
        let caches = caches.take(CACHES_MAX).enumerate();
        let caches: Vec<_> =
            caches.map(|(at, (bytes, rules))| Simulation::new(at, bytes, rules)).collect();
        let residents = Residents::new(caches.len(), bytes_max / 2);
        let threshold = (rate.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
        let (followed, accesses, asked, new_keys) = (Vec::new(), 0, 1.0, 0);
        let mut simulations = Self {
            subject,
            caches,
            followed,
            accesses,
            residents,
            threshold,
            asked,
            bytes_max,
            new_keys,
        };
        simulations.set_threshold(threshold);
        simulations
    }

    /// As [`Simulations::new`], of caches that each follow a [`Contest`](super::Contest): at most 21 sizes.
    /// For a caller that passes only one of `1 / asked` keys, and always the same ones: the rows of some
    /// pages, for example.
    #[must_use]
    pub fn following(subject: Subject, sizes: &[u64], asked: f64, bytes_max: usize) -> Self {
        invariant!(sizes.is_sorted(), "sizes are simulated smallest first");
        invariant!(
            sizes.len() * RULES <= CACHES_MAX,
            "each size has a cache for each of the rules"
        );
        let caches = sizes.iter().flat_map(|bytes| Rules::ALL.map(|rules| (*bytes, rules)));
        let mut simulations = Self::of_caches(subject, caches, 1.0, bytes_max);
        simulations.followed.resize_with(sizes.len(), Followed::default);
        simulations.asked = asked.clamp(f64::MIN_POSITIVE, 1.0);
        simulations.set_threshold(u32::MAX);
        simulations
    }

    /// Keys with a sample hash of at most this are sampled.
    #[must_use]
    pub const fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Share of all keys that is sampled.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.asked * (f64::from(self.threshold) + 1.0) / (f64::from(u32::MAX) + 1.0)
    }

    fn set_threshold(&mut self, threshold: u32) {
        self.threshold = threshold;
        let rate = self.rate();
        self.caches.iter_mut().for_each(|cache| cache.set_rate(rate));
    }

    /// Sampled keys that are in any cache.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.residents.len()
    }

    /// Memory used, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.residents.bytes() + self.queues()
    }

    /// Memory of all but the keys, bytes. It shrinks when there are fewer keys; that of the keys does not.
    fn queues(&self) -> usize {
        self.caches.iter().map(Simulation::memory).sum()
    }

    /// Counts an access of a key of `bytes` bytes; `None` if the key is not sampled. All pages have the same
    /// size.
    pub fn ask(&mut self, hash: u64, bytes: u32, kind: PageKind) -> Option<Asked> {
        let asked = self.enter(hash, bytes, kind, 1.0 / self.rate())?;
        if self.followed.is_empty() {
            return Some(asked);
        }
        self.accesses = self.accesses.wrapping_add(1);
        let mut missed = 0;
        let weight = 1.0 / self.rate();
        for (at, followed) in self.followed.iter_mut().enumerate() {
            let is_miss = asked.missed >> (at * RULES + followed.rules) & 1 == 1;
            missed |= u64::from(is_miss) << at;
            followed.misses += if is_miss { weight } else { 0.0 };
        }
        if self.accesses.is_multiple_of(ACCESSES_A_DECISION) {
            self.decide();
        }
        Some(Asked { missed })
    }

    /// Brings into force at each size the rules that miss least.
    fn decide(&mut self) {
        let rate = self.rate();
        for (followed, caches) in self.followed.iter_mut().zip(self.caches.chunks(RULES)) {
            followed.scores.add(caches.iter().map(|cache| cache.misses), rate);
            followed.rules = followed.scores.next(followed.rules);
        }
    }

    /// Inserts a key without an access: no miss counts.
    pub fn bring(&mut self, hash: u64, bytes: u32) {
        self.enter(hash, bytes, PageKind::Data, 0.0);
    }

    /// Inserts a key into every cache, or counts a use there. For each cache that missed it, `weight` misses
    /// count.
    fn enter(&mut self, hash: u64, bytes: u32, kind: PageKind, weight: f64) -> Option<Asked> {
        if !is_sampled(hash, self.threshold) {
            return None;
        }
        let heat: Heat = match kind {
            PageKind::Data => 0,
            PageKind::Meta => 8,
        };
        let access =
            AccessContext { subject: self.subject, heat, keys_max: self.residents.keys_max };
        let before = self.residents.len();
        let Some(number) = self.residents.enter(hash, bytes) else {
            self.lower_rate();
            let weight = if weight > 0.0 { 1.0 / self.rate() } else { weight };
            return self.enter(hash, bytes, kind, weight);
        };
        let mut missed = 0;
        for (at, residency) in self.residents.residencies(number).iter_mut().enumerate() {
            if residency.is_alive() {
                let warmer = (residency.heat() + 1).min(HEAT_MAX);
                *residency = Residency::alive(heat.max(warmer));
            } else {
                missed |= 1 << at;
            }
        }
        if missed > 0 {
            for (at, cache) in self.caches.iter_mut().enumerate() {
                if missed >> at & 1 == 1 {
                    cache.misses += weight;
                    cache.miss(&mut self.residents, number, access);
                }
            }
            self.residents.release(number);
            self.new_keys += u32::from(self.residents.len() > before);
        }
        if self.new_keys >= NEW_KEYS {
            self.new_keys = 0;
            while self.queues() > self.bytes_max / 2 / 8 * 7 && self.residents.len() > 0 {
                self.lower_rate();
            }
        }
        Some(Asked { missed })
    }

    /// Invalidates a key in every cache, because it was written.
    pub fn invalidate(&mut self, hash: u64) {
        if is_sampled(hash, self.threshold)
            && let Some(number) = self.residents.find(hash)
        {
            self.residents.residencies(number).iter_mut().for_each(Residency::invalidate);
        }
    }

    /// Lowers the sampling rate, and drops the keys that are no longer sampled.
    fn lower_rate(&mut self) {
        self.set_threshold((f64::from(self.threshold) * STEP) as u32);
        let threshold = self.threshold;
        self.residents.retain(|hash| is_sampled(hash, threshold));
        let access =
            AccessContext { subject: self.subject, heat: 0, keys_max: self.residents.keys_max };
        for cache in &mut self.caches {
            cache.lower_rate(&mut self.residents, access);
        }
    }

    /// Misses of each cache so far, each weighted by the number of keys that its key stood for.
    pub(super) fn misses(&self) -> impl Iterator<Item = f64> {
        self.caches.iter().map(|cache| cache.misses)
    }

    /// The curve, given the number of accesses of all keys, sampled or not.
    #[must_use]
    pub fn curve(&self, accesses: u64) -> MissCurve {
        let point = |cache: &Simulation| Point { bytes: cache.bytes, misses: cache.misses };
        let points = match &self.followed[..] {
            [] => self.caches.iter().map(point).collect(),
            followed => {
                let caches = self.caches.iter().step_by(RULES).zip(followed);
                caches.map(|(cache, it)| Point { misses: it.misses, ..point(cache) }).collect()
            }
        };
        MissCurve { accesses, points }
    }
}

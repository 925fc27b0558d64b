//! Tier bypass: readers skip the tier while flash answers sooner than it does.
//!
//! A device that wears out, is throttled or is shared may become slower than the flash below it. So the
//! latencies of the tier and of flash are estimated from some hundred reads of each. The estimate is the 1/8
//! quantile: slower reads may have waited for a processor, above all reads that are waited for by polling,
//! which says nothing about the device.
//!
//! If the tier takes twice as long as flash, flash is first measured anew by a few reads, because its
//! estimate may be old and both may be on one device. If that confirms it, readers skip the tier, except for
//! a few reads that keep measuring it. Once the tier is no slower than flash, readers use it again.
//!
//! The decision is a pure function ([`RouteDecision::next`]). Estimates are plain numbers, `Relaxed`: of two
//! concurrent measurements one may be lost.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::time::Duration;

use super::latency_sampler::LatencySampler;
use super::prior::Prior;

/// Measurements from which on an estimate is significant.
const ENOUGH: u32 = 128;

/// A measurement above an estimate moves it up by 1/[`PART`] of it, one below moves it down by [`DOWN`] times
/// that. The first measurements of an estimate, and the few of a tier that readers skip, use [`PART_FEW`].
const PART: u32 = 128;
const PART_FEW: u32 = 32;

/// With 7 steps down for one step up, 1/8 of all measurements are below the estimate.
const DOWN: u32 = 7;

/// Assumed latency of flash, nanoseconds, until it is measured.
const FLASH_NANOS: u32 = 80_000;

/// Reads of flash that are measured anew before readers skip the tier.
const ANEW: u32 = 2 * ENOUGH;

/// Where readers read pages that the tier holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    /// From the tier.
    #[default]
    Tier,
    /// From the tier, except for a few reads: the tier seems slow, and flash is being measured anew.
    Probing,
    /// From flash, except for a few reads.
    Flash,
}

/// The route, and the number of flash measurements when it was chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteDecision {
    pub(crate) route: Route,
    pub(crate) since: u32,
}

/// An estimated latency, nanoseconds, and the number of its measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) nanos: u32,
    pub(crate) seen: u32,
}

impl RouteDecision {
    /// The next decision, from the latencies of the tier and of flash. A tier becomes slow when it takes more
    /// than twice as long as flash, and stops being slow when it takes no longer than flash.
    #[must_use]
    pub(crate) const fn next(self, tier: Estimate, flash: Estimate) -> Self {
        let is_slow = tier.seen >= ENOUGH && tier.nanos as u64 > flash.nanos as u64 * 2;
        let route = match self.route {
            Route::Tier if is_slow => Route::Probing,
            Route::Probing if is_slow && flash.seen.wrapping_sub(self.since) >= ANEW => {
                Route::Flash
            }
            Route::Probing if is_slow => Route::Probing,
            Route::Flash if tier.nanos > flash.nanos => Route::Flash,
            _ => Route::Tier,
        };
        match (self.route, route) {
            (Route::Probing, Route::Probing) => self,
            _ => Self { route, since: flash.seen },
        }
    }
}

/// An estimate of the 1/8 quantile of recent latencies.
#[derive(Debug)]
struct FastestEighth {
    nanos: AtomicU32,
    seen: AtomicU32,
}

impl FastestEighth {
    const fn new(nanos: u32) -> Self {
        Self { nanos: AtomicU32::new(nanos), seen: AtomicU32::new(0) }
    }

    fn estimate(&self) -> Estimate {
        Estimate { nanos: self.nanos.load(Relaxed), seen: self.seen.load(Relaxed) }
    }

    fn follow(&self, took: Duration, part: u32) {
        let Estimate { nanos, seen } = self.estimate();
        let step = (nanos / if seen < ENOUGH { PART_FEW } else { part }).max(1);
        let after = match took.as_nanos().cmp(&u128::from(nanos)) {
            Ordering::Greater => nanos.saturating_add(step),
            Ordering::Equal => nanos,
            Ordering::Less => nanos.saturating_sub(step * DOWN),
        };
        self.nanos.store(after, Relaxed);
        self.seen.store(seen.saturating_add(1), Relaxed);
    }
}

/// The current route, and the estimates that it follows from.
#[derive(Debug)]
pub(crate) struct TierBypass {
    tier: FastestEighth,
    flash: FastestEighth,
    route: AtomicU8,
    /// Picks the reads that go the other way, to measure it.
    sampler: LatencySampler,
}

impl TierBypass {
    /// The bypass before anything is measured.
    pub(crate) fn new(prior: Prior) -> Self {
        let (tier, flash) = (FastestEighth::new(prior.read_nanos), FastestEighth::new(FLASH_NANOS));
        Self {
            tier,
            flash,
            route: AtomicU8::new(Route::Tier as u8),
            sampler: LatencySampler::default(),
        }
    }

    pub(crate) fn route(&self) -> Route {
        match self.route.load(Relaxed) {
            0 => Route::Tier,
            1 => Route::Probing,
            _ => Route::Flash,
        }
    }

    /// Records the time of a read of a page from the tier.
    pub(crate) fn hit(&self, took: Duration) {
        let part = if self.route() == Route::Flash { PART_FEW } else { PART };
        self.tier.follow(took, part);
    }

    /// Records the time of a read of a page from flash.
    pub(crate) fn flash(&self, took: Duration) {
        self.flash.follow(took, PART);
    }

    /// Whether this read of a page that the tier holds goes to flash.
    pub(crate) fn skips_tier(&self, now: impl FnOnce() -> Duration) -> bool {
        match self.route() {
            Route::Tier => false,
            Route::Probing => self.sampler.is_due(now(), self.flash.estimate().nanos),
            Route::Flash => !self.sampler.is_due(now(), self.tier.estimate().nanos),
        }
    }

    /// Decides the route again, given the last decision.
    pub(crate) fn update_route(&self, before: RouteDecision) -> RouteDecision {
        let next = before.next(self.tier.estimate(), self.flash.estimate());
        self.route.store(next.route as u8, Relaxed);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn known(nanos: u32) -> Estimate {
        Estimate { nanos, seen: ENOUGH }
    }

    #[test]
    fn the_route_changes_at_twice_the_latency_of_flash_and_back_at_equality() {
        let mut decision = RouteDecision::default();
        let mut after = |tier: u32, flash: u32, seen: u32| {
            decision = decision.next(known(tier), Estimate { nanos: flash, seen });
            decision.route
        };
        assert_eq!([5, 500, 5000].map(|seen| after(160_000, 80_000, seen)), [Route::Tier; 3]);
        assert_eq!(after(161_000, 80_000, 5000), Route::Probing);
        assert_eq!(after(900_000, 80_000, 5000 + ANEW - 1), Route::Probing);
        // The new measurements of flash show that it is as slow: the old estimate was outdated.
        assert_eq!(after(900_000, 800_000, 5000 + ANEW), Route::Tier);
        assert_eq!(after(900_000, 80_000, 6000), Route::Probing);
        assert_eq!(after(161_000, 80_000, 6000 + ANEW), Route::Flash);
        assert_eq!([161_000, 81_000].map(|tier| after(tier, 80_000, 9000)), [Route::Flash; 2]);
        assert_eq!(after(80_000, 80_000, 9000), Route::Tier);
    }

    #[test]
    fn too_few_measurements_of_the_tier_decide_nothing() {
        let slow = Estimate { nanos: 900_000, seen: ENOUGH - 1 };
        assert_eq!(RouteDecision::default().next(slow, known(80_000)).route, Route::Tier);
    }

    /// If readers outnumber the processors, a thread may be descheduled during a read for as long as hundreds
    /// of reads take; if readers poll for completion, most reads are affected.
    #[test]
    fn waiting_for_a_processor_does_not_raise_the_estimate() {
        let bypass = TierBypass::new(Prior { read_nanos: 10_000, write_nanos: 10_000, writes: 32 });
        let mut decision = RouteDecision::default();
        for read in 0..20_000u64 {
            let late = Duration::from_millis(if read % 10 < 7 { 8 } else { 0 });
            bypass.hit(Duration::from_micros(10) + late);
            bypass.flash(Duration::from_micros(400));
            decision = bypass.update_route(decision);
            assert_eq!(decision.route, Route::Tier, "read {read}");
        }
        let known = bypass.tier.estimate();
        assert!((5_000..40_000).contains(&known.nanos), "{known:?}");
    }

    #[test]
    fn probes_of_a_slow_tier_take_a_small_part_of_the_time() {
        let bypass = TierBypass::new(Prior { read_nanos: 10_000, write_nanos: 10_000, writes: 32 });
        (0..ENOUGH).for_each(|_| bypass.flash(Duration::from_micros(80)));
        (0..5000).for_each(|_| bypass.hit(Duration::from_millis(2)));
        let mut decision = RouteDecision::default();
        decision = bypass.update_route(decision);
        (0..ANEW).for_each(|_| bypass.flash(Duration::from_micros(80)));
        bypass.update_route(decision);
        assert_eq!(bypass.route(), Route::Flash);
        let (mut now, mut sampler, mut reads) = (Duration::ZERO, Duration::ZERO, 0);
        while now < Duration::from_secs(10) {
            let took = match bypass.skips_tier(|| now) {
                true => Duration::from_micros(80),
                false => Duration::from_millis(2),
            };
            sampler += if took > Duration::from_micros(80) { took } else { Duration::ZERO };
            now += took;
            reads += 1;
        }
        assert!(
            sampler > Duration::ZERO && sampler <= now / 60,
            "{sampler:?} of {now:?}, {reads} reads"
        );
    }
}

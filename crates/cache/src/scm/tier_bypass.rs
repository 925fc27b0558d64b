//! Whether reads go past the tier: where flash answers sooner than it does.
//!
//! A device that wears out, is throttled or shared may answer later than the flash below it, and a page
//! that lies there is better read from flash then. What uses of the tier and reads of flash take is
//! followed over some hundred of each: what the fastest eighth of them takes at most, since the others
//! may have waited for a processor, most of all those that are waited for by looking, and that says
//! nothing of the device. Where the tier takes twice as long, flash is measured anew first, by a few
//! reads: what it took when it was read last may be long ago, and both may lie on one device. If that
//! bears it out, reads go past the tier, but for a few that go on measuring it: once it is no slower than
//! flash, it serves again.
//!
//! Which way is taken is a pure function ([`RouteDecision::next`]). Only numbers: `Relaxed`; of two that are
//! measured at once, one may be lost.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::time::Duration;

use super::latency_sampler::LatencySampler;
use super::prior::Prior;

/// Measurements until an estimate says something.
const ENOUGH: u32 = 128;

/// A longer measurement moves an estimate up by a part of this, a shorter one down by [`DOWN`] times that;
/// the first ones, and those of the tier while reads go past it, which are few, by more.
const PART: u32 = 128;
const PART_FEW: u32 = 32;

/// So an eighth of all measurements are shorter than the estimate.
const DOWN: u32 = 7;

/// A page from flash, until it is measured, nanoseconds.
const FLASH_NANOS: u32 = 80_000;

/// Reads of flash that are measured anew before it is preferred.
const ANEW: u32 = 2 * ENOUGH;

/// Where reads of pages go that lie in the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    /// To the tier.
    #[default]
    Tier,
    /// To the tier, but for a few: it seems slow, and flash is measured anew.
    Probing,
    /// To flash, but for a few.
    Flash,
}

/// The way, and how many reads of flash had been measured when it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteDecision {
    pub(crate) route: Route,
    pub(crate) since: u32,
}

/// An estimate, nanoseconds, and how many measurements it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) nanos: u32,
    pub(crate) seen: u32,
}

impl RouteDecision {
    /// The next one, of what a use of the tier and a read of flash take. The tier is the slower one where it
    /// takes twice as long as flash, until it takes no longer.
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

/// What an eighth of the measurements of late are below, about.
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

/// The way that is taken, and what it follows from.
#[derive(Debug)]
pub(crate) struct TierBypass {
    tier: FastestEighth,
    flash: FastestEighth,
    route: AtomicU8,
    /// When the next read goes the other way.
    sampler: LatencySampler,
}

impl TierBypass {
    /// Before anything is measured.
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

    /// A page was got from the tier in so long.
    pub(crate) fn hit(&self, took: Duration) {
        let part = if self.route() == Route::Flash { PART_FEW } else { PART };
        self.tier.follow(took, part);
    }

    /// A page was read from flash in so long.
    pub(crate) fn flash(&self, took: Duration) {
        self.flash.follow(took, PART);
    }

    /// Whether this read of a page that lies in the tier goes past it.
    pub(crate) fn skips_tier(&self, now: impl FnOnce() -> Duration) -> bool {
        match self.route() {
            Route::Tier => false,
            Route::Probing => self.sampler.is_due(now(), self.flash.estimate().nanos),
            Route::Flash => !self.sampler.is_due(now(), self.tier.estimate().nanos),
        }
    }

    /// Looks again which way to take, as decision `before`.
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
    fn a_tier_that_takes_twice_as_long_is_passed_until_it_takes_no_longer() {
        let mut decision = RouteDecision::default();
        let mut after = |tier: u32, flash: u32, seen: u32| {
            decision = decision.next(known(tier), Estimate { nanos: flash, seen });
            decision.route
        };
        assert_eq!([5, 500, 5000].map(|seen| after(160_000, 80_000, seen)), [Route::Tier; 3]);
        assert_eq!(after(161_000, 80_000, 5000), Route::Probing);
        assert_eq!(after(900_000, 80_000, 5000 + ANEW - 1), Route::Probing);
        // Flash takes as long by now: it was read long ago.
        assert_eq!(after(900_000, 800_000, 5000 + ANEW), Route::Tier);
        assert_eq!(after(900_000, 80_000, 6000), Route::Probing);
        assert_eq!(after(161_000, 80_000, 6000 + ANEW), Route::Flash);
        assert_eq!([161_000, 81_000].map(|tier| after(tier, 80_000, 9000)), [Route::Flash; 2]);
        assert_eq!(after(80_000, 80_000, 9000), Route::Tier);
    }

    #[test]
    fn without_enough_of_the_tier_nothing_is_passed() {
        let slow = Estimate { nanos: 900_000, seen: ENOUGH - 1 };
        assert_eq!(RouteDecision::default().next(slow, known(80_000)).route, Route::Tier);
    }

    /// Readers that outnumber the processors are kept from running in the midst of a read, some for as long
    /// as hundreds of reads take: where a read is waited for by looking, most of them.
    #[test]
    fn what_waits_for_a_processor_says_nothing_of_the_device() {
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
    fn what_goes_the_other_way_takes_a_small_part_of_the_time() {
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

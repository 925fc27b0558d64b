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
//! Which way is taken is a pure function ([`Judgement::next`]). Only numbers: `Relaxed`; of two that are
//! measured at once, one may be lost.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::time::Duration;

use super::Prior;
use super::latency_sampler::LatencySampler;

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
pub(crate) enum Way {
    /// To the tier.
    #[default]
    In,
    /// To the tier, but for a few: it seems slow, and flash is measured anew.
    Asking,
    /// To flash, but for a few.
    Past,
}

/// The way, and how many reads of flash had been measured when it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) way: Way,
    pub(crate) since: u32,
}

/// An estimate, nanoseconds, and how many measurements it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) nanos: u32,
    pub(crate) seen: u32,
}

impl Judgement {
    /// The next one, of what a use of the tier and a read of flash take. The tier is the slower one where it
    /// takes twice as long as flash, until it takes no longer.
    #[must_use]
    pub(crate) const fn next(self, tier: Known, flash: Known) -> Self {
        let is_slow = tier.seen >= ENOUGH && tier.nanos as u64 > flash.nanos as u64 * 2;
        let way = match self.way {
            Way::In if is_slow => Way::Asking,
            Way::Asking if is_slow && flash.seen.wrapping_sub(self.since) >= ANEW => Way::Past,
            Way::Asking if is_slow => Way::Asking,
            Way::Past if tier.nanos > flash.nanos => Way::Past,
            _ => Way::In,
        };
        match (self.way, way) {
            (Way::Asking, Way::Asking) => self,
            _ => Self { way, since: flash.seen },
        }
    }
}

/// What an eighth of the measurements of late are below, about.
#[derive(Debug)]
struct Fastest {
    nanos: AtomicU32,
    seen: AtomicU32,
}

impl Fastest {
    const fn new(nanos: u32) -> Self {
        Self { nanos: AtomicU32::new(nanos), seen: AtomicU32::new(0) }
    }

    fn known(&self) -> Known {
        Known { nanos: self.nanos.load(Relaxed), seen: self.seen.load(Relaxed) }
    }

    fn follow(&self, took: Duration, part: u32) {
        let Known { nanos, seen } = self.known();
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
    tier: Fastest,
    flash: Fastest,
    way: AtomicU8,
    /// When the next read goes the other way.
    aside: LatencySampler,
}

impl TierBypass {
    /// Before anything is measured.
    pub(crate) fn new(prior: Prior) -> Self {
        let (tier, flash) = (Fastest::new(prior.read_nanos), Fastest::new(FLASH_NANOS));
        Self { tier, flash, way: AtomicU8::new(Way::In as u8), aside: LatencySampler::default() }
    }

    pub(crate) fn way(&self) -> Way {
        match self.way.load(Relaxed) {
            0 => Way::In,
            1 => Way::Asking,
            _ => Way::Past,
        }
    }

    /// A page was got from the tier in so long.
    pub(crate) fn hit(&self, took: Duration) {
        let part = if self.way() == Way::Past { PART_FEW } else { PART };
        self.tier.follow(took, part);
    }

    /// A page was read from flash in so long.
    pub(crate) fn flash(&self, took: Duration) {
        self.flash.follow(took, PART);
    }

    /// Whether this read of a page that lies in the tier goes past it.
    pub(crate) fn leads_past(&self, now: impl FnOnce() -> Duration) -> bool {
        match self.way() {
            Way::In => false,
            Way::Asking => self.aside.is_due(now(), self.flash.known().nanos),
            Way::Past => !self.aside.is_due(now(), self.tier.known().nanos),
        }
    }

    /// Looks again which way to take, as judged `before`.
    pub(crate) fn look(&self, before: Judgement) -> Judgement {
        let next = before.next(self.tier.known(), self.flash.known());
        self.way.store(next.way as u8, Relaxed);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn known(nanos: u32) -> Known {
        Known { nanos, seen: ENOUGH }
    }

    #[test]
    fn a_tier_that_takes_twice_as_long_is_passed_until_it_takes_no_longer() {
        let mut judged = Judgement::default();
        let mut after = |tier: u32, flash: u32, seen: u32| {
            judged = judged.next(known(tier), Known { nanos: flash, seen });
            judged.way
        };
        assert_eq!([5, 500, 5000].map(|seen| after(160_000, 80_000, seen)), [Way::In; 3]);
        assert_eq!(after(161_000, 80_000, 5000), Way::Asking);
        assert_eq!(after(900_000, 80_000, 5000 + ANEW - 1), Way::Asking);
        // Flash takes as long by now: it was read long ago.
        assert_eq!(after(900_000, 800_000, 5000 + ANEW), Way::In);
        assert_eq!(after(900_000, 80_000, 6000), Way::Asking);
        assert_eq!(after(161_000, 80_000, 6000 + ANEW), Way::Past);
        assert_eq!([161_000, 81_000].map(|tier| after(tier, 80_000, 9000)), [Way::Past; 2]);
        assert_eq!(after(80_000, 80_000, 9000), Way::In);
    }

    #[test]
    fn without_enough_of_the_tier_nothing_is_passed() {
        let slow = Known { nanos: 900_000, seen: ENOUGH - 1 };
        assert_eq!(Judgement::default().next(slow, known(80_000)).way, Way::In);
    }

    /// Readers that outnumber the processors are kept from running in the midst of a read, some for as long
    /// as hundreds of reads take: where a read is waited for by looking, most of them.
    #[test]
    fn what_waits_for_a_processor_says_nothing_of_the_device() {
        let detour = TierBypass::new(Prior { read_nanos: 10_000, write_nanos: 10_000, writes: 32 });
        let mut judged = Judgement::default();
        for read in 0..20_000u64 {
            let late = Duration::from_millis(if read % 10 < 7 { 8 } else { 0 });
            detour.hit(Duration::from_micros(10) + late);
            detour.flash(Duration::from_micros(400));
            judged = detour.look(judged);
            assert_eq!(judged.way, Way::In, "read {read}");
        }
        let known = detour.tier.known();
        assert!((5_000..40_000).contains(&known.nanos), "{known:?}");
    }

    #[test]
    fn what_goes_the_other_way_takes_a_small_part_of_the_time() {
        let detour = TierBypass::new(Prior { read_nanos: 10_000, write_nanos: 10_000, writes: 32 });
        (0..ENOUGH).for_each(|_| detour.flash(Duration::from_micros(80)));
        (0..5000).for_each(|_| detour.hit(Duration::from_millis(2)));
        let mut judged = Judgement::default();
        judged = detour.look(judged);
        (0..ANEW).for_each(|_| detour.flash(Duration::from_micros(80)));
        detour.look(judged);
        assert_eq!(detour.way(), Way::Past);
        let (mut now, mut aside, mut reads) = (Duration::ZERO, Duration::ZERO, 0);
        while now < Duration::from_secs(10) {
            let took = match detour.leads_past(|| now) {
                true => Duration::from_micros(80),
                false => Duration::from_millis(2),
            };
            aside += if took > Duration::from_micros(80) { took } else { Duration::ZERO };
            now += took;
            reads += 1;
        }
        assert!(aside > Duration::ZERO && aside <= now / 60, "{aside:?} of {now:?}, {reads} reads");
    }
}

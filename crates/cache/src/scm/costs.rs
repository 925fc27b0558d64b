//! Measured costs of the tier, as moving averages, and what follows from them: the promotion heat and the
//! promoted share.
//!
//! Any thread records measurements; the background task updates what follows.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::time::Duration;

use base::invariant;

use super::placement::{ALL, Costs, DRAM_HIT_NANOS};
use super::prior::Prior;
use super::statistics::Counters;
use crate::PageKind;
use crate::reuse::{KindReuse, Reuse};

/// Assumed cost of an insertion into DRAM, nanoseconds, until it is measured.
const DRAM_PUT_NANOS: u32 = 2000;

/// Assumed cost of a page from flash, nanoseconds, until it is measured.
const FLASH_NANOS: u32 = 80_000;

/// A measurement moves its average by 1/16 of the difference.
const WEIGHT: u32 = 16;

/// Least bound on one measurement, nanoseconds, so that an average can grow from 0.
const LEAST_STEP: u32 = 256;

/// Evicted pages from which on their reuse is significant.
const LEFT_LEAST: u64 = 256;

/// Moving averages, nanoseconds. Plain numbers, `Relaxed`: of two concurrent measurements one may be lost.
#[derive(Debug)]
pub(crate) struct MeasuredCosts {
    put: AtomicU32,
    hit: AtomicU32,
    write: AtomicU32,
    flash: AtomicU32,
    /// [`Costs::promotion_heat`] of these averages, 0 for none: cached, because every reader asks for it.
    promotion_heat: AtomicU8,
    /// Share of hot data pages, and of hot metadata pages, that may be promoted, in 1/256.
    share: [AtomicU32; 2],
    /// Fixed costs, set by tests.
    #[cfg(test)]
    fixed: std::sync::OnceLock<Costs>,
}

impl MeasuredCosts {
    /// The averages before anything is measured. A use costs a read of the medium beside the cost of any use.
    pub(crate) fn new(prior: Prior) -> Self {
        let hit = prior.read_nanos.saturating_add(DRAM_HIT_NANOS);
        Self {
            put: AtomicU32::new(DRAM_PUT_NANOS),
            hit: AtomicU32::new(hit),
            write: AtomicU32::new(prior.write_nanos),
            flash: AtomicU32::new(FLASH_NANOS),
            promotion_heat: AtomicU8::new(0),
            share: [const { AtomicU32::new(ALL) }; 2],
            #[cfg(test)]
            fixed: std::sync::OnceLock::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn fix(&self, costs: Costs) {
        self.fixed.set(costs).unwrap();
        self.update_promotion_heat(&Counters::default());
    }

    /// Records the time of a read of a page from the tier.
    pub(crate) fn hit(&self, took: Duration) {
        follow(&self.hit, took, DRAM_HIT_NANOS);
    }

    /// Records the time of an insertion into DRAM.
    pub(crate) fn put(&self, took: Duration) {
        follow(&self.put, took, 0);
    }

    /// Records the time of a write of a page.
    pub(crate) fn write(&self, took: Duration) {
        follow(&self.write, took, 0);
    }

    /// Records the time of a read of a page from flash.
    pub(crate) fn flash(&self, took: Duration) {
        follow(&self.flash, took, DRAM_HIT_NANOS);
    }

    pub(crate) fn flash_nanos(&self) -> u32 {
        self.flash.load(Relaxed)
    }

    pub(crate) fn hit_nanos(&self) -> u32 {
        self.hit.load(Relaxed)
    }

    pub(crate) fn write_nanos(&self) -> u32 {
        self.write.load(Relaxed)
    }

    /// [`Costs::promotion_heat`] as of the last update, for a page with this hash; `None` if the page is not
    /// in the promoted share. A metadata page serves a hundred data pages: it is promoted at its first use if
    /// any data page is worth promoting, and otherwise if it is in the promoted share of metadata.
    pub(crate) fn promotion_heat(&self, kind: PageKind, hash: u64) -> Option<u8> {
        let promotion_heat = Some(self.promotion_heat.load(Relaxed)).filter(|heat| *heat > 0);
        let [data, meta] = &self.share;
        let may = |share: &AtomicU32| u32::from((hash >> 40) as u8) < share.load(Relaxed);
        match kind {
            PageKind::Data => promotion_heat.filter(|_| may(data)),
            PageKind::Meta => (promotion_heat.is_some() || may(meta)).then_some(1),
        }
    }

    /// Updates the promoted shares by the reuse of pages in DRAM since `before`. Returns the counts to pass
    /// as `before` next time: `now` for the kinds that had enough evictions, else `before`.
    pub(crate) fn update_promoted_share(
        &self,
        counters: &Counters,
        before: KindReuse,
        now: KindReuse,
    ) -> KindReuse {
        let costs = self.costs(counters);
        let next = |share: &AtomicU32, before: Reuse, now: Reuse, kind| {
            let Some(uses) = now.uses_since(before, kind, LEFT_LEAST) else { return before };
            let next = Costs::next_share(share.load(Relaxed), costs.pays_off(uses));
            invariant!((1..=ALL).contains(&next), "some pages are promoted always");
            share.store(next, Relaxed);
            now
        };
        let [data, meta] = &self.share;
        KindReuse {
            data: next(data, before.data, now.data, PageKind::Data),
            meta: next(meta, before.meta, now.meta, PageKind::Meta),
        }
    }

    /// Updates the promotion heat.
    pub(crate) fn update_promotion_heat(&self, counters: &Counters) {
        self.promotion_heat.store(self.costs(counters).promotion_heat().unwrap_or(0), Relaxed);
    }

    /// The costs as measured; `rewritten` from the counters of demotions.
    fn costs(&self, counters: &Counters) -> Costs {
        #[cfg(test)]
        if let Some(costs) = self.fixed.get() {
            return *costs;
        }
        let kept = counters.kept.load(Relaxed);
        let written = counters.demoted.load(Relaxed);
        let rewritten = (written * 256).checked_div(written + kept).unwrap_or(256) as u32;
        Costs {
            dram_hit: DRAM_HIT_NANOS,
            dram_put: self.put.load(Relaxed),
            scm_hit: self.hit_nanos(),
            scm_write: self.write_nanos(),
            rewritten,
        }
    }
}

fn follow(average: &AtomicU32, took: Duration, beside: u32) {
    // Bounded: a thread that was descheduled while it measured says nothing about the medium.
    let now = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).saturating_add(beside);
    let before = average.load(Relaxed);
    let now = now.min(before.saturating_mul(8).max(LEAST_STEP));
    let after = u64::from(before) * u64::from(WEIGHT - 1) + u64::from(now);
    average.store((after / u64::from(WEIGHT)) as u32, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use PageKind::{Data, Meta};

    const SSD: Prior = Prior { read_nanos: 10_000, write_nanos: 10_400, writes: 32 };

    #[test]
    fn averages_follow_measurements_and_bound_outliers() {
        let measured = MeasuredCosts::new(SSD);
        assert_eq!((measured.hit_nanos(), measured.write_nanos()), (10_400, 10_400));
        (0..200).for_each(|_| measured.hit(Duration::from_nanos(600)));
        assert!((990..1100).contains(&measured.hit_nanos()), "{}", measured.hit_nanos());
        measured.hit(Duration::from_millis(50));
        assert!(measured.hit_nanos() < 1600, "{}", measured.hit_nanos());
        (0..300).for_each(|_| measured.write(Duration::ZERO));
        assert!(measured.write_nanos() < 32);
        (0..300).for_each(|_| measured.write(Duration::from_micros(3)));
        assert!((2800..3100).contains(&measured.write_nanos()), "{}", measured.write_nanos());
    }

    #[test]
    fn the_promoted_share_follows_the_reuse_of_pages_in_dram() {
        let (measured, counters) = (MeasuredCosts::new(SSD), Counters::default());
        measured.update_promotion_heat(&counters);
        let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let near = MeasuredCosts::new(Prior { read_nanos: 10, ..SSD });
        near.update_promotion_heat(&counters);
        let measured_of = |kind| if kind == Data { &measured } else { &near };
        let promoted = |kind| {
            let measured = measured_of(kind);
            (0..1000).filter(|n| measured.promotion_heat(kind, spread(*n)).is_some()).count()
        };
        let mut before = KindReuse::default();
        let mut after = |kind, kept, evicted| {
            let mut now = before;
            *now.of(kind) += Reuse { kept, evicted };
            before = measured_of(kind).update_promoted_share(&counters, before, now);
            before == now
        };
        // A metadata page is kept for its first turn without a use.
        for (kind, first) in [(Data, 0), (Meta, 1000)] {
            assert_eq!(promoted(kind), 1000);
            assert!(!after(kind, 0, LEFT_LEAST - 1), "too few to say anything");
            assert_eq!(promoted(kind), 1000);
            assert!((0..40).all(|_| after(kind, first + 50, 1000)));
            assert!((30..100).contains(&promoted(kind)), "{}", promoted(kind));
            assert!((0..40).all(|_| after(kind, first + 2_000_000, 1000)));
            assert_eq!(promoted(kind), 1000);
        }
    }

    #[test]
    fn the_rewritten_share_excludes_pages_that_the_tier_kept() {
        let (measured, counters) = (MeasuredCosts::new(SSD), Counters::default());
        assert_eq!(measured.costs(&counters).rewritten, 256);
        counters.kept.store(300, Relaxed);
        counters.demoted.store(100, Relaxed);
        assert_eq!(measured.costs(&counters).rewritten, 64);
    }
}

//! Placement: which tier a page belongs to. Four policies, as pure functions.
//!
//! - DRAM first: pages that are read enter DRAM. Evicted pages may be demoted; demoted pages that are used
//!   again are promoted.
//! - SCM first: pages that are read enter SCM, and are promoted when they are used there.
//! - By kind: metadata pages in DRAM, data pages in SCM; none moves.
//! - Adaptive: whatever costs least, by the measured costs of uses and writes.
//!
//! The first three are those of Kassa et al., "Improving performance of flash based key-value stores using
//! storage class memory as a volatile memory extension", USENIX ATC 2021.

use crate::PageKind;

/// A placement policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// By the measured costs of both tiers.
    #[default]
    Adaptive,
    /// Into DRAM first; demoted when evicted, promoted when used again.
    DramFirst,
    /// Into SCM first; promoted when used.
    ScmFirst,
    /// Metadata pages in DRAM, data pages in SCM.
    ByKind,
}

impl Placement {
    /// All policies, with their names in settings.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("adaptive", Self::Adaptive),
        ("dram-first", Self::DramFirst),
        ("scm-first", Self::ScmFirst),
        ("by-kind", Self::ByKind),
    ];

    /// The name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| *name)
    }
}

/// Assumed cost of the use of a page in DRAM, nanoseconds; a use in SCM costs this beside the access of the
/// medium, because either decompresses or searches the page.
pub(crate) const DRAM_HIT_NANOS: u32 = 400;

/// Measured costs, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Use of a page in DRAM.
    pub dram_hit: u32,
    /// Insertion of a page into DRAM, with the eviction of another.
    pub dram_put: u32,
    /// Use of a page in SCM.
    pub scm_hit: u32,
    /// Write of a page to SCM.
    pub scm_write: u32,
    /// How many of 256 pages that DRAM evicts must be written to SCM again; the others are still there.
    pub rewritten: u32,
}

impl Costs {
    /// The heat from which on the promotion of a page pays off; `None`: never. Assumes that a page will be
    /// used as often as its heat counts.
    ///
    /// A promotion costs one use in SCM, an insertion into DRAM and, for some pages, the write of the evicted
    /// page. The hits that it saves must cover that.
    #[must_use]
    pub const fn promotion_heat(self) -> Option<u8> {
        let gain = self.scm_hit.saturating_sub(self.dram_hit);
        if gain == 0 {
            return None;
        }
        match self.cost().div_ceil(gain as u64) {
            heat @ 0..=3 => Some(if heat == 0 { 1 } else { heat as u8 }),
            _ => None,
        }
    }

    /// Cost of a promotion, nanoseconds.
    const fn cost(self) -> u64 {
        let written = self.scm_write as u64 * self.rewritten as u64 / 256;
        self.scm_hit as u64 + self.dram_put as u64 + written
    }
}

/// All pages, where shares of pages are in 1/256.
pub(crate) const ALL: u32 = 256;

/// Least promoted share of hot pages, in 1/256: some are promoted always, to measure whether it pays off.
const SHARE_MIN: u32 = ALL / 16;

impl Costs {
    /// Whether promotions pay off if promoted pages had `uses` uses per 256 evictions while they were in
    /// DRAM.
    #[must_use]
    pub const fn pays_off(self, uses: u32) -> bool {
        let gain = self.scm_hit.saturating_sub(self.dram_hit) as u64;
        gain * uses as u64 >= self.cost() * ALL as u64
    }

    /// The next promoted share of hot pages, in 1/256, given the last one and whether promotions paid off. If
    /// other users of DRAM, such as single rows, leave little room for pages, fewer promotions let each
    /// promoted page stay longer, until they pay off.
    #[must_use]
    pub(crate) const fn next_share(share: u32, paid: bool) -> u32 {
        match paid {
            true if share + share / 8 < ALL => share + share / 8,
            true => ALL,
            false if share - share / 8 > SHARE_MIN => share - share / 8,
            false => SHARE_MIN,
        }
    }
}

/// A cache tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// DRAM, the upper tier.
    Dram,
    /// SCM, the lower tier.
    Scm,
}

impl Placement {
    /// The tier that a page read from flash enters, given [`Costs::promotion_heat`].
    pub(crate) const fn tier_on_miss(self, kind: PageKind, promotion_heat: Option<u8>) -> Tier {
        match (self, kind) {
            (Self::DramFirst, _) | (Self::ByKind | Self::Adaptive, PageKind::Meta) => Tier::Dram,
            (Self::ScmFirst, _) | (Self::ByKind, _) => Tier::Scm,
            // If uses in SCM cost next to nothing more, DRAM is left to the hottest pages.
            (Self::Adaptive, _) => match promotion_heat {
                Some(_) => Tier::Dram,
                None => Tier::Scm,
            },
        }
    }

    /// Whether a page that DRAM evicts may be demoted.
    pub(crate) const fn may_demote(self, kind: PageKind) -> bool {
        !matches!((self, kind), (Self::ByKind, PageKind::Meta))
    }

    /// Whether a page in SCM with this heat is promoted, given [`Costs::promotion_heat`].
    pub(crate) const fn promotes(
        self,
        kind: PageKind,
        heat: u8,
        promotion_heat: Option<u8>,
    ) -> bool {
        match (self, kind) {
            (Self::DramFirst, _) => heat >= 2,
            (Self::ScmFirst, _) | (Self::ByKind, PageKind::Meta) => true,
            (Self::ByKind, _) => false,
            (Self::Adaptive, _) => match promotion_heat {
                Some(promotion_heat) => heat >= promotion_heat,
                None => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Costs =
        Costs { dram_hit: 400, dram_put: 0, scm_hit: 420, scm_write: 900, rewritten: 128 };
    const CXL: Costs =
        Costs { dram_hit: 400, dram_put: 2500, scm_hit: 900, scm_write: 1200, rewritten: 64 };
    const SSD: Costs =
        Costs { dram_hit: 400, dram_put: 2500, scm_hit: 10_400, scm_write: 10_000, rewritten: 64 };

    #[test]
    fn the_promotion_heat_falls_with_the_cost_of_an_scm_hit() {
        assert_eq!(NEAR.promotion_heat(), None);
        assert_eq!(CXL.promotion_heat(), None);
        assert_eq!(Costs { dram_put: 300, ..CXL }.promotion_heat(), Some(3));
        assert_eq!(SSD.promotion_heat(), Some(2));
        let free = Costs { scm_write: 0, rewritten: 0, dram_put: 0, ..SSD };
        assert_eq!(Costs { dram_hit: 0, ..free }.promotion_heat(), Some(1));
        assert_eq!(Costs { scm_hit: 300, ..SSD }.promotion_heat(), None, "faster than DRAM");
    }

    #[test]
    fn the_promoted_share_shrinks_while_promotions_do_not_pay_off() {
        assert_eq!([0, 360, 410, 2560].map(|uses| SSD.pays_off(uses)), [false, false, true, true]);
        assert!(!NEAR.pays_off(2560) && !Costs { scm_hit: 300, ..SSD }.pays_off(u32::MAX));
        let after = |share, paid| (0..40).fold(share, |share, _| Costs::next_share(share, paid));
        assert_eq!((after(ALL, false), after(SHARE_MIN, true)), (SHARE_MIN, ALL));
        assert_eq!((Costs::next_share(128, true), Costs::next_share(128, false)), (144, 112));
    }

    #[test]
    fn each_policy_places_and_promotes_by_its_rule() {
        use PageKind::{Data, Meta};
        use Placement::{Adaptive, ByKind, DramFirst, ScmFirst};

        let tier_on_miss = |policy: Placement, costs: Costs| {
            [Data, Meta].map(|kind| policy.tier_on_miss(kind, costs.promotion_heat()) == Tier::Scm)
        };
        assert_eq!(tier_on_miss(DramFirst, SSD), [false, false]);
        assert_eq!(tier_on_miss(ScmFirst, SSD), [true, true]);
        assert_eq!(tier_on_miss(ByKind, SSD), [true, false]);
        assert_eq!(tier_on_miss(Adaptive, SSD), [false, false]);
        assert_eq!(tier_on_miss(Adaptive, NEAR), [true, false]);
        let up = |policy: Placement, kind| {
            (1..=3)
                .filter(|heat| policy.promotes(kind, *heat, CXL.promotion_heat()))
                .collect::<Vec<_>>()
        };
        assert_eq!(up(DramFirst, Data), [2, 3]);
        assert_eq!(up(ScmFirst, Data), [1, 2, 3]);
        assert!(up(ByKind, Data).is_empty());
        assert!(up(Adaptive, Data).is_empty());
        assert!(up(Adaptive, Meta).is_empty() && Adaptive.promotes(Meta, 1, Some(1)));
        let heats = (1..=3).filter(|heat| Adaptive.promotes(Data, *heat, SSD.promotion_heat()));
        assert_eq!(heats.collect::<Vec<_>>(), [2, 3]);
        assert!(!ByKind.may_demote(Meta) && ByKind.may_demote(Data) && DramFirst.may_demote(Meta));
    }

    #[test]
    fn each_policy_has_its_name_in_settings() {
        for (name, policy) in Placement::NAMES {
            assert_eq!(policy.name(), name);
        }
    }
}

//! Where pages go: the four policies between DRAM and the tier below, as pure functions.
//!
//! DRAM first: what is read enters DRAM; what leaves it may go down; what is asked for again below is
//! copied up. SCM first: what is read goes down, and is copied up when it is hit there. By kind:
//! metadata in DRAM, data below, and nothing moves. (The three of Kassa et al., "Improving performance
//! of flash based key-value stores using storage class memory as a volatile memory extension", USENIX
//! ATC 2021.) Adaptive: what costs least by what hits and writes were measured to cost.

use crate::PageKind;

/// Where pages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// By the measured costs of both tiers.
    #[default]
    Adaptive,
    /// Into DRAM; down when they leave it, up when they are asked for again.
    DramFirst,
    /// Below; up when they are hit.
    ScmFirst,
    /// Metadata into DRAM, data below.
    ByKind,
}

impl Placement {
    /// Every policy, by its name in settings.
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

/// A use of a page in DRAM beside the same page below: both decompress or search it.
pub(crate) const DRAM_HIT_NANOS: u32 = 400;

/// What things cost, nanoseconds, as measured lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The use of a page in DRAM.
    pub dram_hit: u32,
    /// The putting of a page into DRAM, where another leaves for it.
    pub dram_put: u32,
    /// The use of a page below.
    pub scm_hit: u32,
    /// The writing of a page below.
    pub scm_write: u32,
    /// Of 256 pages that leave DRAM, as many must be written below again: the rest lie there still.
    pub rewritten: u32,
}

impl Costs {
    /// How often a page below must be asked for until copying it up pays, where what it was asked for
    /// lately says how often it will be; none: never.
    ///
    /// A copy costs one use below, its putting into DRAM and, now and then, the writing of the page that
    /// leaves for it. It is to pay within as many hits as were counted.
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

    /// Of copying a page up.
    const fn cost(self) -> u64 {
        let written = self.scm_write as u64 * self.rewritten as u64 / 256;
        self.scm_hit as u64 + self.dram_put as u64 + written
    }
}

/// All pages, as a part of them.
pub(crate) const ALL: u32 = 256;

/// At least so many of 256 pages are copied up where they are hot enough: they tell what it is worth.
const SHARE_MIN: u32 = ALL / 16;

impl Costs {
    /// Whether copies up paid, where of 256 pages that were, `uses` uses were seen in DRAM until they went.
    #[must_use]
    pub const fn pays_off(self, uses: u32) -> bool {
        let gain = self.scm_hit.saturating_sub(self.dram_hit) as u64;
        gain * uses as u64 >= self.cost() * ALL as u64
    }

    /// The part of all pages that may be copied up, in 256ths, where it was `share` and that paid or did not.
    /// DRAM that other things take, such as single rows, has room for few pages: the fewer are copied, the
    /// longer each stays, until it pays.
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

/// A tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Of frames in DRAM.
    Dram,
    /// Of slots below it.
    Scm,
}

impl Placement {
    /// Where a page goes that was read from neither; `worthy` is [`Costs::promotion_heat`].
    #[must_use]
    pub const fn tier_on_miss(self, kind: PageKind, promotion_heat: Option<u8>) -> Tier {
        match (self, kind) {
            (Self::DramFirst, _) | (Self::ByKind | Self::Adaptive, PageKind::Meta) => Tier::Dram,
            (Self::ScmFirst, _) | (Self::ByKind, _) => Tier::Scm,
            // Where being below costs next to nothing, DRAM is left to what is asked for most.
            (Self::Adaptive, _) => match promotion_heat {
                Some(_) => Tier::Dram,
                None => Tier::Scm,
            },
        }
    }

    /// Whether a page that leaves DRAM may go down.
    #[must_use]
    pub const fn may_demote(self, kind: PageKind) -> bool {
        !matches!((self, kind), (Self::ByKind, PageKind::Meta))
    }

    /// Whether a page below that was asked for as often as `heat` says is to be copied up.
    #[must_use]
    pub const fn promotes(self, kind: PageKind, heat: u8, promotion_heat: Option<u8>) -> bool {
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
    fn the_dearer_a_hit_below_the_sooner_a_page_goes_up() {
        assert_eq!(NEAR.promotion_heat(), None);
        assert_eq!(CXL.promotion_heat(), None);
        assert_eq!(Costs { dram_put: 300, ..CXL }.promotion_heat(), Some(3));
        assert_eq!(SSD.promotion_heat(), Some(2));
        let free = Costs { scm_write: 0, rewritten: 0, dram_put: 0, ..SSD };
        assert_eq!(Costs { dram_hit: 0, ..free }.promotion_heat(), Some(1));
        assert_eq!(Costs { scm_hit: 300, ..SSD }.promotion_heat(), None, "faster than DRAM");
    }

    #[test]
    fn copies_up_that_are_hardly_used_become_few_and_more_again_where_they_pay() {
        assert_eq!([0, 360, 410, 2560].map(|uses| SSD.pays_off(uses)), [false, false, true, true]);
        assert!(!NEAR.pays_off(2560) && !Costs { scm_hit: 300, ..SSD }.pays_off(u32::MAX));
        let after = |share, paid| (0..40).fold(share, |share, _| Costs::next_share(share, paid));
        assert_eq!((after(ALL, false), after(SHARE_MIN, true)), (SHARE_MIN, ALL));
        assert_eq!((Costs::next_share(128, true), Costs::next_share(128, false)), (144, 112));
    }

    #[test]
    fn each_policy_does_what_its_name_says() {
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
    fn names_are_the_policies() {
        for (name, policy) in Placement::NAMES {
            assert_eq!(policy.name(), name);
        }
    }
}

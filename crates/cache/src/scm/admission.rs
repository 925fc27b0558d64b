//! Admission: which pages are written to the tier. A pure function of the candidate page and the tier's
//! state.
//!
//! While the tier has empty slots, every page is admitted. After that a page must have come back: DRAM
//! evicted it before, it was refused, and the ghost list, twice as large as the tier, still has it (Eisenman
//! et al., "Reducing DRAM footprint with NVM in Facebook", EuroSys 2018). Hits in DRAM do not count: they
//! happened without the tier, and say little about accesses after the eviction. The ghost list is twice as
//! large because its entries are replaced faster than the tier's pages (it takes every refused page), and
//! pages that come back within the time that the tier keeps a page should be in it. (Measured:
//! docs/decisions/007-scm-tier.md.) If the tier also holds rows, the list is twice as large as the slots that
//! are left for pages.
//!
//! Where that loses many hits, as a tier of a hundredth of the data may, every page is admitted while less
//! than half of the write budget is used: `admission_contest` finds out.
//!
//! As the writes of the last minute approach the write budget, fewer of those pages are admitted (as in
//! CacheLib).

/// A page that is offered to the tier, and the state of the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The page's set has an empty slot: it would evict no other page.
    pub has_room: bool,
    /// The ghost list has the page.
    pub came_back: bool,
    /// Pages that did not come back are admitted, too: the tier has clearly more hits so.
    pub admits_all: bool,
    /// Evenly distributed number from the page's hash.
    pub chance: u8,
    /// Share of the write budget used in the last minute, in 1/256.
    pub fullness: u32,
    /// The tier is slower than flash, so that readers bypass it.
    pub is_slow: bool,
}

/// Why a page is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The ghost list does not have it.
    Cold,
    /// The write budget is used up, or nearly so.
    Budget,
    /// Warm outputs cost enough writes lately, for the lookups there were.
    Churn,
    /// Too many pages wait to be written, or the slot is in use.
    Busy,
    /// Its file is obsolete.
    Dead,
    /// The placement policy keeps its kind in DRAM.
    Kind,
    /// The page is a warm output, and the merge's input pages free no slot for it.
    NoSlot,
    /// The tier is slower than flash.
    Slow,
}

/// Most admitted warm outputs per hundred lookups.
const WARM_OUTPUT_PERCENT: u64 = 25;

/// While the tier is slower than flash, this many of 256 pages are still candidates: reads of them show when
/// the tier is fast again.
const WHILE_SLOW: u8 = 4;

/// Used share of the write budget from which on fewer pages are admitted, in 1/256.
const EASING: u32 = 128;

/// Admission policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// The policy of [`decide`].
    #[default]
    Chosen,
    /// All pages, as far as the write budget allows: the baseline for measurements of the policy.
    All,
}

impl Admission {
    /// Admits or refuses a page.
    ///
    /// # Errors
    /// The reason why the page is refused.
    pub const fn decide(self, candidate: Candidate) -> Result<(), Refusal> {
        match self {
            Self::Chosen => decide(candidate),
            Self::All if candidate.fullness >= 256 => Err(Refusal::Budget),
            Self::All => Ok(()),
        }
    }
}

/// Admits or refuses a page.
///
/// # Errors
/// The reason why the page is refused.
pub const fn decide(candidate: Candidate) -> Result<(), Refusal> {
    if candidate.fullness >= 256 {
        return Err(Refusal::Budget);
    }
    if candidate.is_slow && candidate.chance >= WHILE_SLOW {
        return Err(Refusal::Slow);
    }
    if candidate.has_room {
        return Ok(());
    }
    let may_be_cold = candidate.admits_all && candidate.fullness < EASING;
    if !candidate.came_back && !may_be_cold {
        return Err(Refusal::Cold);
    }
    let eased = candidate.fullness.saturating_sub(EASING) * 2;
    if (candidate.chance as u32) < eased {
        return Err(Refusal::Budget);
    }
    Ok(())
}

/// Lookups and admitted warm outputs of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentWarmOutputs {
    /// Lookups.
    pub lookups: u32,
    /// Warm outputs that were admitted.
    pub admitted: u32,
}

/// Admits or refuses a warm output of a merge whose input pages free `freed_slots` slots that no other warm
/// output was given. If pages are merged again before they were used four times each, warm outputs are
/// refused, and only pages that readers ask for are admitted.
///
/// # Errors
/// The reason why the page is refused.
pub const fn decide_warm_output(
    candidate: Candidate,
    recent: RecentWarmOutputs,
    freed_slots: u32,
) -> Result<(), Refusal> {
    let is_churned =
        (recent.admitted as u64 + 1) * 100 > recent.lookups as u64 * WARM_OUTPUT_PERCENT;
    match decide(candidate) {
        Ok(()) if freed_slots == 0 => Err(Refusal::NoSlot),
        Ok(()) if is_churned => Err(Refusal::Churn),
        decided => decided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACK: Candidate = Candidate {
        has_room: false,
        came_back: true,
        admits_all: false,
        chance: 100,
        fullness: 0,
        is_slow: false,
    };

    #[test]
    fn a_page_must_come_back_unless_there_is_room() {
        assert_eq!(decide(BACK), Ok(()));
        let cold = Candidate { came_back: false, ..BACK };
        assert_eq!(decide(cold), Err(Refusal::Cold));
        assert_eq!(decide(Candidate { has_room: true, ..cold }), Ok(()));
        let open = Candidate { admits_all: true, ..cold };
        assert_eq!(decide(open), Ok(()));
        assert_eq!(decide(Candidate { fullness: EASING, ..open }), Err(Refusal::Cold));
        assert_eq!(Admission::All.decide(cold), Ok(()));
        let spent = Candidate { fullness: 256, ..BACK };
        assert_eq!(Admission::All.decide(spent), Err(Refusal::Budget));
        assert_eq!(Admission::Chosen.decide(cold), decide(cold));
    }

    #[test]
    fn a_nearly_used_budget_admits_fewer_pages() {
        let admitted = |fullness| {
            let of = |chance| decide(Candidate { chance, fullness, ..BACK }).is_ok();
            (0..=255).filter(|chance| of(*chance)).count()
        };
        assert_eq!([0, 128, 192, 255, 256].map(admitted), [256, 256, 128, 2, 0]);
        let filling = Candidate { has_room: true, fullness: 256, ..BACK };
        assert_eq!(decide(filling), Err(Refusal::Budget));
    }

    #[test]
    fn a_slow_tier_refuses_nearly_all_pages() {
        let of = |chance, has_room| decide(Candidate { chance, has_room, is_slow: true, ..BACK });
        for has_room in [true, false] {
            let refused = (0..=255).filter(|chance| of(*chance, has_room) == Err(Refusal::Slow));
            assert_eq!(refused.count(), 252);
        }
    }

    #[test]
    fn a_warm_output_needs_a_freed_slot_and_lookups() {
        let recent = RecentWarmOutputs { lookups: 1000, admitted: 249 };
        assert_eq!(decide_warm_output(BACK, recent, 1), Ok(()));
        assert_eq!(decide_warm_output(BACK, recent, 0), Err(Refusal::NoSlot));
        // Refused with or without room, if the same pages are merged again and again.
        let churned = RecentWarmOutputs { admitted: 250, ..recent };
        for has_room in [true, false] {
            let candidate = Candidate { has_room, ..BACK };
            assert_eq!(decide_warm_output(candidate, churned, 9), Err(Refusal::Churn));
            let spent = Candidate { fullness: 256, ..candidate };
            assert_eq!(decide_warm_output(spent, recent, 9), Err(Refusal::Budget));
        }
        assert_eq!(
            decide_warm_output(Candidate { fullness: 200, ..BACK }, recent, 9),
            Err(Refusal::Budget)
        );
    }
}

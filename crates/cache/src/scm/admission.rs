//! Which pages are written below: a pure function of what is known when one is offered.
//!
//! While the tier has empty slots, all are. Then a page must come back: it left DRAM before, was not let in,
//! and is remembered by a ghost twice as large as the tier (Eisenman et al., "Reducing DRAM footprint with
//! NVM in Facebook", EuroSys 2018). What it was asked for in DRAM does not count: those were hits without the
//! tier, and say little of whether it will be asked for once it is gone. That the ghost is twice as large is
//! because the tier gives up its pages more slowly than the ghost, which takes in all that are refused: what
//! comes back within the time that a page stays below should be known. (MeasuredCosts: docs/reproduction.md.)
//! Of a tier that holds rows, too, it is twice as large as what they leave to pages.
//!
//! The nearer the last minute's writes are to their budget, the fewer of those (as CacheLib does it).

/// What is known of a page that is offered, and of the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// It would push out no other.
    pub has_room: bool,
    /// The page left DRAM before, as far as anyone remembers.
    pub came_back: bool,
    /// A number from the page's hash, evenly spread.
    pub chance: u8,
    /// Of the last minute's budget so much is written, in 256ths.
    pub fullness: u32,
    /// The tier is slower than flash, and hardly anything is read from it.
    pub is_slow: bool,
}

/// Why a page is not written below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not remembered.
    Cold,
    /// The budget of writes.
    Budget,
    /// Merges wrote enough of late, beside what is asked for.
    Churn,
    /// Too many wait to be written.
    Busy,
    /// Its file is gone.
    Dead,
    /// The policy keeps its kind above.
    Kind,
    /// A merge wrote it, and the pages it takes over from left no slot.
    NoSlot,
    /// The tier is slower than flash.
    Slow,
}

/// Pages that merges write and that are let in, for a hundred lookups, at most.
const WARM_OUTPUT_PERCENT: u64 = 25;

/// While the tier is slower than flash so many of 256 pages are still looked at: what is read of them tells
/// when it is no longer.
const WHILE_SLOW: u8 = 4;

/// The part of a minute's budget from which on fewer are admitted, in 256ths.
const EASING: u32 = 128;

/// Which of the pages that are offered are let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// As [`decide`] says.
    #[default]
    Chosen,
    /// All, as far as the budget goes: what the choice is measured against.
    All,
}

impl Admission {
    /// Whether a page is to be written below.
    ///
    /// # Errors
    /// Why not.
    pub const fn decide(self, candidate: Candidate) -> Result<(), Refusal> {
        match self {
            Self::Chosen => decide(candidate),
            Self::All if candidate.fullness >= 256 => Err(Refusal::Budget),
            Self::All => Ok(()),
        }
    }
}

/// Whether a page is to be written below.
///
/// # Errors
/// Why not.
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
    if !candidate.came_back {
        return Err(Refusal::Cold);
    }
    let eased = candidate.fullness.saturating_sub(EASING) * 2;
    if (candidate.chance as u32) < eased {
        return Err(Refusal::Budget);
    }
    Ok(())
}

/// What merges put below of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentWarmOutputs {
    /// Lookups meanwhile.
    pub lookups: u32,
    /// Pages that were let in.
    pub admitted: u32,
}

/// Whether a page is to be written below that a merge wrote, of keys that were asked for in its inputs,
/// where the inputs' pages leave so many slots. Where pages are merged again before they were asked for four
/// times each, it is left to what is asked for.
///
/// # Errors
/// Why not.
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

    const BACK: Candidate =
        Candidate { has_room: false, came_back: true, chance: 100, fullness: 0, is_slow: false };

    #[test]
    fn a_page_must_come_back_unless_there_is_room() {
        assert_eq!(decide(BACK), Ok(()));
        let cold = Candidate { came_back: false, ..BACK };
        assert_eq!(decide(cold), Err(Refusal::Cold));
        assert_eq!(decide(Candidate { has_room: true, ..cold }), Ok(()));
        assert_eq!(Admission::All.decide(cold), Ok(()));
        let spent = Candidate { fullness: 256, ..BACK };
        assert_eq!(Admission::All.decide(spent), Err(Refusal::Budget));
        assert_eq!(Admission::Chosen.decide(cold), decide(cold));
    }

    #[test]
    fn the_budget_eases_writes_before_it_ends_them() {
        let admitted = |fullness| {
            let of = |chance| decide(Candidate { chance, fullness, ..BACK }).is_ok();
            (0..=255).filter(|chance| of(*chance)).count()
        };
        assert_eq!([0, 128, 192, 255, 256].map(admitted), [256, 256, 128, 2, 0]);
        let filling = Candidate { has_room: true, fullness: 256, ..BACK };
        assert_eq!(decide(filling), Err(Refusal::Budget));
    }

    #[test]
    fn while_the_tier_is_slow_hardly_anything_is_let_in() {
        let of = |chance, has_room| decide(Candidate { chance, has_room, is_slow: true, ..BACK });
        for has_room in [true, false] {
            let refused = (0..=255).filter(|chance| of(*chance, has_room) == Err(Refusal::Slow));
            assert_eq!(refused.count(), 252);
        }
    }

    #[test]
    fn what_a_merge_wrote_takes_places_that_were_left_and_no_others() {
        let recent = RecentWarmOutputs { lookups: 1000, admitted: 249 };
        assert_eq!(decide_warm_output(BACK, recent, 1), Ok(()));
        assert_eq!(decide_warm_output(BACK, recent, 0), Err(Refusal::NoSlot));
        // Room or not, where it is merged again and again.
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

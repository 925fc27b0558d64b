//! Which pages are written below: a pure function of what is known when one is offered.
//!
//! While the tier has empty slots, all are. Then a page must have been asked for twice: it was hit in
//! DRAM, or it left DRAM before and is remembered by a ghost as large as the tier (Eisenman et al.,
//! "Reducing DRAM footprint with NVM in Facebook", EuroSys 2018). The nearer the last minute's writes
//! are to their budget, the fewer of those (as CacheLib does it). And of the pages that would push out
//! another, somewhat over a fifth may (Fedorova et al., "Writes hurt: lessons in cache design for Optane
//! NVRAM", 2022, bound them by what is asked for): more pushes out what will be asked for almost as soon, and
//! letting all in writes each of them. A tier that misses much may so write more, in whatever
//! proportion it stands to what is read. What was found when the tier was opened, and not
//! asked for since, may be of files that are gone, and is pushed out all the same.

use super::slot_map::Room;

/// What is known of a page that is offered, and of the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it would push out.
    pub room: Room,
    /// The page was asked for twice, as far as anyone remembers.
    pub is_warm: bool,
    /// A number from the page's hash, evenly spread.
    pub chance: u8,
    /// Of the last minute's budget so much is written, in 256ths.
    pub fullness: u32,
    /// The tier is slower than flash, and hardly anything is read from it.
    pub is_slow: bool,
    /// Pages of late that would have pushed out another, and those of them that were let in.
    pub offers: u32,
    /// See `offers`.
    pub writes: u32,
}

/// Why a page is not written below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was asked for once.
    Cold,
    /// The budget of writes.
    Budget,
    /// Of the pages that would push out another, enough did of late.
    Churn,
    /// Too many wait to be written.
    Busy,
    /// Its file is gone.
    Dead,
    /// The policy keeps its kind above.
    Kind,
    /// A merge wrote it, and the pages it takes over from left no slot.
    Place,
    /// The tier is slower than flash.
    Slow,
}

/// Of a hundred pages that would push out another, so many are let in at most.
const CHURN_PERCENT: u64 = 22;

/// Pages that merges write and that are let in, for a hundred lookups, at most.
const INHERITED_PERCENT: u64 = 25;

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
    pub const fn decide(self, offer: Offer) -> Result<(), Refusal> {
        match self {
            Self::Chosen => decide(offer),
            Self::All if offer.fullness >= 256 => Err(Refusal::Budget),
            Self::All => Ok(()),
        }
    }
}

/// Whether a page is to be written below.
///
/// # Errors
/// Why not.
pub const fn decide(offer: Offer) -> Result<(), Refusal> {
    if offer.fullness >= 256 {
        return Err(Refusal::Budget);
    }
    if offer.is_slow && offer.chance >= WHILE_SLOW {
        return Err(Refusal::Slow);
    }
    if matches!(offer.room, Room::Empty) {
        return Ok(());
    }
    if !offer.is_warm {
        return Err(Refusal::Cold);
    }
    let eased = offer.fullness.saturating_sub(EASING) * 2;
    if (offer.chance as u32) < eased {
        return Err(Refusal::Budget);
    }
    if is_churned(offer, CHURN_PERCENT) && matches!(offer.room, Room::Full) {
        return Err(Refusal::Churn);
    }
    Ok(())
}

const fn is_churned(offer: Offer, percent: u64) -> bool {
    offer.writes as u64 * 100 > offer.offers as u64 * percent
}

/// Whether a page is to be written below that a merge wrote, of keys that were asked for in its inputs,
/// where the inputs' pages leave so many slots. `offer` has the lookups of late for its offers, and the
/// writes of such pages alone: where pages are merged again before they were asked for four times each, it
/// is left to what is asked for.
///
/// # Errors
/// Why not.
pub const fn inherit(offer: Offer, places: u32) -> Result<(), Refusal> {
    match decide(offer) {
        Ok(()) if places == 0 => Err(Refusal::Place),
        Ok(()) if is_churned(offer, INHERITED_PERCENT) => Err(Refusal::Churn),
        decided => decided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARM: Offer = Offer {
        room: Room::Full,
        is_warm: true,
        chance: 100,
        fullness: 0,
        is_slow: false,
        offers: 1000,
        writes: 10,
    };

    #[test]
    fn a_page_must_be_warm_unless_there_is_room() {
        assert_eq!(decide(WARM), Ok(()));
        let cold = Offer { is_warm: false, ..WARM };
        assert_eq!(decide(cold), Err(Refusal::Cold));
        assert_eq!(decide(Offer { room: Room::Empty, ..cold }), Ok(()));
        assert_eq!(Admission::All.decide(cold), Ok(()));
        let spent = Offer { fullness: 256, ..WARM };
        assert_eq!(Admission::All.decide(spent), Err(Refusal::Budget));
        assert_eq!(Admission::Chosen.decide(cold), decide(cold));
    }

    #[test]
    fn the_budget_eases_writes_before_it_ends_them() {
        let admitted = |fullness| {
            let of = |chance| decide(Offer { chance, fullness, ..WARM }).is_ok();
            (0..=255).filter(|chance| of(*chance)).count()
        };
        assert_eq!([0, 128, 192, 255, 256].map(admitted), [256, 256, 128, 2, 0]);
        let filling = Offer { room: Room::Empty, fullness: 256, ..WARM };
        assert_eq!(decide(filling), Err(Refusal::Budget));
    }

    #[test]
    fn while_the_tier_is_slow_hardly_anything_is_let_in() {
        let of = |chance, room| decide(Offer { chance, room, is_slow: true, ..WARM });
        for room in [Room::Empty, Room::Full, Room::Unproven] {
            let refused = (0..=255).filter(|chance| of(*chance, room) == Err(Refusal::Slow));
            assert_eq!(refused.count(), 252);
        }
    }

    #[test]
    fn what_a_merge_wrote_takes_places_that_were_left_and_no_others() {
        assert_eq!(inherit(WARM, 1), Ok(()));
        assert_eq!(inherit(WARM, 0), Err(Refusal::Place));
        // Room or not, where it is merged again and again.
        for room in [Room::Empty, Room::Full, Room::Unproven] {
            let churned = Offer { room, writes: 251, ..WARM };
            assert_eq!(inherit(churned, 9), Err(Refusal::Churn));
            assert_eq!(inherit(Offer { fullness: 256, room, ..WARM }, 9), Err(Refusal::Budget));
        }
        assert_eq!(inherit(Offer { fullness: 200, ..WARM }, 9), Err(Refusal::Budget));
    }

    #[test]
    fn of_pages_that_would_push_out_another_a_fifth_is_let_in() {
        let churned = Offer { writes: 221, ..WARM };
        assert_eq!(decide(churned), Err(Refusal::Churn));
        assert_eq!(decide(Offer { writes: 220, ..WARM }), Ok(()));
        assert_eq!(decide(Offer { room: Room::Unproven, ..churned }), Ok(()));
    }
}

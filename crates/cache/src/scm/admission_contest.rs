//! [`AdmissionContest`]: whether a tier has more hits if it admits every page, or only pages that came back.
//!
//! A sample of the pages runs through two small simulated tiers, one for each rule, with slots and a ghost
//! list in proportion. Most tiers keep pages long enough to lose little by the ghost list, and save most
//! writes. A tier of a hundredth of the data loses up to an eighth of its hits by it: pages are used again
//! soon after their first eviction or never. [`super::admission::decide`] follows the contest.
//!
//! Concurrency: any thread may call. A page that is not sampled costs a multiplication and a comparison. A
//! sampled one takes a mutex if it is free, and is not counted if not.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use base::invariant;
use parking_lot::Mutex;

use super::slot_map::{SLOT_SIXTEENTHS, SlotEntry, SlotMap, WAYS};
use super::tier::GHOST_PAGES_PER_SLOT;
use crate::PageKind;
use crate::curve::is_sampled;
use crate::rows::Ghost;

/// Most sets of a simulated tier.
const SETS_MAX: usize = 64;

/// Sampled lookups between two decisions. Hits count half after each.
const LOOKUPS: u32 = 2048;

/// The rule changes for this many more hits of the tier, in percent, because to admit every page costs up to
/// ten times the writes. With 6 and 3 percent, a tier of a tenth of the keys of the trace OLTP wrote every
/// page that it was offered, for a fifth with the ghost list, and gained one or two hits in a hundred.
const GAIN_TO_BEGIN: u64 = 20;
const GAIN_TO_STAY: u64 = 14;

/// Fewer hits than this more may be chance.
const SURE: u32 = 32;

/// A contest of both rules, for one tier.
#[derive(Debug)]
pub(super) struct AdmissionContest {
    /// A page is sampled if its mixed hash is at most this.
    threshold: u32,
    /// The rule that wins. A plain value: `Relaxed`.
    admits_all: AtomicBool,
    state: Mutex<ContestState>,
}

#[derive(Debug)]
struct ContestState {
    /// The simulated tiers: one admits every page, the other those that came back.
    all: SlotMap,
    returning: SlotMap,
    /// Pages that the other refused.
    ghost: Ghost,
    hits_all: u32,
    hits_returning: u32,
    lookups: u32,
}

/// Whether every page is admitted from now on, after these hits of both rules.
const fn next(admits_all: bool, hits_all: u32, hits_returning: u32) -> bool {
    let gain = if admits_all { GAIN_TO_STAY } else { GAIN_TO_BEGIN };
    let is_more = hits_all as u64 * 100 >= hits_returning as u64 * (100 + gain);
    is_more && hits_all.saturating_sub(hits_returning) >= SURE
}

impl AdmissionContest {
    /// A contest for a tier of `sets` sets of slots.
    pub(super) fn new(sets: usize) -> Self {
        let simulated = simulated_sets(sets);
        let share = simulated as f64 / sets as f64;
        let state = ContestState {
            all: SlotMap::new(simulated),
            returning: SlotMap::new(simulated),
            ghost: Ghost::new(simulated * WAYS * GHOST_PAGES_PER_SLOT),
            hits_all: 0,
            hits_returning: 0,
            lookups: 0,
        };
        Self {
            threshold: (share * f64::from(u32::MAX)) as u32,
            admits_all: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Memory of a contest for a tier of `sets` sets, bytes.
    pub(super) const fn bytes_of(sets: usize) -> u64 {
        let slots = simulated_sets(sets) * WAYS;
        2 * slots as u64 * SLOT_SIXTEENTHS / 16 + Ghost::bytes_of(slots * GHOST_PAGES_PER_SLOT)
    }

    /// Whether pages are admitted that did not come back.
    pub(super) fn admits_all(&self) -> bool {
        self.admits_all.load(Relaxed)
    }

    const fn samples(&self, hash: u64) -> bool {
        // The sets of the slot map are chosen by another product.
        is_sampled(hash, self.threshold)
    }

    /// Counts a lookup of the page with this hash in the tier.
    pub(super) fn looked_up(&self, hash: u64) {
        if self.samples(hash)
            && let Some(mut state) = self.state.try_lock()
            && state.looked_up(hash)
        {
            let next = next(self.admits_all(), state.hits_all, state.hits_returning);
            self.admits_all.store(next, Relaxed);
            state.forget_half();
        }
    }

    /// Offers the page with this hash to the simulated tiers, as it is offered to the tier.
    pub(super) fn offered(&self, hash: u64, kind: PageKind, is_demoted: bool) {
        if self.samples(hash)
            && let Some(mut state) = self.state.try_lock()
        {
            state.offered(hash, kind, is_demoted);
        }
    }
}

const fn simulated_sets(sets: usize) -> usize {
    if sets < SETS_MAX { sets } else { SETS_MAX }
}

impl ContestState {
    /// Returns whether a decision is due.
    fn looked_up(&mut self, hash: u64) -> bool {
        for (map, hits) in
            [(&self.all, &mut self.hits_all), (&self.returning, &mut self.hits_returning)]
        {
            if let Some(slot) = map.find(hash) {
                map.record_use(slot);
                *hits += 1;
            }
        }
        self.lookups += 1;
        invariant!(self.lookups <= LOOKUPS, "a decision follows every full round of lookups");
        self.lookups == LOOKUPS
    }

    fn forget_half(&mut self) {
        (self.hits_all, self.hits_returning) = (self.hits_all / 2, self.hits_returning / 2);
        self.lookups = 0;
    }

    fn offered(&mut self, hash: u64, kind: PageKind, is_demoted: bool) {
        admit(&self.all, hash, kind, || true);
        let map = &self.returning;
        let came_back = || map.has_room(hash) || kind == PageKind::Meta || self.ghost.recall(hash);
        if !admit(map, hash, kind, came_back) && is_demoted {
            self.ghost.remember(hash);
        }
    }
}

/// Gives the page a slot unless it has one, if the rule admits it. Returns whether it has one.
fn admit(map: &SlotMap, hash: u64, kind: PageKind, may_enter: impl FnOnce() -> bool) -> bool {
    if let Some(slot) = map.find(hash) {
        map.ensure_heat(slot);
        return true;
    }
    if !may_enter() {
        return false;
    }
    let slot = map.choose_slot(hash);
    invariant!(slot.is_some(), "no slot of a simulated tier stays claimed");
    if let Some(slot) = slot {
        map.claim(slot);
        map.publish(slot, SlotEntry { hash, tag: 0 }, kind);
    }
    slot.is_some()
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    #[test]
    fn the_rule_changes_for_clearly_more_hits() {
        assert!(!next(false, 1199, 1000) && next(false, 1200, 1000));
        assert!(!next(true, 1139, 1000) && next(true, 1140, 1000));
        assert!(!next(false, SURE - 1, 0) && next(false, SURE, 0));
        assert!(!next(true, 900, 1000));
    }

    #[test]
    fn pages_used_once_soon_after_their_eviction_are_all_admitted() {
        for sets in [4, 64, 4096] {
            let (contest, mut rng) = (AdmissionContest::new(sets), Rng::new(sets as u64));
            let hash = |page: u64| base::hash64(page, b"page");
            let pages = 400 * sets.max(16) as u64;
            for page in 0..pages {
                contest.offered(hash(page), PageKind::Data, true);
                contest.looked_up(hash(page.wrapping_sub(sets as u64)));
            }
            assert!(contest.admits_all(), "{sets} sets");
            // A few pages that are used all the time, among pages that are never used again.
            for turn in 0..40 * pages {
                let page = match turn % 2 {
                    0 => pages + turn,
                    _ => rng.below(8 * sets as u64),
                };
                contest.looked_up(hash(page));
                contest.offered(hash(page), PageKind::Data, true);
            }
            assert!(!contest.admits_all(), "{sets} sets");
        }
    }
}

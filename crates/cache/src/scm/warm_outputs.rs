//! What merges carry over: pages of tables that go were asked for, and the pages that take over from them
//! are put below while they are written, in as many slots as those leave.
//!
//! Which pages these are is told by whoever merges. Here they are let in or not
//! ([`super::admission::inherit`]), and wait to be written as all do, in no more than half of the room for
//! waiting ([`ScmTier::has_backlog`]): the rest is for what leaves DRAM.

use std::sync::atomic::Ordering::Relaxed;

use arena::Page;

use super::admission::{Candidate, Refusal, WarmOutputRate, decide_warm_output};
use super::backing::PinnedPage;
use super::pending::{Origin, STAGED_MAX, StagedPage};
use super::statistics::count;
use super::tier::ScmTier;
use crate::{PageCache, PageKey, PageKind};

/// Lookups, and warm_outputs let in: of late, older ones by half for each window before.
#[derive(Debug, Default)]
pub(crate) struct WarmOutputs {
    /// Lookups that do not count any more.
    before: u64,
    writes: u32,
}

/// Lookups after which half of those before no longer count, and half of what was let in.
const WINDOW_LOOKUPS: u64 = 1 << 16;

impl WarmOutputs {
    /// Where there were `lookups` in all.
    fn lookups(&mut self, lookups: u64) -> u32 {
        let mut late = lookups.saturating_sub(self.before);
        // Bounded: each turn takes a half.
        while late > WINDOW_LOOKUPS {
            late /= 2;
            self.writes /= 2;
        }
        self.before = lookups - late;
        late as u32
    }
}

impl ScmTier {
    /// How often the page was asked for lately, up to three, if it lies here. Nobody counts it as asked for.
    #[must_use]
    pub fn heat(&self, key: PageKey) -> Option<u8> {
        let slot = self.map.find(key.hash()).filter(|_| !self.is_off())?;
        Some(self.map.heat(slot))
    }

    /// A copy of the page, if it lies in memory and is known to be the one. Nobody counts it as asked for.
    #[must_use]
    pub fn peek(&self, key: PageKey) -> Option<Box<[u8]>> {
        let hash = key.hash();
        let slot = self.map.find(hash).filter(|_| !self.is_off())?;
        match self.backing.pin(self.layout.page_of(slot))? {
            PinnedPage::InPlace(page) => {
                let copy: Box<[u8]> = Box::new(*page);
                let is_it = self.map.holds(slot, hash) && self.map.is_verified(slot);
                (is_it && self.check_memory()).then_some(copy)
            }
            PinnedPage::AtDevice(_) => None,
        }
    }

    /// Takes `page`, which a merge wrote and which was verified, to be written here in the place of pages
    /// that go and leave so many slots; whether it does. `cache` is the tier above.
    pub fn admit_warm_output(
        &self,
        cache: &PageCache,
        (key, kind): (PageKey, PageKind),
        page: &Page,
        places: u32,
    ) -> bool {
        let hash = key.hash();
        if self.is_off() || self.map.find(hash).is_some() {
            return false;
        }
        if let Err(refusal) = self.decide_warm_output(kind, hash, places) {
            self.counters.refused(refusal);
            return false;
        }
        count(&self.counters.admitted);
        let (frame, origin) = (cache.uncached(page), Origin::WarmOutput);
        self.pending.stage(StagedPage { key, hash, kind, frame, origin });
        true
    }

    /// Whether as many pages wait to be written as may for a merge to put more there.
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        self.pending.staged() >= STAGED_MAX / 2
    }

    fn decide_warm_output(&self, kind: PageKind, hash: u64, places: u32) -> Result<(), Refusal> {
        if !self.placement.may_demote(kind) {
            return Err(Refusal::Kind);
        }
        if self.has_backlog() {
            return Err(Refusal::Busy);
        }
        let mut late = self.warm_outputs.lock();
        let lookups = late.lookups(self.counters.lookups());
        let candidate = Candidate {
            has_room: self.map.has_room(hash),
            came_back: true,
            chance: (hash >> 24) as u8,
            fullness: self.fullness.load(Relaxed),
            is_slow: self.is_slow(),
        };
        decide_warm_output(candidate, WarmOutputRate { lookups, writes: late.writes }, places)?;
        late.writes += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_long_ago_counts_for_less() {
        let mut late = WarmOutputs { before: 0, writes: 1000 };
        assert_eq!((late.lookups(50_000), late.writes), (50_000, 1000));
        assert_eq!((late.lookups(80_000), late.writes), (40_000, 500));
        assert_eq!((late.lookups(90_000), late.writes), (50_000, 500));
        assert_eq!((late.lookups(10_000_000), late.writes), (38_906, 1));
    }
}

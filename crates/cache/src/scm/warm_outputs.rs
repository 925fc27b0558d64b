//! Warm outputs: a merge admits those of its output pages that cover hot ranges of its inputs, so that hot
//! pages survive the merge.
//!
//! The merge decides which output pages cover hot ranges, and passes each page after it verified it (I8).
//! This module admits or refuses the page ([`super::admission::decide_warm_output`]) and queues it for the
//! background writer. A merge may fill only half of that queue ([`ScmTier::has_backlog`]): the other half
//! stays for pages that DRAM evicts. Any thread may call.

use std::sync::atomic::Ordering::Relaxed;

use arena::Page;

use super::admission::{Candidate, Refusal, decide_warm_output};
use super::backing::PinnedPage;
use super::pending::{Origin, STAGED_MAX, StagedPage};
use super::statistics::count;
use super::tier::ScmTier;
use crate::{PageCache, PageKey, PageKind};

impl ScmTier {
    /// Heat (0 to 3) of the page if it is in this tier. Does not count as a use.
    #[must_use]
    pub fn heat(&self, key: PageKey) -> Option<u8> {
        let slot = self.map.find(key.hash()).filter(|_| !self.is_off())?;
        Some(self.map.heat(slot))
    }

    /// A copy of the page if the tier is memory, holds the page, and has verified it. Does not count as a
    /// use.
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

    /// Admits or refuses `page`, a verified output page of a merge that covers a hot range. `freed_slots` is
    /// the number of slots that the merge's input pages will free and that no other output page was given.
    /// Returns whether the page was admitted. `cache` is the upper tier.
    pub fn admit_warm_output(
        &self,
        cache: &PageCache,
        (key, kind): (PageKey, PageKind),
        page: &Page,
        freed_slots: u32,
    ) -> bool {
        let hash = key.hash();
        if self.is_off() || self.map.find(hash).is_some() {
            return false;
        }
        count(&self.counters.offered);
        if let Err(refusal) = self.decide_warm_output(kind, hash, freed_slots) {
            self.counters.refused(refusal);
            return false;
        }
        let (frame, origin) = (cache.uncached(page), Origin::WarmOutput);
        self.pending.stage(StagedPage { key, hash, kind, frame, origin });
        true
    }

    /// Whether half of the write queue is full, so that warm outputs are refused.
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        self.pending.staged() >= STAGED_MAX / 2
    }

    fn decide_warm_output(
        &self,
        kind: PageKind,
        hash: u64,
        freed_slots: u32,
    ) -> Result<(), Refusal> {
        if !self.placement.may_demote(kind) {
            return Err(Refusal::Kind);
        }
        if self.has_backlog() {
            return Err(Refusal::Busy);
        }
        let mut counter = self.warm_outputs.lock();
        let recent = counter.recent(self.counters.lookups());
        let candidate = Candidate {
            has_room: self.map.has_room(hash),
            came_back: true,
            admits_all: false,
            chance: (hash >> 24) as u8,
            fullness: self.fullness.load(Relaxed),
            is_slow: self.is_slow(),
        };
        decide_warm_output(candidate, recent, freed_slots)?;
        counter.count();
        Ok(())
    }
}

//! Demotion: pages that DRAM evicts, or that readers read past DRAM, are offered to the tier.
//!
//! Called by [`crate::PageCache`] under a shard's lock, by any thread. An admitted page waits in its DRAM
//! frame for the background writer: nothing here does I/O. Takes the lock of one part of a ghost list.

use std::sync::atomic::Ordering::Relaxed;

use arena::Frame;

use super::admission::{Candidate, Refusal};
use super::pending::{Origin, StagedPage};
use super::placement::Tier;
use super::statistics::count;
use super::tier::ScmTier;
use crate::{PageKey, PageKind};

/// A page that DRAM evicted, or that a reader read without caching it in DRAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictedPage {
    pub(crate) key: PageKey,
    pub(crate) kind: PageKind,
    /// Whether the page was in DRAM.
    pub(crate) is_demoted: bool,
}

impl ScmTier {
    /// Whether a page of `kind` that was read from flash goes to this tier instead of DRAM.
    pub(crate) fn takes_on_miss(&self, key: PageKey, kind: PageKind) -> bool {
        let promotion_heat = || self.measured.promotion_heat(kind, key.hash());
        !self.is_off()
            && !self.is_slow()
            && self.placement.tier_on_miss(kind, promotion_heat()) == Tier::Scm
    }

    /// Admits or refuses a page. If it returns true the caller passes the page to [`ScmTier::stage`].
    pub(crate) fn admit(&self, page: EvictedPage) -> bool {
        if self.is_off() {
            return false;
        }
        let hash = page.key.hash();
        count(&self.counters.offered);
        self.contest.offered(hash, page.kind, page.is_demoted);
        if let Some(slot) = self.map.find(hash) {
            self.map.ensure_heat(slot);
            count(&self.counters.kept);
            return false;
        }
        let decided = self.decide_admission(page, hash);
        // The writer counts an admitted page once it is written.
        decided.inspect_err(|refusal| self.counters.refused(*refusal)).is_ok()
    }

    fn decide_admission(&self, page: EvictedPage, hash: u64) -> Result<(), Refusal> {
        if page.is_demoted && !self.placement.may_demote(page.kind) {
            return Err(Refusal::Kind);
        }
        if !self.pending.has_room() {
            return Err(Refusal::Busy);
        }
        let has_room = self.map.has_room(hash);
        let is_in_ghost = || self.ghost.recall(hash);
        let candidate = Candidate {
            has_room,
            // Metadata pages always count as having come back.
            came_back: has_room || page.kind == PageKind::Meta || is_in_ghost(),
            admits_all: self.contest.admits_all(),
            chance: (hash >> 24) as u8,
            fullness: self.fullness.load(Relaxed),
            is_slow: self.is_slow(),
        };
        let decided = self.admission.decide(candidate);
        // A refused page that was just read enters DRAM instead; it enters the ghost list when DRAM evicts
        // it.
        if decided.is_err() && page.is_demoted {
            self.ghost.remember(hash);
        }
        decided
    }

    /// Queues an admitted page to be written. Nobody changes `frame` any more.
    pub(crate) fn stage(&self, page: EvictedPage, frame: Frame) {
        let EvictedPage { key, kind, is_demoted, .. } = page;
        let origin = if is_demoted { Origin::Demoted } else { Origin::Read };
        self.pending.stage(StagedPage { key, hash: key.hash(), kind, frame, origin });
    }

    /// How many pages wait to be written.
    pub(crate) fn staged(&self) -> usize {
        self.pending.staged()
    }

    /// Counts a page that was admitted and is lost, because no free frame could replace its frame in DRAM.
    pub(crate) fn note_late(&self) {
        count(&self.counters.late);
    }

    /// As [`ScmTier::note_late`], for a page that was not asked about.
    pub(crate) fn note_late_unasked(&self) {
        count(&self.counters.offered);
        self.note_late();
    }

    /// Records that DRAM evicted a page to give memory back. Such a page is not offered: it would hold its
    /// frame until it is written, and a caller waits for that memory.
    pub(crate) fn note_reclaimed(&self, key: PageKey) {
        let hash = key.hash();
        if let Some(slot) = self.map.find(hash) {
            self.map.ensure_heat(slot);
            count(&self.counters.offered);
            return count(&self.counters.kept);
        }
        count(&self.counters.reclaimed);
        self.ghost.remember(hash);
    }
}

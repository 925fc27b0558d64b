//! State of the tier's background writer, behind one mutex of [`super::tier::ScmTier`].
//!
//! The thread that holds the mutex is the writer: the background task ([`super::background`]) in each of its
//! steps, and the demotion of rows ([`super::row_sets`]). Memory: one byte per page of the stored map.

use std::time::Duration;

use base::invariant;

use super::backing::Writer;
use super::row_sets::{RowShare, Scratch};
use super::stored_map::Layout;
use super::tier_bypass::RouteDecision;
use super::write_budget::WriteBudget;
use crate::reuse::KindReuse;

/// State of the background writer.
pub(crate) struct ScmWriterState {
    pub(super) writer: Writer,
    pub(super) budget: WriteBudget,
    pub(super) map: DirtyMap,
    /// Time of the last write, writes of due map pages excepted.
    pub(super) quiet_since: Duration,
    /// Time of the last update of the promoted share, and the reuse counts it was computed from.
    pub(super) costs_updated: (Duration, KindReuse),
    /// The last decision whether reads skip the tier.
    pub(super) decision: RouteDecision,
    /// How many slots rows may hold.
    pub(super) share: RowShare,
    /// The group that is checked next for slots to return to pages.
    pub(super) next_group: usize,
    /// Slots that rows gave up and that readers still use; they return to pages later.
    pub(super) returning: Vec<usize>,
    /// Reused buffers.
    pub(super) scratch: Scratch,
}

/// Which pages of the stored map changed since they were written. Dirty pages are written in rotation.
pub(super) struct DirtyMap {
    dirty: Vec<bool>,
    dirty_count: usize,
    /// The map page from which the search for a dirty one starts.
    next: usize,
    /// Page writes to slots since the last map page was due.
    pub(super) writes_since: usize,
}

impl ScmWriterState {
    pub(super) fn new(writer: Writer, layout: Layout, budget: WriteBudget) -> Self {
        let dirty = vec![false; layout.map_pages];
        Self {
            writer,
            budget,
            map: DirtyMap { dirty, dirty_count: 0, next: 0, writes_since: 0 },
            quiet_since: Duration::ZERO,
            costs_updated: Default::default(),
            decision: RouteDecision::default(),
            share: RowShare::default(),
            next_group: 0,
            returning: Vec::new(),
            scratch: Scratch::default(),
        }
    }
}

impl DirtyMap {
    /// Marks the map page of `slot` dirty.
    pub(super) fn mark(&mut self, slot: usize) {
        let dirty = self.dirty.get_mut(Layout::map_page_of(slot));
        invariant!(dirty.is_some(), "the stored map has a page for every slot");
        if let Some(dirty) = dirty {
            self.dirty_count += usize::from(!*dirty);
            *dirty = true;
            invariant!(
                self.dirty_count > 0 && self.dirty_count <= self.dirty.len(),
                "the dirty count counts pages of the stored map"
            );
        }
    }

    /// The next dirty map page. It counts as clean from now on: the caller writes it.
    pub(super) fn take_next(&mut self) -> Option<usize> {
        if self.dirty_count == 0 {
            return None;
        }
        let pages = self.dirty.len();
        let mut numbers = (0..pages).map(|step| (self.next + step) % pages);
        let number = numbers.find(|number| self.dirty.get(*number).copied().unwrap_or(false));
        invariant!(number.is_some(), "the dirty count of the stored map counts its dirty pages");
        let number = number?;
        if let Some(dirty) = self.dirty.get_mut(number) {
            *dirty = false;
        }
        self.dirty_count -= 1;
        debug_assert!(
            self.dirty_count == self.dirty.iter().filter(|dirty| **dirty).count(),
            "the dirty count is that of the marked pages"
        );
        self.next = (number + 1) % pages;
        Some(number)
    }
}

//! The tier's background work, one bounded step at a time: pages are written below and copied up, those
//! of dead files go, and the map is written where it changed.

use std::time::Duration;

use std::sync::atomic::Ordering::Relaxed;

use base::Result;
use base::limits::PAGE_BYTES;

use super::admission::Refusal;
use super::backing::{DEPTH, PinnedPage, Writer, Written};
use super::pending::{Origin, StagedPage};
use super::row_sets::{RowShare, Scratch};
use super::slot_map::{SlotEntry, tag_of};
use super::statistics::count;
use super::stored_map::{Layout, SLOTS_PER_PAGE, encode_map};
use super::tier::ScmTier;
use super::tier_bypass::RouteDecision;
use super::write_budget::WriteBudget;
use crate::reuse::KindReuse;
use crate::{PageCache, PageKey};

/// Pages written in one step, at most.
const BATCH: usize = DEPTH;

/// Pages of a dead file looked for in one step.
const PURGE_PAGES: u32 = 4096;

/// A page of the map is due for each so many pages written: a sixteenth of what is written.
const PAGES_PER_MAP_PAGE: usize = 16;

/// Where nothing was written for [`MAP_INTERVAL`], so many pages of the map are, each time that it passes.
/// Until then those that are due must do: each page of the map is written for many changes, not for a few.
const MAP_PAGES_IDLE: usize = 16;

/// See [`MAP_PAGES_IDLE`].
const MAP_INTERVAL: Duration = Duration::from_millis(100);

/// It is reckoned so often which pages may be copied up, and whether reads go past the tier.
const COSTS_INTERVAL: Duration = Duration::from_millis(100);

/// What the one who does the background work has.
pub(crate) struct ScmWriterState {
    writer: Writer,
    pub(super) budget: WriteBudget,
    /// Pages of the map that changed since they were written.
    dirty: Vec<bool>,
    dirty_count: usize,
    /// The page of the map whose turn it is.
    turn: usize,
    /// Pages written since the map was.
    owed: usize,
    /// When anything was written last, but for pages of the map that were due.
    quiet_since: Duration,
    /// When it was reckoned last which pages may be copied up, and what had become of them by then; and
    /// whether reads go past the tier.
    costs_updated: (Duration, KindReuse),
    decision: RouteDecision,
    /// How many slots are for rows, the group that is looked at next, slots that come back from rows once
    /// nobody reads there, and what is kept for its memory.
    pub(super) share: RowShare,
    pub(super) next_group: usize,
    pub(super) returning: Vec<usize>,
    pub(super) scratch: Scratch,
}

impl ScmWriterState {
    pub(super) fn new(writer: Writer, layout: Layout, budget: WriteBudget) -> Self {
        let dirty = vec![false; layout.map_pages];
        Self {
            writer,
            budget,
            dirty,
            dirty_count: 0,
            turn: 0,
            owed: 0,
            quiet_since: Duration::ZERO,
            costs_updated: Default::default(),
            decision: RouteDecision::default(),
            share: RowShare::default(),
            next_group: 0,
            returning: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// The map's page that tells of `slot` changed.
    pub(super) fn changed(&mut self, slot: usize) {
        if let Some(dirty) = self.dirty.get_mut(Layout::map_page_of(slot)) {
            self.dirty_count += usize::from(!*dirty);
            *dirty = true;
        }
    }

    /// The next page of the map that changed, which counts as written from now on.
    fn next_dirty(&mut self) -> Option<usize> {
        if self.dirty_count == 0 {
            return None;
        }
        let pages = self.dirty.len();
        let number = (0..pages).map(|step| (self.turn + step) % pages);
        let number = number.into_iter().find(|n| self.dirty.get(*n).copied().unwrap_or(false))?;
        if let Some(dirty) = self.dirty.get_mut(number) {
            *dirty = false;
        }
        self.dirty_count -= 1;
        self.turn = (number + 1) % pages;
        Some(number)
    }
}

impl ScmTier {
    /// Does a bounded piece of what waits; whether more does. `cache` is the tier above.
    pub fn step(&self, cache: &PageCache) -> bool {
        let now = self.now();
        let mut writer = self.writer.lock();
        if self.is_off() {
            drop(self.pending.take_staged(usize::MAX));
            drop(self.pending.take_promotions());
            return false;
        }
        self.promote(cache);
        self.purge_file(&mut writer);
        let done = self
            .write_staged(&mut writer, cache, now)
            .and_then(|()| self.write_map(&mut writer, now));
        self.share_slots(&mut writer);
        self.fullness.store(writer.budget.fullness(now), Relaxed);
        self.measured.update_promotion_heat(&self.counters);
        let (at, before) = writer.costs_updated;
        if now.saturating_sub(at) >= COSTS_INTERVAL {
            let reuse = self.measured.update_promoted_share(&self.counters, before, cache.reuse());
            writer.costs_updated = (now, reuse);
            writer.decision = self.bypass.update_route(writer.decision);
        }
        if let Err(error) = done.and_then(|()| self.backing.check()) {
            self.fail(error);
        }
        self.pending.staged() > 0 || self.pending.has_purges()
    }

    /// Copies up what was asked for often enough.
    fn promote(&self, cache: &PageCache) {
        for (key, kind) in self.pending.take_promotions() {
            let hash = key.hash();
            let Some(slot) = self.map.find(hash) else { continue };
            let began = self.now();
            let held = self.backing.pin(self.layout.page_of(slot));
            if let Some(PinnedPage::InPlace(page)) = held
                && self.map.holds(slot, hash)
                && self.map.is_verified(slot)
            {
                // What a page costs to get from here, and not what DRAM takes to put it in.
                let copy = *page;
                if page.is_lost() {
                    break;
                }
                self.read_took(self.now().saturating_sub(began));
                let began = self.now();
                let put = cache.insert_warm(key, kind, &copy);
                self.measured.put(self.now().saturating_sub(began));
                if put.is_some() {
                    self.map.set_promoted(slot);
                    count(&self.counters.promoted);
                }
            }
            self.map.clear_promoting(slot);
        }
    }

    /// Drops pages of files that are gone.
    fn purge_file(&self, writer: &mut ScmWriterState) {
        let Some((file, pages)) = self.pending.next_purge(PURGE_PAGES) else { return };
        for page in pages {
            let hash = PageKey { file, page }.hash();
            if let Some(slot) = self.map.find(hash)
                && self.map.clear_if(slot, hash)
            {
                count(&self.counters.dropped);
                self.counters.resident.fetch_sub(1, Relaxed);
                writer.changed(slot);
            }
        }
    }

    fn write_staged(
        &self,
        writer: &mut ScmWriterState,
        cache: &PageCache,
        now: Duration,
    ) -> Result<()> {
        let staged = self.pending.take_staged(BATCH);
        if staged.is_empty() {
            return Ok(());
        }
        let mut placed = Vec::with_capacity(staged.len());
        let began = self.now();
        for page in &staged {
            // It may have left DRAM twice before it was written.
            if placed.iter().any(|(_, other): &(usize, &StagedPage)| other.hash == page.hash) {
                continue;
            }
            let is_dead = !cache.is_live(page.key.file) || self.pending.is_purged(page.key);
            if is_dead {
                self.counters.refused(Refusal::Dead);
                continue;
            }
            match self.write(writer, now, page)? {
                Ok(None) => {}
                Ok(Some(slot)) => placed.push((slot, page)),
                Err(refusal) => self.counters.refused(refusal),
            }
        }
        writer.writer.finish()?;
        if let Some(each) = self.now().saturating_sub(began).checked_div(placed.len() as u32) {
            self.measured.write(each);
        }
        for (slot, page) in placed {
            let tag = tag_of(&page.frame);
            self.map.publish(slot, SlotEntry { hash: page.hash, tag }, page.kind);
            self.counters.resident.fetch_add(1, Relaxed);
            match page.origin {
                Origin::Demoted => count(&self.counters.demoted),
                Origin::WarmOutput => {
                    count(&self.counters.carried);
                    // As the page was that it takes over from: the next merge may come before a reader.
                    self.map.ensure_heat(slot);
                }
                Origin::Read => {}
            }
            writer.changed(slot);
            writer.owed += 1;
        }
        Ok(())
    }

    /// Writes a page that was let in; the slot, which nobody finds until it is told whose it is.
    fn write(
        &self,
        writer: &mut ScmWriterState,
        now: Duration,
        page: &StagedPage,
    ) -> Result<std::result::Result<Option<usize>, Refusal>> {
        if self.map.find(page.hash).is_some() {
            return Ok(Ok(None));
        }
        if writer.budget.left(now) < PAGE_BYTES as u64 {
            return Ok(Err(Refusal::Budget));
        }
        let Some(slot) = self.map.choose_slot(page.hash) else { return Ok(Err(Refusal::Busy)) };
        let empty = || self.claim_slot(slot);
        let at = self.layout.page_of(slot);
        match writer.writer.write(&self.backing, at, &page.frame, empty)? {
            Written::InUse => Ok(Err(Refusal::Busy)),
            Written::Yes => {
                self.spend(writer, now, PAGE_BYTES, false);
                Ok(Ok(Some(slot)))
            }
        }
    }

    /// Counts bytes that were written; `is_map`: of the map, or of the first page.
    pub(super) fn spend(
        &self,
        writer: &mut ScmWriterState,
        now: Duration,
        bytes: usize,
        is_map: bool,
    ) {
        let bytes = bytes as u64;
        writer.budget.spend(now, bytes);
        self.counters.bytes_written.fetch_add(bytes, Relaxed);
        match is_map {
            true => _ = self.counters.bytes_written_map.fetch_add(bytes, Relaxed),
            false => writer.quiet_since = now,
        }
    }

    /// Writes pages of the map that changed: as many as are due, and more where nothing else was to be
    /// written.
    fn write_map(&self, writer: &mut ScmWriterState, now: Duration) -> Result<()> {
        let due = writer.owed / PAGES_PER_MAP_PAGE;
        writer.owed %= PAGES_PER_MAP_PAGE;
        let is_quiet = now.saturating_sub(writer.quiet_since) >= MAP_INTERVAL;
        let is_idle = self.pending.staged() == 0 && is_quiet;
        let most = if is_idle { due.max(MAP_PAGES_IDLE) } else { due };
        if is_idle {
            writer.quiet_since = now;
        }
        for _ in 0..most {
            if writer.budget.left(now) < PAGE_BYTES as u64 || !self.write_dirty(writer)? {
                break;
            }
            self.spend(writer, now, PAGE_BYTES, true);
        }
        writer.writer.finish()
    }

    /// Writes one page of the map that changed; whether there was one.
    fn write_dirty(&self, writer: &mut ScmWriterState) -> Result<bool> {
        let Some(number) = writer.next_dirty() else { return Ok(false) };
        let mut entries = [SlotEntry::default(); SLOTS_PER_PAGE];
        self.map.entries(number * SLOTS_PER_PAGE, &mut entries);
        let page = encode_map(self.id, number, &entries);
        // Nobody reads the map's pages: none is in use.
        writer.writer.write(&self.backing, 1 + number, &page, || {})?;
        Ok(true)
    }

    /// Writes what of the map changed, as far as the budget goes: at most a part in 400 of the tier. It is
    /// what is found again when the tier is opened next; what is not written is what a crash would cost.
    fn write_rest_of_map(&self) -> Result<()> {
        let now = self.now();
        let mut writer = self.writer.lock();
        if self.is_off() {
            return Ok(());
        }
        // Bounded: each turn leaves one page less.
        while writer.budget.left(now) >= PAGE_BYTES as u64 && self.write_dirty(&mut writer)? {
            self.spend(&mut writer, now, PAGE_BYTES, true);
        }
        writer.writer.finish()
    }
}

impl Drop for ScmTier {
    fn drop(&mut self) {
        // Without it less is found again.
        let _ = self.write_rest_of_map();
    }
}

//! The tier's background work: one thread at a time runs it, in bounded steps.
//!
//! A step promotes queued pages to DRAM, removes pages of obsolete files, writes staged pages to slots, and
//! writes dirty pages of the stored map. It holds the writer's mutex throughout; readers never wait for it.
//! Any I/O error turns the tier off, and the store goes on without it.
//!
//! Order (I6, I8): a slot is claimed in the map before a byte of it changes, and published after the write
//! finished. So a reader that finds a page's hash in a slot, pins the slot, and finds the hash again, has
//! that page.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{Result, invariant};

use super::admission::Refusal;
use super::backing::{DEPTH, PinnedPage, Written};
use super::pending::{Origin, StagedPage};
use super::slot_map::{SlotEntry, tag_of};
use super::statistics::count;
use super::stored_map::{SLOTS_PER_PAGE, encode_map};
use super::tier::ScmTier;
use super::writer_state::ScmWriterState;
use crate::{PageCache, PageKey, PageKind};

/// Most pages written in one step.
const BATCH: usize = DEPTH;

/// Pages of an obsolete file that one step looks for.
const PURGE_PAGES: u32 = 4096;

/// One map page is due for this many pages written to slots: a sixteenth of the writes.
const PAGES_PER_MAP_PAGE: usize = 16;

/// Map pages written after each [`MAP_INTERVAL`] without other writes. While slots are written, only due map
/// pages are written, so that each write of a map page covers many changes.
const MAP_PAGES_IDLE: usize = 16;

/// See [`MAP_PAGES_IDLE`].
const MAP_INTERVAL: Duration = Duration::from_millis(100);

/// Interval at which the promoted share and the bypass decision are updated.
const COSTS_INTERVAL: Duration = Duration::from_millis(100);

/// What became of a staged page.
enum Placed {
    /// The page is being written to this slot, which is claimed: no reader finds it before it is published.
    InSlot(usize),
    /// The tier held the page already.
    Present,
    Refused(Refusal),
}

impl ScmTier {
    /// Does one bounded step of background work. Returns whether more work waits. `cache` is the upper tier.
    pub fn step(&self, cache: &PageCache) -> bool {
        let now = self.now();
        let mut writer = self.writer.lock();
        if self.is_off() {
            drop(self.pending.take_staged(usize::MAX));
            drop(self.pending.take_promotions());
            return false;
        }
        self.promote_queued(cache);
        self.purge_file(&mut writer);
        let done = self
            .write_staged(&mut writer, cache, now)
            .and_then(|()| self.write_map(&mut writer, now));
        self.share_slots(&mut writer);
        self.fullness.store(writer.budget.fullness(now), Relaxed);
        self.update_costs(&mut writer, cache, now);
        if let Err(error) = done.and_then(|()| self.backing.check()) {
            self.fail(error);
        }
        self.pending.staged() > 0 || self.pending.has_purges()
    }

    /// Updates what is derived from measured costs: the promotion heat each time, the promoted share and the
    /// bypass decision once per [`COSTS_INTERVAL`].
    fn update_costs(&self, writer: &mut ScmWriterState, cache: &PageCache, now: Duration) {
        self.measured.update_promotion_heat(&self.counters);
        let (updated, before) = writer.costs_updated;
        if now.saturating_sub(updated) >= COSTS_INTERVAL {
            let reuse = self.measured.update_promoted_share(&self.counters, before, cache.reuse());
            writer.costs_updated = (now, reuse);
            writer.decision = self.bypass.update_route(writer.decision);
        }
    }

    /// Promotes the queued pages of a tier of memory.
    fn promote_queued(&self, cache: &PageCache) {
        for (key, kind) in self.pending.take_promotions() {
            if !self.promote(cache, key, kind) {
                break;
            }
        }
    }

    /// Promotes one page, if it is still in its slot and verified. False if the tier's memory is lost.
    fn promote(&self, cache: &PageCache, key: PageKey, kind: PageKind) -> bool {
        let hash = key.hash();
        let Some(slot) = self.map.find(hash) else { return true };
        let began = self.now();
        let pinned = self.backing.pin(self.layout.page_of(slot));
        if let Some(PinnedPage::InPlace(page)) = pinned
            && self.map.holds(slot, hash)
            && self.map.is_verified(slot)
        {
            // The time to copy the page out of the tier, without the time to insert it into DRAM.
            let copy = *page;
            if page.is_lost() {
                return false;
            }
            self.read_took(self.now().saturating_sub(began));
            let began = self.now();
            let inserted = cache.insert_warm(key, kind, &copy);
            self.measured.put(self.now().saturating_sub(began));
            if inserted.is_some() {
                self.map.set_promoted(slot);
                count(&self.counters.promoted);
            }
        }
        self.map.clear_promoting(slot);
        true
    }

    /// Removes pages of the obsolete file that waited longest.
    fn purge_file(&self, writer: &mut ScmWriterState) {
        let Some((file, pages)) = self.pending.next_purge(PURGE_PAGES) else { return };
        for page in pages {
            let hash = PageKey { file, page }.hash();
            if let Some(slot) = self.map.find(hash)
                && self.map.clear_if(slot, hash)
            {
                count(&self.counters.dropped);
                self.page_removed();
                writer.map.mark(slot);
            }
        }
    }

    /// Writes up to [`BATCH`] staged pages and publishes those that were written.
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
        let mut placed: Vec<(usize, &StagedPage)> = Vec::with_capacity(staged.len());
        let began = self.now();
        for page in &staged {
            // DRAM may have evicted the page twice before it was written.
            if placed.iter().any(|(_, other)| other.hash == page.hash) {
                count(&self.counters.kept);
                continue;
            }
            let is_obsolete = !cache.is_live(page.key.file) || self.pending.is_purged(page.key);
            if is_obsolete {
                self.counters.refused(Refusal::Dead);
                continue;
            }
            match self.write(writer, now, page)? {
                Placed::InSlot(slot) => placed.push((slot, page)),
                Placed::Present => count(&self.counters.kept),
                Placed::Refused(refusal) => self.counters.refused(refusal),
            }
        }
        writer.writer.finish()?;
        if let Some(each) = self.now().saturating_sub(began).checked_div(placed.len() as u32) {
            self.measured.write(each);
        }
        for (slot, page) in placed {
            debug_assert!(!self.map.holds(slot, page.hash), "a written page is published once");
            self.publish(writer, slot, page);
        }
        Ok(())
    }

    /// Claims a slot for an admitted page and begins to write the page into it.
    fn write(
        &self,
        writer: &mut ScmWriterState,
        now: Duration,
        page: &StagedPage,
    ) -> Result<Placed> {
        if self.map.find(page.hash).is_some() {
            return Ok(Placed::Present);
        }
        if writer.budget.left(now) < PAGE_BYTES as u64 {
            return Ok(Placed::Refused(Refusal::Budget));
        }
        let Some(slot) = self.map.choose_slot(page.hash) else {
            return Ok(Placed::Refused(Refusal::Busy));
        };
        let claim = || self.claim_slot(slot);
        let at = self.layout.page_of(slot);
        match writer.writer.write(&self.backing, at, &page.frame, claim)? {
            Written::InUse => Ok(Placed::Refused(Refusal::Busy)),
            Written::Yes => {
                self.spend(writer, now, PAGE_BYTES, false);
                Ok(Placed::InSlot(slot))
            }
        }
    }

    /// Makes a page that was written to its claimed slot visible to readers.
    fn publish(&self, writer: &mut ScmWriterState, slot: usize, page: &StagedPage) {
        let tag = tag_of(&page.frame);
        count(&self.counters.admitted);
        // Counted first: a reader may find the page damaged, and drop it, as soon as it is published.
        count(&self.counters.resident);
        invariant!(self.map.find(page.hash).is_none(), "a page is in one slot at most");
        self.map.publish(slot, SlotEntry { hash: page.hash, tag }, page.kind);
        match page.origin {
            Origin::Demoted => count(&self.counters.demoted),
            Origin::WarmOutput => {
                count(&self.counters.carried);
                // As warm as the input pages it replaces: the next merge may come before a reader.
                self.map.ensure_heat(slot);
            }
            Origin::Read => {}
        }
        writer.map.mark(slot);
        writer.map.writes_since += 1;
        debug_assert!(
            self.counters.resident.load(Relaxed) <= self.map.slots() as u64,
            "a tier holds no more pages than it has slots"
        );
    }

    /// Counts written bytes. `is_map`: of a map page or of the first page.
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

    /// Writes dirty map pages: those that are due, and [`MAP_PAGES_IDLE`] if nothing else is being written.
    fn write_map(&self, writer: &mut ScmWriterState, now: Duration) -> Result<()> {
        let due = writer.map.writes_since / PAGES_PER_MAP_PAGE;
        writer.map.writes_since %= PAGES_PER_MAP_PAGE;
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

    /// Writes one dirty map page. False if there is none.
    fn write_dirty(&self, writer: &mut ScmWriterState) -> Result<bool> {
        let Some(number) = writer.map.take_next() else { return Ok(false) };
        let mut entries = [SlotEntry::default(); SLOTS_PER_PAGE];
        self.map.entries(number * SLOTS_PER_PAGE, &mut entries);
        let page = encode_map(self.id, number, &entries);
        let written = writer.writer.write(&self.backing, 1 + number, &page, || {})?;
        invariant!(written == Written::Yes, "no reader pins a page of the stored map");
        Ok(true)
    }

    /// Writes the rest of the dirty map pages, at most 1/400 of the tier, as far as the minute's write budget
    /// allows. The limit of a second does not count: no later write needs what it would leave. The next open
    /// finds what the map says; after a crash it finds less.
    fn write_rest_of_map(&self) -> Result<()> {
        let now = self.now();
        let mut writer = self.writer.lock();
        if self.is_off() {
            return Ok(());
        }
        // Bounded: each turn leaves one dirty page less.
        while writer.budget.left_in_minute(now) >= PAGE_BYTES as u64
            && self.write_dirty(&mut writer)?
        {
            self.spend(&mut writer, now, PAGE_BYTES, true);
        }
        writer.writer.finish()
    }
}

impl Drop for ScmTier {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            return;
        }
        // An error costs hits after the next open, and no data.
        let _ = self.write_rest_of_map();
    }
}

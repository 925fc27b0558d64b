//! Rows of the tier: what readers and writers ask of them, and the work behind them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arena::WORD_BYTES;
use base::Seqno;
use base::limits::PAGE_BYTES;
use media::scm::{Facts, Lent};

use super::share::{RowUsage, ShareCounts, ghost_pages, ghost_rows};
use super::{NewRow, Outcome, PUT_BYTES_MAX, RowPages, RowSets, holds_rows};
use crate::rows::{RowHit, RowOwner};
use crate::scm::shared_ghost::SharedGhost;
use crate::scm::slot_map::WAYS;
use crate::scm::statistics::count;
use crate::scm::tier::{GHOST_PAGES_PER_SLOT, ScmTier};
use crate::scm::writer_state::ScmWriterState;

/// Groups that give a slot back in one step, at most; and slots that wait for who still reads them.
const RETURNED_MAX: usize = 64;

/// What is written for one row at most, bytes: a page that is added for it, which others move to, and it.
const ROW_WRITES_MAX: usize = PAGE_BYTES + PUT_BYTES_MAX;

/// What a row takes before any lies here, bytes.
const ROW_BYTES_FIRST: u64 = 256;

impl RowPages for ScmTier {
    fn words(&self, slot: usize) -> Option<Lent<'_>> {
        self.backing.words(self.layout.page_of(slot))
    }
}

impl ScmTier {
    /// What a tier on such a medium of `sets` sets takes beside its map, bytes.
    pub(crate) const fn row_and_ghost_bytes(facts: &Facts, sets: usize) -> u64 {
        let rows = if holds_rows(facts) { RowSets::bytes_of(sets) } else { 0 };
        Self::ghost_bytes(facts, sets * WAYS) + rows
    }

    /// What the ghosts of a tier of `slots` slots take, bytes.
    pub(crate) const fn ghost_bytes(facts: &Facts, slots: usize) -> u64 {
        let refused = SharedGhost::bytes_of(slots * GHOST_PAGES_PER_SLOT);
        if !holds_rows(facts) {
            return refused;
        }
        let rows = SharedGhost::bytes_of(ghost_rows(slots));
        refused + rows + SharedGhost::bytes_of(ghost_pages(slots))
    }

    /// Whether it holds rows, too: where it is memory that ends with the process.
    #[must_use]
    pub const fn takes_rows(&self) -> bool {
        self.rows.is_some()
    }

    fn rows_in_use(&self) -> Option<&RowSets> {
        self.rows.as_ref().filter(|_| !self.is_off() && !self.is_slow())
    }

    /// As [`crate::RowCache::get`], of what lies here.
    pub(crate) fn find_row(
        &self,
        owner: &RowOwner,
        row: (&[u8], u64),
        at: Seqno,
        value: &mut Vec<u8>,
    ) -> Option<RowHit> {
        self.rows_in_use()?.find(self, owner, row, at, value)
    }

    /// As [`crate::RowCache::forget`], after what lies above was forgotten.
    pub(crate) fn forget_row(&self, hash: u64) {
        if let Some(rows) = &self.rows {
            rows.forget(self, hash);
        }
    }

    /// A row that left DRAM goes nowhere: too many wait, or none is let in.
    pub(crate) fn note_row_refused(&self) {
        if let Some(rows) = &self.rows {
            count(&rows.counters.refused_busy);
        }
    }

    /// A page that lies nowhere is read from flash.
    pub(crate) fn page_missed(&self, hash: u64) {
        if let Some(rows) = &self.rows
            && self.evicted_pages.recall(hash)
        {
            count(&rows.counters.missed_pages);
        }
    }

    /// A row that lies nowhere was read from flash.
    pub(crate) fn row_missed(&self, hash: u64) {
        if let Some(rows) = &self.rows
            && self.evicted_rows.recall(hash)
        {
            count(&rows.counters.missed);
        }
    }

    /// Rows that were read from flash soon after they went, of those that lay in the last so many bytes.
    pub(crate) fn rows_missed(&self) -> (u64, u64) {
        let missed = self.rows.as_ref().map_or(0, |rows| rows.counters.missed.load(Relaxed));
        (missed, (ghost_pages(self.map.slots()) * PAGE_BYTES) as u64)
    }

    /// Puts rows here that left DRAM, those that are still current: whose keys were not written since.
    pub(crate) fn put_rows<'a>(
        &self,
        leaving: impl Iterator<Item = (NewRow<'a>, impl FnOnce() -> bool)>,
    ) {
        let Some(rows) = self.rows_in_use() else {
            // Off, or slower than flash.
            return leaving.for_each(|_| self.note_row_refused());
        };
        let (mut writer, now) = (self.writer.lock(), self.now());
        let mut scratch = std::mem::take(&mut writer.scratch);
        for (new, is_current) in leaving {
            if writer.budget.left(now) < ROW_WRITES_MAX as u64 {
                count(&rows.counters.refused_budget);
                continue;
            }
            let group = rows.number(new.hash);
            if rows.width(group) < writer.share.width(group)
                && rows.needs_page(self, new.hash, new.words.len())
            {
                self.add_page(rows, &mut writer, group, &mut scratch, now);
            }
            let hash = new.hash;
            let gone = |hash| self.evicted_rows.remember(hash);
            match rows.put(self, new, is_current, &mut scratch, gone) {
                Outcome::Present => count(&rows.counters.kept),
                Outcome::Stale => count(&rows.counters.refused_written),
                Outcome::Cold => {
                    count(&rows.counters.refused_cold);
                    // With more room it would be here.
                    self.evicted_rows.remember(hash);
                }
                Outcome::NoRoom => count(&rows.counters.refused_place),
                Outcome::Written(bytes) => self.spend_on_rows(rows, &mut writer, now, bytes),
            }
        }
        writer.scratch = scratch;
    }

    fn spend_on_rows(
        &self,
        rows: &RowSets,
        writer: &mut ScmWriterState,
        now: Duration,
        bytes: usize,
    ) {
        rows.counters.bytes_written.fetch_add(bytes as u64, Relaxed);
        self.spend(writer, now, bytes, false);
    }

    /// Adds a page of rows to `group`, in the place of the page of its slot; none where that is in use.
    fn add_page(
        &self,
        rows: &RowSets,
        writer: &mut ScmWriterState,
        group: usize,
        scratch: &mut super::Scratch,
        now: Duration,
    ) {
        let slot = RowSets::slot(group, rows.width(group));
        if !self.backing.lend(self.layout.page_of(slot)) {
            return;
        }
        self.claim_slot(slot);
        writer.map.mark(slot);
        let written = rows.add_page(self, group, scratch);
        self.spend_on_rows(rows, writer, now, written);
    }

    /// Weighs rows against pages, and gives slots back to pages where rows have more than their share.
    pub(crate) fn share_slots(&self, writer: &mut ScmWriterState) {
        let Some(rows) = &self.rows else { return };
        writer.returning.retain(|slot| !self.give_back(*slot));
        let (of, counters) = (|counter: &AtomicU64| counter.load(Relaxed), &rows.counters);
        let now = ShareCounts {
            misses: of(&self.counters.misses),
            missed_rows: of(&counters.missed),
            missed_pages: of(&counters.missed_pages),
            offered: counters.offered(),
            went: of(&counters.evicted) + of(&counters.dropped) + of(&counters.refused_cold),
        };
        let (counts, slots) = (counters.statistics(), self.map.slots());
        let each = (counts.slots * PAGE_BYTES as u64).checked_div(counts.rows);
        let row_bytes = each.unwrap_or(ROW_BYTES_FIRST).max(WORD_BYTES as u64);
        writer
            .share
            .weigh(now, RowUsage { slots: counts.slots, slots_total: slots as u64, row_bytes });
        counters.slots_max.store(writer.share.slots(slots), Relaxed);
        // What comes back within the time that a page stays is as much less as there are fewer of them.
        self.ghost.fit(slots.saturating_sub(counts.slots as usize) * GHOST_PAGES_PER_SLOT);
        let mut scratch = std::mem::take(&mut writer.scratch);
        for _ in 0..RETURNED_MAX {
            let group = writer.next_group;
            writer.next_group = (group + 1) % rows.groups();
            if rows.width(group) <= writer.share.width(group)
                || writer.returning.len() >= RETURNED_MAX
            {
                continue;
            }
            let gone = |hash| {
                count(&counters.dropped);
                self.evicted_rows.remember(hash);
            };
            let Some(slot) = rows.remove_page(self, group, &mut scratch, gone) else { continue };
            writer.map.mark(slot);
            if !self.give_back(slot) {
                writer.returning.push(slot);
            }
        }
        writer.scratch = scratch;
    }

    /// Takes `slot` for another page, or for rows: the page that it held is dropped.
    pub(crate) fn claim_slot(&self, slot: usize) {
        if let Some(hash) = self.map.claim(slot) {
            count(&self.counters.dropped);
            self.page_removed();
            self.evicted_pages.remember(hash);
        }
    }

    /// Makes a slot that held rows one for pages; false while somebody reads there.
    fn give_back(&self, slot: usize) -> bool {
        let is_back = self.backing.take_back(self.layout.page_of(slot));
        if is_back {
            self.map.release(slot);
        }
        is_back
    }
}

//! Rows of the tier: lookups, invalidation, demotion of rows, and how slots move between rows and pages.
//!
//! Any thread may look up and invalidate rows; lookups take no lock, invalidating a row that is here locks
//! its group. The demotion of rows and [`ScmTier::share_slots`] hold the writer's mutex.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arena::WORD_BYTES;
use base::limits::PAGE_BYTES;
use base::{Seqno, invariant};
use media::scm::{Facts, SlotWords};

use super::share::{RowUsage, ShareCounts, ghost_pages, ghost_rows};
use super::{NewRow, Outcome, PUT_BYTES_MAX, RowPages, RowSets, holds_rows};
use crate::rows::{RowHit, RowOwner};
use crate::scm::admission_contest::AdmissionContest;
use crate::scm::shared_ghost::SharedGhost;
use crate::scm::slot_map::WAYS;
use crate::scm::statistics::count;
use crate::scm::tier::{GHOST_PAGES_PER_SLOT, ScmTier};
use crate::scm::writer_state::ScmWriterState;

/// Most groups that return a slot in one step, and most returned slots that wait for their readers.
const RETURNED_MAX: usize = 64;

/// Most bytes written for one row: a page added for it, to which other rows move, and the row.
const ROW_WRITES_MAX: usize = PAGE_BYTES + PUT_BYTES_MAX;

/// Assumed memory of a row before the tier holds any, bytes.
const ROW_BYTES_FIRST: u64 = 256;

impl RowPages for ScmTier {
    fn words(&self, slot: usize) -> Option<SlotWords<'_>> {
        self.backing.words(self.layout.page_of(slot))
    }
}

impl ScmTier {
    /// DRAM of a tier of `sets` sets on this medium beside its slot map, bytes.
    pub(crate) const fn row_and_ghost_bytes(facts: &Facts, sets: usize) -> u64 {
        let rows = if holds_rows(facts) { RowSets::bytes_of(sets) } else { 0 };
        Self::ghost_bytes(facts, sets * WAYS) + rows + AdmissionContest::bytes_of(sets)
    }

    /// DRAM of the ghost lists of a tier of `slots` slots, bytes.
    pub(crate) const fn ghost_bytes(facts: &Facts, slots: usize) -> u64 {
        let refused = SharedGhost::bytes_of(slots * GHOST_PAGES_PER_SLOT);
        if !holds_rows(facts) {
            return refused;
        }
        let rows = SharedGhost::bytes_of(ghost_rows(slots));
        refused + rows + SharedGhost::bytes_of(ghost_pages(slots))
    }

    /// Whether the tier holds rows: it is memory that ends with the process.
    #[must_use]
    pub const fn takes_rows(&self) -> bool {
        self.rows.is_some()
    }

    fn rows_in_use(&self) -> Option<&RowSets> {
        self.rows.as_ref().filter(|_| !self.is_off() && !self.is_slow())
    }

    /// Looks a row up, as [`crate::RowCache::get`].
    pub(crate) fn find_row(
        &self,
        owner: &RowOwner,
        row: (&[u8], u64),
        at: Seqno,
        value: &mut Vec<u8>,
    ) -> Option<RowHit> {
        self.rows_in_use()?.find(self, owner, row, at, value)
    }

    /// Drops the row with this hash, as [`crate::RowCache::invalidate`], after the row in DRAM is stale.
    pub(crate) fn invalidate_row(&self, hash: u64) {
        if let Some(rows) = &self.rows {
            rows.invalidate(self, hash);
        }
    }

    /// Counts a row that DRAM evicted and that is lost: too many wait, or the tier takes none.
    pub(crate) fn note_row_refused(&self) {
        if let Some(rows) = &self.rows {
            count(&rows.counters.refused_busy);
        }
    }

    /// Records that a page was read from flash that no tier held.
    pub(crate) fn page_missed(&self, hash: u64) {
        if let Some(rows) = &self.rows
            && self.evicted_pages.recall(hash)
        {
            count(&rows.counters.missed_pages);
        }
    }

    /// Records that a row was read from flash that no tier held.
    pub(crate) fn row_missed(&self, hash: u64) {
        if let Some(rows) = &self.rows
            && self.evicted_rows.recall(hash)
        {
            count(&rows.counters.missed);
        }
    }

    /// Rows that were read from flash soon after the tier evicted them, and the bytes of the tier that the
    /// ghost list of those rows covers.
    pub(crate) fn rows_missed(&self) -> (u64, u64) {
        let missed = self.rows.as_ref().map_or(0, |rows| rows.counters.missed.load(Relaxed));
        (missed, (ghost_pages(self.map.slots()) * PAGE_BYTES) as u64)
    }

    /// Puts rows that DRAM evicted into the tier, if their keys were not written since.
    pub(crate) fn put_rows<'a>(
        &self,
        evicted: impl Iterator<Item = (NewRow<'a>, impl FnOnce() -> bool)>,
    ) {
        let Some(rows) = self.rows_in_use() else {
            // The tier is off, or slower than flash.
            return evicted.for_each(|_| self.note_row_refused());
        };
        let (mut writer, now) = (self.writer.lock(), self.now());
        let mut scratch = std::mem::take(&mut writer.scratch);
        for (new, is_current) in evicted {
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
            let on_evicted = |hash| self.evicted_rows.remember(hash);
            match rows.put(self, new, is_current, &mut scratch, on_evicted) {
                Outcome::Present => count(&rows.counters.kept),
                Outcome::Stale => count(&rows.counters.refused_written),
                Outcome::Cold => {
                    count(&rows.counters.refused_cold);
                    // With more room for rows it would have been admitted.
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

    /// Adds a page to `group`, in place of the cached page in its slot. Does nothing if that page is in use.
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

    /// Updates the share of rows, and returns slots to pages where rows have more than their share.
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
        invariant!(counts.slots <= slots as u64, "rows hold no more slots than there are");
        let each = (counts.slots * PAGE_BYTES as u64).checked_div(counts.rows);
        let row_bytes = each.unwrap_or(ROW_BYTES_FIRST).max(WORD_BYTES as u64);
        writer
            .share
            .weigh(now, RowUsage { slots: counts.slots, slots_total: slots as u64, row_bytes });
        counters.slots_max.store(writer.share.slots(slots), Relaxed);
        // The ghost list keeps its size per slot of pages.
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
            let on_evicted = |hash| {
                count(&counters.dropped);
                self.evicted_rows.remember(hash);
            };
            let Some(slot) = rows.remove_page(self, group, &mut scratch, on_evicted) else {
                continue;
            };
            writer.map.mark(slot);
            if !self.give_back(slot) {
                writer.returning.push(slot);
                invariant!(
                    writer.returning.len() <= RETURNED_MAX,
                    "slots that wait for their readers are bounded"
                );
            }
        }
        writer.scratch = scratch;
    }

    /// Claims `slot` for another page or for rows, and drops the page that it held.
    pub(crate) fn claim_slot(&self, slot: usize) {
        if let Some(hash) = self.map.claim(slot) {
            count(&self.counters.dropped);
            self.page_removed();
            self.evicted_pages.remember(hash);
        }
    }

    /// Returns a slot of rows to pages; false while a reader uses its words.
    fn give_back(&self, slot: usize) -> bool {
        let is_back = self.backing.take_back(self.layout.page_of(slot));
        if is_back {
            self.map.release(slot);
        }
        is_back
    }
}

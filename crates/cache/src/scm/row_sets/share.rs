//! How many slots may hold rows. The split follows the gain that either would have had from more slots, as
//! the split of DRAM between rows and pages does ([`crate::Balance`]).
//!
//! Ghost lists keep the rows and the pages evicted last, as many as fit 1/[`SHADOW_PART`] of the tier. A read
//! from flash that such a list has would have been a hit with that much more room. Rows take slots as they
//! need them, up to their share; when the share shrinks, slots return to pages. A pure function of counts
//! ([`next_share`]).

use base::invariant;
use base::limits::PAGE_BYTES;

use super::group::WIDTH_MAX;
use crate::scm::slot_map::WAYS;

/// The ghost lists cover this part of the tier.
pub(crate) const SHADOW_PART: usize = 32;

/// Entries of the rows' ghost list per slot of that part: about as many rows as a slot holds.
const ROWS_A_SLOT: usize = 16;

/// The share is decided again after this many reads from flash.
const MISSES: u64 = 16_384;

/// A gain is clearly greater if it is greater by this part, and by more than chance explains. The gain of
/// rows is often greater than that of pages for a long time, but seldom by a quarter.
const CLEAR_PART: u64 = 8;

/// The number of hits by which two counts may differ by chance: a smaller difference of gains is not clear.
const CHANCE: u64 = 16;

/// Shares are in 1/64 of all slots.
const PARTS: u64 = 64;

/// First share of rows, and their least share while DRAM evicts any. Rows that DRAM evicts are seldom used
/// again soon: a few slots of rows would show no gain, even if many slots would.
const PART_FIRST: u64 = PARTS / 8;

/// The least share of rows, in 1/[`PARTS`] of all slots.
const PART_MIN: u64 = 1;
/// The greatest share of rows, in 1/[`PARTS`] of all slots.
const PART_MAX: u64 = PARTS * WIDTH_MAX as u64 / WAYS as u64;

/// Entries of the ghost list of rows for a tier of `slots` slots.
pub(crate) const fn ghost_rows(slots: usize) -> usize {
    slots / SHADOW_PART * ROWS_A_SLOT
}

/// Entries of the ghost list of pages.
pub(crate) const fn ghost_pages(slots: usize) -> usize {
    slots / SHADOW_PART
}

/// Counts from which the share is decided.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShareCounts {
    /// Reads from flash.
    pub(crate) misses: u64,
    /// Reads of rows, and of pages, that the ghost lists had.
    pub(crate) missed_rows: u64,
    /// See `missed_rows`.
    pub(crate) missed_pages: u64,
    /// Rows that DRAM evicted and offered to the tier.
    pub(crate) offered: u64,
    /// Rows that were evicted, or refused for lack of room.
    pub(crate) went: u64,
}

/// Slots and memory of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowUsage {
    /// Slots that hold rows.
    pub(crate) slots: u64,
    /// All slots of the tier.
    pub(crate) slots_total: u64,
    /// Memory per row, bytes.
    pub(crate) row_bytes: u64,
}

/// The next share of rows after `part`, given the reads that more room would have saved for rows and for
/// pages, and the share that rows really use.
const fn next_share(part: u64, rows: u64, pages: u64, used: u64) -> u64 {
    const fn is_clear(more: u64, less: u64) -> bool {
        more > less + less / CLEAR_PART + CHANCE
    }
    if is_clear(rows, pages) {
        let next = part + if rows > 2 * pages { 2 } else { 1 };
        if next < PART_MAX { next } else { PART_MAX }
    } else if is_clear(pages, rows) {
        // The part of their share that rows do not use is taken from them at once.
        let part = if used < part { used } else { part };
        part.saturating_sub(if pages > 2 * rows { 2 } else { 1 })
    } else {
        part
    }
}

/// The share of rows in the slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowShare {
    part: u64,
    weighed: ShareCounts,
}

impl Default for RowShare {
    fn default() -> Self {
        Self { part: PART_FIRST, weighed: ShareCounts::default() }
    }
}

impl RowShare {
    /// Decides the share again, if there were enough reads from flash since the last decision.
    pub(crate) fn weigh(&mut self, now: ShareCounts, usage: RowUsage) {
        let before = self.weighed;
        invariant!(
            now.missed_rows >= before.missed_rows && now.missed_pages >= before.missed_pages,
            "counts of ghost hits never decrease"
        );
        if now.misses.saturating_sub(before.misses) < MISSES {
            return;
        }
        self.weighed = now;
        let is_idle = now.offered == before.offered;
        if !is_idle && now.went < ghost_rows(usage.slots_total as usize) as u64 {
            // While few rows are evicted, nothing is known about the value of more room for rows.
            self.part = self.part.max(PART_FIRST);
            return;
        }
        // The ghost list has a fixed number of rows: scale it to the room that the pages' list covers.
        let rows = now.missed_rows - before.missed_rows;
        let rows = rows * PAGE_BYTES as u64 / (usage.row_bytes.max(1) * ROWS_A_SLOT as u64);
        let pages = now.missed_pages - before.missed_pages;
        let least = if is_idle { PART_MIN } else { PART_FIRST };
        let used = (usage.slots * PARTS).div_ceil(usage.slots_total.max(1));
        self.part = next_share(self.part, rows, pages, used).max(least);
        invariant!(self.part <= PART_MAX, "two slots of each set stay for pages");
    }

    /// Most pages of group `group`: the share of its set, rounded up for some groups and down for the others,
    /// so that all groups together have the share.
    pub(crate) const fn width(&self, group: usize) -> usize {
        (self.part as usize * WAYS + group % PARTS as usize) / PARTS as usize
    }

    /// Most slots, of `slots`, that may hold rows.
    pub(crate) const fn slots(&self, slots: usize) -> u64 {
        slots as u64 * self.part / PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u64 = 6_400;
    const USAGE: RowUsage = RowUsage { slots: SLOTS / 2, slots_total: SLOTS, row_bytes: 256 };
    /// Evictions that are enough for a decision.
    const MANY: u64 = ghost_rows(SLOTS as usize) as u64;

    fn after(share: &RowShare, rows: u64, pages: u64, went: u64) -> ShareCounts {
        let now = share.weighed;
        ShareCounts {
            misses: now.misses + MISSES,
            missed_rows: now.missed_rows + rows,
            missed_pages: now.missed_pages + pages,
            offered: now.offered + 1,
            went: now.went + went,
        }
    }

    fn weighed(share: &mut RowShare, rows: u64, pages: u64) -> u64 {
        let now = after(share, rows, pages, MANY);
        share.weigh(now, RowUsage { slots: share.slots(SLOTS as usize), ..USAGE });
        share.part
    }

    #[test]
    fn the_share_moves_to_the_side_that_gains_clearly_more() {
        let mut share = RowShare::default();
        assert_eq!(weighed(&mut share, 0, 0), PART_FIRST);
        assert_eq!(weighed(&mut share, 115, 100), PART_FIRST);
        assert_eq!(weighed(&mut share, 130, 100), PART_FIRST + 1);
        assert_eq!(weighed(&mut share, 230, 100), PART_FIRST + 3);
        assert_eq!(weighed(&mut share, 100, 300), PART_FIRST + 1);
        for _ in 0..40 {
            weighed(&mut share, 200, 50);
        }
        assert_eq!(share.part, PART_MAX);
        assert!((0..100).all(|group| share.width(group) == WIDTH_MAX));
        for _ in 0..40 {
            weighed(&mut share, 0, 200);
        }
        assert_eq!(share.part, PART_FIRST);
        assert_eq!((0..64).map(|group| share.width(group)).sum::<usize>(), 64 * WAYS / 8);
        assert_eq!(share.slots(640), 80);
    }

    #[test]
    fn idle_rows_keep_the_least_share_and_regain_the_first_one() {
        let mut share = RowShare::default();
        for _ in 0..20 {
            let now = ShareCounts { offered: share.weighed.offered, ..after(&share, 0, 200, MANY) };
            share.weigh(now, USAGE);
        }
        assert_eq!(share.part, PART_MIN);
        assert_eq!(weighed(&mut share, 0, 200), PART_FIRST);
    }

    #[test]
    fn the_share_stays_until_many_rows_were_evicted() {
        let mut share = RowShare::default();
        let now = after(&share, 500, 0, MANY - 1);
        share.weigh(now, USAGE);
        assert_eq!(share.part, PART_FIRST);
        let now = after(&share, 500, 0, 1);
        share.weigh(now, USAGE);
        assert_eq!(share.part, PART_FIRST + 2);
        // The unused part of the share is taken at once.
        share.part = PARTS / 2;
        let now = after(&share, 0, 1_000, 0);
        share.weigh(now, RowUsage { slots: SLOTS / 4, ..USAGE });
        assert_eq!(share.part, PARTS / 4 - 2);
        // Too few reads for a decision.
        let now = ShareCounts {
            misses: share.weighed.misses + 1,
            missed_pages: 1 << 20,
            ..share.weighed
        };
        share.weigh(now, USAGE);
        assert_eq!(share.part, PARTS / 4 - 2);
    }
}

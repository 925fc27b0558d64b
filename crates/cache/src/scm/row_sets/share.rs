//! How many of the slots may hold rows: a split by what either would have gained by more of them, as
//! between rows and pages in DRAM ([`crate::Balance`]).
//!
//! Of both what went last is remembered, as much as lay in a part in [`SHADOW_PART`] of the tier: what is
//! read from flash soon after it went would have been here with that much more room. Rows take slots as they
//! need them, up to their share; where their share gets smaller slots go back to pages.

use base::limits::PAGE_BYTES;

use super::group::WIDTH_MAX;
use crate::scm::slot_map::WAYS;

/// What went last is remembered as far as it lay in one such part of the tier.
pub(crate) const SHADOW_PART: usize = 32;

/// Rows that are remembered for each slot of that part: as many as a slot holds, about.
const ROWS_A_SLOT: usize = 16;

/// The two are weighed after so many reads of flash.
const MISSES: u64 = 16_384;

/// One gains clearly more where that is a part in so many, and more than chance makes of a few. What rows
/// gain by room is long more than what pages do, but seldom by a quarter.
const CLEAR_PART: u64 = 8;

/// See [`CLEAR_PART`].
const CHANCE: u64 = 16;

/// Parts of all slots.
const PARTS: u64 = 64;

/// Rows' share at first, and at least as long as some leave DRAM. What leaves it is seldom asked for again
/// soon: few slots of rows are used for nothing, whatever many would be used for.
const PART_FIRST: u64 = PARTS / 8;

/// Rows' share at least, and at most.
const PART_MIN: u64 = 1;
const PART_MAX: u64 = PARTS * WIDTH_MAX as u64 / WAYS as u64;

/// How many rows are remembered of a tier of so many slots.
pub(crate) const fn ghost_rows(slots: usize) -> usize {
    slots / SHADOW_PART * ROWS_A_SLOT
}

/// How many pages are.
pub(crate) const fn ghost_pages(slots: usize) -> usize {
    slots / SHADOW_PART
}

/// The counts by which the two are weighed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShareCounts {
    /// Reads of flash.
    pub(crate) misses: u64,
    /// Of rows, and of pages, that went shortly before.
    pub(crate) missed_rows: u64,
    /// See `missed_rows`.
    pub(crate) missed_pages: u64,
    /// Rows that left DRAM and came, or might have.
    pub(crate) offered: u64,
    /// Rows that went, or were not let in for want of room.
    pub(crate) went: u64,
}

/// What rows have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowUsage {
    /// Slots of so many.
    pub(crate) slots: u64,
    /// See `slots`.
    pub(crate) slots_total: u64,
    /// The bytes that a row takes.
    pub(crate) row_bytes: u64,
}

/// The share of rows after `part`, where more room would have spared either so many reads, and rows have
/// `used` of it.
const fn step(part: u64, rows: u64, pages: u64, used: u64) -> u64 {
    const fn is_clear(more: u64, less: u64) -> bool {
        more > less + less / CLEAR_PART + CHANCE
    }
    if is_clear(rows, pages) {
        let next = part + if rows > 2 * pages { 2 } else { 1 };
        if next < PART_MAX { next } else { PART_MAX }
    } else if is_clear(pages, rows) {
        // What they do not use is theirs no longer.
        let part = if used < part { used } else { part };
        part.saturating_sub(if pages > 2 * rows { 2 } else { 1 })
    } else {
        part
    }
}

/// The share of rows.
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
    /// Weighs the two again, where enough was read since.
    pub(crate) fn weigh(&mut self, now: ShareCounts, usage: RowUsage) {
        let before = self.weighed;
        if now.misses.saturating_sub(before.misses) < MISSES {
            return;
        }
        self.weighed = now;
        let is_idle = now.offered == before.offered;
        if !is_idle && now.went < ghost_rows(usage.slots_total as usize) as u64 {
            // As long as few went nobody knows what more room would do for them.
            self.part = self.part.max(PART_FIRST);
            return;
        }
        // What is remembered of rows lay in more or less than that part of the tier.
        let rows = now.missed_rows - before.missed_rows;
        let rows = rows * PAGE_BYTES as u64 / (usage.row_bytes.max(1) * ROWS_A_SLOT as u64);
        let pages = now.missed_pages - before.missed_pages;
        let least = if is_idle { PART_MIN } else { PART_FIRST };
        let used = (usage.slots * PARTS).div_ceil(usage.slots_total.max(1));
        self.part = step(self.part, rows, pages, used).max(least);
    }

    /// How many pages group `group` may have: as many as its share is, and of the rest of a page one group in
    /// so many has one.
    pub(crate) const fn width(&self, group: usize) -> usize {
        (self.part as usize * WAYS + group % PARTS as usize) / PARTS as usize
    }

    /// How many slots of so many may hold rows.
    pub(crate) const fn slots(&self, slots: usize) -> u64 {
        slots as u64 * self.part / PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u64 = 6_400;
    const USAGE: RowUsage = RowUsage { slots: SLOTS / 2, slots_total: SLOTS, row_bytes: 256 };
    /// As many rows as are remembered.
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
    fn slots_go_to_whoever_gains_clearly_more() {
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
    fn where_no_rows_leave_pages_have_all_but_a_few_slots_and_rows_get_them_back() {
        let mut share = RowShare::default();
        for _ in 0..20 {
            let now = ShareCounts { offered: share.weighed.offered, ..after(&share, 0, 200, MANY) };
            share.weigh(now, USAGE);
        }
        assert_eq!(share.part, PART_MIN);
        assert_eq!(weighed(&mut share, 0, 200), PART_FIRST);
    }

    #[test]
    fn until_many_rows_went_their_share_stays() {
        let mut share = RowShare::default();
        let now = after(&share, 500, 0, MANY - 1);
        share.weigh(now, USAGE);
        assert_eq!(share.part, PART_FIRST);
        let now = after(&share, 500, 0, 1);
        share.weigh(now, USAGE);
        assert_eq!(share.part, PART_FIRST + 2);
        // What they have no use for goes at once.
        share.part = PARTS / 2;
        let now = after(&share, 0, 1_000, 0);
        share.weigh(now, RowUsage { slots: SLOTS / 4, ..USAGE });
        assert_eq!(share.part, PARTS / 4 - 2);
        // Too few reads to tell.
        let now = ShareCounts {
            misses: share.weighed.misses + 1,
            missed_pages: 1 << 20,
            ..share.weighed
        };
        share.weigh(now, USAGE);
        assert_eq!(share.part, PARTS / 4 - 2);
    }
}

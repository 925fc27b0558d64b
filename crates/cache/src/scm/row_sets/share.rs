//! How many of the slots may hold rows: a split by what either would have gained by more of them, as
//! between rows and pages in DRAM ([`crate::Balance`]).
//!
//! Of both what went last is remembered, as much as lay in a part in [`SHADOW_PART`] of the tier: what is
//! read from flash soon after it went would have been here with that much more room. Rows take slots as they
//! need them, up to their share; where their share gets smaller slots go back to pages.

use super::WIDTH_MAX;
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

/// Rows' share at first, and at most.
const PART_FIRST: u64 = PARTS / 2;
const PART_MAX: u64 = PARTS * WIDTH_MAX as u64 / WAYS as u64;

/// Where at most one read of flash in so many left a row here, rows are not known to need their share.
const IDLE_PART: u64 = 64;

/// How many rows are remembered of a tier of so many slots.
pub(crate) const fn rows_remembered(slots: usize) -> usize {
    slots / SHADOW_PART * ROWS_A_SLOT
}

/// How many pages are.
pub(crate) const fn pages_remembered(slots: usize) -> usize {
    slots / SHADOW_PART
}

/// The counts by which the two are weighed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Reads of flash.
    pub(crate) misses: u64,
    /// Of rows, and of pages, that went shortly before.
    pub(crate) missed_rows: u64,
    /// See `missed_rows`.
    pub(crate) missed_pages: u64,
    /// Rows that came, and rows that went for others.
    pub(crate) demoted: u64,
    /// See `demoted`.
    pub(crate) evicted: u64,
}

/// The share of rows after `part`, where more room would have spared either so many reads.
const fn step(part: u64, rows: u64, pages: u64) -> u64 {
    const fn is_clear(more: u64, less: u64) -> bool {
        more > less + less / CLEAR_PART + CHANCE
    }
    if is_clear(rows, pages) {
        let next = part + if rows > 2 * pages { 2 } else { 1 };
        if next < PART_MAX { next } else { PART_MAX }
    } else if is_clear(pages, rows) && part > 1 {
        part - if pages > 2 * rows && part > 2 { 2 } else { 1 }
    } else {
        part
    }
}

/// The share of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    part: u64,
    weighed: Counts,
}

impl Default for Share {
    fn default() -> Self {
        Self { part: PART_FIRST, weighed: Counts::default() }
    }
}

impl Share {
    /// Weighs the two again, where enough was read since; rows take so many bytes each, and so many are
    /// remembered.
    pub(crate) fn weigh(&mut self, now: Counts, row_bytes: u64, remembered: u64) {
        let before = self.weighed;
        let misses = now.misses.saturating_sub(before.misses);
        if misses < MISSES {
            return;
        }
        self.weighed = now;
        // As long as few rows went, nobody knows what fewer of them would cost, unless hardly any comes.
        let is_idle = (now.demoted - before.demoted) * IDLE_PART < misses;
        let is_known = now.evicted != before.evicted && now.evicted >= remembered;
        if !is_known && !is_idle {
            return;
        }
        // What is remembered of rows lay in more or less than that part of the tier.
        let rows = now.missed_rows - before.missed_rows;
        let rows = rows * 4096 / (row_bytes.max(1) * ROWS_A_SLOT as u64);
        self.part = step(self.part, rows, now.missed_pages - before.missed_pages);
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

    const REMEMBERED: u64 = 5_000;

    fn weighed(share: &mut Share, rows: u64, pages: u64) -> u64 {
        let now = share.weighed;
        let now = Counts {
            misses: now.misses + MISSES,
            missed_rows: now.missed_rows + rows,
            missed_pages: now.missed_pages + pages,
            demoted: now.demoted + REMEMBERED,
            evicted: now.evicted + REMEMBERED,
        };
        share.weigh(now, 256, REMEMBERED);
        share.part
    }

    #[test]
    fn slots_go_to_whoever_gains_clearly_more() {
        let mut share = Share::default();
        assert_eq!(weighed(&mut share, 0, 0), PART_FIRST);
        assert_eq!(weighed(&mut share, 115, 100), PART_FIRST);
        assert_eq!(weighed(&mut share, 130, 100), PART_FIRST + 1);
        assert_eq!(weighed(&mut share, 230, 100), PART_FIRST + 3);
        assert_eq!(weighed(&mut share, 100, 300), PART_FIRST + 1);
        for _ in 0..20 {
            weighed(&mut share, 200, 50);
        }
        assert_eq!(share.part, PART_MAX);
        assert!((0..100).all(|group| share.width(group) == WIDTH_MAX));
        for _ in 0..40 {
            weighed(&mut share, 0, 200);
        }
        assert_eq!(share.part, 1);
        assert_eq!((0..64).map(|group| share.width(group)).sum::<usize>(), WAYS);
        assert_eq!(share.slots(640), 10);
    }

    #[test]
    fn rows_of_which_few_went_keep_their_share_as_long_as_some_come() {
        let mut share = Share::default();
        let came = |share: &Share, rows: u64, evicted: u64| Counts {
            misses: share.weighed.misses + MISSES,
            missed_pages: share.weighed.missed_pages + 500,
            demoted: share.weighed.demoted + rows,
            evicted: share.weighed.evicted + evicted,
            ..share.weighed
        };
        let now = came(&share, 1000, 0);
        share.weigh(now, 256, REMEMBERED);
        let now = came(&share, 1000, REMEMBERED - 1);
        share.weigh(now, 256, REMEMBERED);
        assert_eq!(share.part, PART_FIRST);
        let now = came(&share, 1000, 1);
        share.weigh(now, 256, REMEMBERED);
        assert!(share.part < PART_FIRST);
        let (part, now) = (share.part, came(&share, 1000, 0));
        share.weigh(now, 256, REMEMBERED);
        assert_eq!(share.part, part);
        // Hardly any comes: they are not known to need it.
        let now = came(&share, 10, 0);
        share.weigh(now, 256, REMEMBERED);
        assert!(share.part < part);
        // Too few reads to tell.
        let now =
            Counts { misses: share.weighed.misses + 1, missed_pages: 1 << 20, ..share.weighed };
        let part = share.part;
        share.weigh(now, 256, REMEMBERED);
        assert_eq!(share.part, part);
    }
}

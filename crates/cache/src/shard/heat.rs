//! Heat of cached pages: how much each kind gets when it is inserted and used.
//!
//! Heat is a field of the frame, changed without a lock by every hit. Pure functions otherwise.

use arena::{Frame, Heat};

use crate::PageKind;

/// The most heat that a data page gets by being used.
pub(super) const HEAT_MAX: Heat = 3;

/// Heat of a page when it is inserted, and its least heat whenever it is used. A metadata page serves a
/// hundred data pages, so it gets more turns in the main queue.
pub(super) const fn least_heat(kind: PageKind) -> Heat {
    match kind {
        PageKind::Data => 0,
        PageKind::Meta => 8,
    }
}

/// Counts a use of the page in `frame`; returns its heat.
#[inline]
pub(crate) fn touch(frame: &Frame, kind: PageKind) -> u32 {
    let seen = frame.heat();
    let heat = u32::from(least_heat(kind)).max((seen + 1).min(u32::from(HEAT_MAX)));
    // Pages with full heat are not written to, so that their cache line stays shared by all cores.
    if heat != seen {
        frame.set_heat(heat);
    }
    heat
}

/// The heat from which on a page's decompressed block is worth keeping: two uses since it was inserted.
pub(crate) const BLOCK_HEAT: u32 = 2;

/// Most turns of a page before it is evicted, whatever its heat.
pub(super) const TURNS_MAX: usize = least_heat(PageKind::Meta) as usize + 2;

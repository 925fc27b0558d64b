//! What pages in DRAM are used for: how often they stay when it is their turn to go.
//!
//! Each shard counts under its lock; the tier below reckons by them what copying pages up is worth
//! ([`crate::scm::Costs`]). Two additions a turn of a page.

use std::ops::AddAssign;

/// What became of data pages that were asked for twice, or copied up, when it was their turn to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turns {
    /// They stayed: they had been asked for again. As often as that, up to three times each.
    pub(crate) stayed: u64,
    /// They went.
    pub(crate) left: u64,
}

impl AddAssign for Turns {
    fn add_assign(&mut self, other: Self) {
        self.stayed += other.stayed;
        self.left += other.left;
    }
}

//! What pages in DRAM are used for: how often they stay when it is their turn to go.
//!
//! Each shard counts under its lock; the tier below reckons by them what copying pages up is worth
//! ([`crate::scm::Costs`]). Two additions a turn of a page.

use std::ops::AddAssign;

use crate::PageKind;

/// What became of pages of one kind that were asked for twice, or copied up, when it was their turn to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reuse {
    /// They kept: they had been asked for again. Data as often as that, up to three times each;
    /// metadata, which stays for more turns than it is asked for, at most once a turn, and at its first
    /// one in any case.
    pub(crate) kept: u64,
    /// They went.
    pub(crate) evicted: u64,
}

/// The same of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KindReuse {
    pub(crate) data: Reuse,
    pub(crate) meta: Reuse,
}

impl Reuse {
    /// Uses since `before`, of each 256 pages that evicted meanwhile; none before `least` of them did.
    pub(crate) fn uses_since(self, before: Self, kind: PageKind, least: u64) -> Option<u32> {
        let evicted = self.evicted.saturating_sub(before.evicted);
        let mut uses = self.kept.saturating_sub(before.kept);
        if kind == PageKind::Meta {
            uses = uses.saturating_sub(evicted);
        }
        let uses = (uses * 256).checked_div(evicted).filter(|_| evicted >= least)?;
        Some(u32::try_from(uses).unwrap_or(u32::MAX))
    }
}

impl KindReuse {
    pub(crate) const fn of(&mut self, kind: PageKind) -> &mut Reuse {
        match kind {
            PageKind::Data => &mut self.data,
            PageKind::Meta => &mut self.meta,
        }
    }
}

impl AddAssign for Reuse {
    fn add_assign(&mut self, other: Self) {
        self.kept += other.kept;
        self.evicted += other.evicted;
    }
}

impl AddAssign for KindReuse {
    fn add_assign(&mut self, other: Self) {
        self.data += other.data;
        self.meta += other.meta;
    }
}

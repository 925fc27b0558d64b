//! Reuse of pages in DRAM's main queue: how many got another turn because they were used, and how many were
//! evicted.
//!
//! Each shard counts under its mutex, two additions per turn of a page. The lower tier derives from it
//! whether promotions pay off ([`crate::scm::Costs`]).

use std::ops::AddAssign;

use base::invariant;

use crate::PageKind;

/// Reuse of pages of one kind that were used twice, or promoted, before their turn came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reuse {
    /// Turns at which a page was kept. A data page is kept once per use, at most three times in a row, and
    /// each time counts. A metadata page is kept for more turns than it has uses: a turn counts if the page
    /// was used since the turn before, and its first turn always counts.
    pub(crate) kept: u64,
    /// Turns at which a page was evicted.
    pub(crate) evicted: u64,
}

/// Reuse by kind of page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KindReuse {
    pub(crate) data: Reuse,
    pub(crate) meta: Reuse,
}

impl Reuse {
    /// Uses per 256 evicted pages since `before`; `None` if fewer than `least` pages were evicted since.
    pub(crate) fn uses_since(self, before: Self, kind: PageKind, least: u64) -> Option<u32> {
        invariant!(
            self.kept >= before.kept && self.evicted >= before.evicted,
            "counts of reuse never decrease"
        );
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

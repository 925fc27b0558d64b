//! Where a store's lookups of pages were answered, by tier and by kind of page.

use serde::Serialize;

/// Counts of lookups. Field names are an interface that scripts parse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByKind {
    /// Of keys and values.
    pub data: u64,
    /// Of separators and filters.
    pub meta: u64,
}

impl ByKind {
    const fn since(self, earlier: Self) -> Self {
        Self {
            data: self.data.saturating_sub(earlier.data),
            meta: self.meta.saturating_sub(earlier.meta),
        }
    }
}

/// Lookups of pages by where they were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageCounts {
    /// In DRAM.
    pub dram: ByKind,
    /// In storage-class memory.
    pub scm: ByKind,
    /// In neither: they were read from flash.
    pub flash: ByKind,
}

impl PageCounts {
    /// What was added since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            dram: self.dram.since(earlier.dram),
            scm: self.scm.since(earlier.scm),
            flash: self.flash.since(earlier.flash),
        }
    }
}

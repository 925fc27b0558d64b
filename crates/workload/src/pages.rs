//! Page lookups of a store, by the tier that answered and by kind of page.

use serde::Serialize;

/// Counts of lookups. Field names are an interface that scripts parse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByKind {
    /// Of data pages.
    pub data: u64,
    /// Of metadata pages: separators and filters.
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

/// Page lookups by the tier that answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageCounts {
    /// In DRAM.
    pub dram: ByKind,
    /// In storage-class memory.
    pub scm: ByKind,
    /// In neither: read from flash.
    pub flash: ByKind,
}

impl PageCounts {
    /// The difference to an `earlier` reading.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            dram: self.dram.since(earlier.dram),
            scm: self.scm.since(earlier.scm),
            flash: self.flash.since(earlier.flash),
        }
    }
}

//! What names a page in the cache.

use arena::FrameName;

/// A page of a file that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageKey {
    /// What stands for the content of the whole file: its digest. Files of any stores, of copies of a
    /// store that parted from each other, and of one that was restored to what it was, are told apart by
    /// it, whatever their numbers are.
    pub file: u64,
    /// The page's number in the file.
    pub page: u32,
}

impl PageKey {
    /// A hash whose bits are all usable: high ones pick the shard, low ones the place in it. It is the
    /// same wherever and whenever it is taken: the SCM tier keeps it (docs/format/scm-tier.md).
    #[must_use]
    pub fn hash(self) -> u64 {
        // Multiply and fold (as wyhash does): page numbers are small and dense.
        let low = self.file ^ 0xa076_1d64_78bd_642f;
        let high = u64::from(self.page) ^ 0xe703_7ed1_a0b4_28db;
        let product = u128::from(low) * u128::from(high);
        let folded = (product as u64) ^ (product >> 64) as u64;
        folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (folded >> 32)
    }
}

impl From<PageKey> for FrameName {
    fn from(PageKey { file, page }: PageKey) -> Self {
        Self { file, page }
    }
}

impl From<FrameName> for PageKey {
    fn from(FrameName { file, page }: FrameName) -> Self {
        Self { file, page }
    }
}

/// What a page is: metadata (separators and filters) serves a hundred data pages and stays longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Keys and values.
    Data,
    /// Separators and filters.
    Meta,
}

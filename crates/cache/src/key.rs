//! Keys of cached pages.

use arena::FrameName;

/// Identifies a page of an immutable file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageKey {
    /// The digest of the file's content, which stands for the whole file. It tells files apart across stores,
    /// diverged copies of a store, and a restored store, whatever their file numbers are.
    pub file: u64,
    /// Number of the page in the file.
    pub page: u32,
}

impl PageKey {
    /// A hash of which all bits are usable: high bits pick the shard, low bits the bucket. It never changes
    /// between processes and machines: the SCM tier stores it (docs/format/scm-tier.md).
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

/// Kind of a page. A metadata page serves a hundred data pages, so it is kept longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Keys and values.
    Data,
    /// Separators and filters.
    Meta,
}

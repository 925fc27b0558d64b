//! What names a page in the cache.

use base::TableId;

/// A page of a table of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageKey {
    /// Tells the tables of stores that share the cache apart.
    pub space: u32,
    /// The table.
    pub table: TableId,
    /// The page's number in the table.
    pub page: u32,
}

impl PageKey {
    /// A hash whose bits are all usable: high ones pick the shard, low ones the place in it.
    pub(crate) fn hash(self) -> u64 {
        // Multiply and fold (as wyhash does): table ids and page numbers are small and dense.
        let low = (self.table.0 ^ 0xa076_1d64_78bd_642f).wrapping_add(u64::from(self.space) << 40);
        let high = u64::from(self.page) ^ 0xe703_7ed1_a0b4_28db;
        let product = u128::from(low) * u128::from(high);
        let folded = (product as u64) ^ (product >> 64) as u64;
        folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (folded >> 32)
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

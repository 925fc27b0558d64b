//! Checksums and hashes. Files store their results, so a change to any of them changes the file format.

use twox_hash::XxHash3_64;

use crate::{StoreId, TableId};

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Extends `crc`, the CRC-32C of the preceding bytes, by `bytes`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// The hash of a key that filters store: XXH3-64.
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

/// A seeded 64-bit hash: XXH3-64.
#[must_use]
pub fn hash64(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// The ids of a store and a table, with which the checksums of that table's pages are seeded.
///
/// A page's checksum is XXH3-64 of its bytes, seeded with XXH3-64 of (store, table, page number). A read
/// that returns another page, or a page of another table, thus fails the checksum as flipped bits do (I8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSeed {
    store: StoreId,
    table: TableId,
}

impl PageSeed {
    /// The seed for `table` of `store`.
    #[must_use]
    pub const fn new(store: StoreId, table: TableId) -> Self {
        Self { store, table }
    }

    /// The table that the seed belongs to.
    #[must_use]
    pub const fn table(self) -> TableId {
        self.table
    }

    /// The checksum of page `page` with content `bytes`.
    #[must_use]
    pub fn checksum(self, page: u32, bytes: &[u8]) -> u64 {
        self.page(page).checksum(bytes)
    }

    /// The seed for the content of page `page`. Compute it before writing the content: computed afterwards,
    /// it waits for the last byte written to reach the CPU cache (0.8 us when merges fill large buffers).
    #[must_use]
    pub fn page(self, page: u32) -> ContentSeed {
        let mut identity = [0; 28];
        let (store, rest) = identity.split_at_mut(16);
        let (table, number) = rest.split_at_mut(8);
        store.copy_from_slice(&self.store.0.to_le_bytes());
        table.copy_from_slice(&self.table.0.to_le_bytes());
        number.copy_from_slice(&page.to_le_bytes());
        ContentSeed(key_hash(&identity))
    }
}

/// The checksum seed of one page: a hash of its store, table and page number.
#[derive(Clone, Copy, Debug)]
pub struct ContentSeed(u64);

impl ContentSeed {
    /// The checksum of the page with content `bytes`.
    #[must_use]
    pub fn checksum(self, bytes: &[u8]) -> u64 {
        hash64(self.0, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files store these numbers, so they may never change.
    #[test]
    fn stored_hashes_are_stable() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_append(crc32c(b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(key_hash(b""), 0x2d06_8005_38d3_94c2);
        let seed = PageSeed::new(StoreId(1), TableId(2));
        assert_eq!(seed.checksum(3, b"page"), 2_472_281_564_579_646_093);
    }

    #[test] // I8
    fn a_page_checksum_depends_on_store_table_and_page_number() {
        let one = PageSeed::new(StoreId(1), TableId(2));
        let sum = one.checksum(3, b"page");
        assert_ne!(sum, one.checksum(4, b"page"));
        assert_ne!(sum, PageSeed::new(StoreId(1), TableId(3)).checksum(3, b"page"));
        assert_ne!(sum, PageSeed::new(StoreId(2), TableId(2)).checksum(3, b"page"));
    }
}

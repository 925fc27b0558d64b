//! The layout of a table: how its data pages are cut and indexed.
//!
//! In a *sorted* table a block ends wherever its page is full, and separators lead to the blocks. In a
//! table with *bins* every key begins with eight bytes of a uniform hash, big-endian. The top bits of the
//! hash are the key's bin, and a block ends only where the bin changes. So a few bits per page are enough
//! to index the blocks ([`bin_index`](super::bin_index)).
//!
//! The flushes and merges of hashed keyspaces write tables with bins.

use base::{Error, Result};

use crate::page::PAYLOAD_BYTES;

/// Length of the hash that begins a key of a table with bins, bytes.
pub const HASH_BYTES: usize = 8;

/// Bins per page that a table aims for. Fewer make the last bin of a page leave more of the page empty,
/// twice as many cost one bit per page.
const BINS_PER_PAGE: f64 = 64.0;

/// Bits that the bins of straddled blocks have less than those of the table.
const STRADDLED_BITS_LESS: u8 = 2;

/// How the data pages of a table are cut and indexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Any keys, any cuts, and separators.
    #[default]
    Sorted,
    /// Keys that begin with a hash, cuts between bins, and an index of bins.
    Bins(BinBits),
}

impl Layout {
    /// The layout with bins for tables that share `bytes` bytes of entries between the keys `first` and
    /// `end`, which is excluded; `None`: there is no upper bound. The hashes of the entries spread evenly
    /// over this range.
    #[must_use]
    pub fn bins(bytes: u64, first: &[u8], end: Option<&[u8]>) -> Self {
        let top = end.map_or(1u128 << 64, |end| u128::from(head_of(end)));
        let hashes = top.saturating_sub(u128::from(head_of(first))).max(1);
        let pages = bytes as f64 / PAYLOAD_BYTES as f64 * (2f64.powi(64) / hashes as f64);
        let bits = (pages.max(1.0) * BINS_PER_PAGE).log2().round();
        Self::Bins(BinBits((bits as u8).clamp(1, BinBits::MAX.0)))
    }

    /// The layout that `byte` stands for in messages and properties: 0 is sorted, any other value is
    /// the bin bits.
    ///
    /// # Errors
    /// `Corrupt` if it stands for none.
    pub fn decode(byte: u8) -> Result<Self> {
        match byte {
            0 => Ok(Self::Sorted),
            bits => BinBits::new(bits).map(Self::Bins),
        }
    }

    /// The byte that stands for the layout.
    #[must_use]
    pub const fn encode(self) -> u8 {
        match self {
            Self::Sorted => 0,
            Self::Bins(bits) => bits.0,
        }
    }

    /// The bits of the bins; `None` in a sorted table.
    #[must_use]
    pub const fn bin_bits(self) -> Option<BinBits> {
        match self {
            Self::Sorted => None,
            Self::Bins(bits) => Some(bits),
        }
    }
}

/// Number of bits of a bin: the bin of a key is that many top bits of its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinBits(u8);

impl BinBits {
    /// The most bits.
    pub const MAX: Self = Self(56);

    /// `bits` bits.
    ///
    /// # Errors
    /// `Corrupt` if it is 0 or more than [`BinBits::MAX`].
    pub fn new(bits: u8) -> Result<Self> {
        if (1..=Self::MAX.0).contains(&bits) {
            return Ok(Self(bits));
        }
        Err(Error::corrupt("bin bits").expected(format_args!("1..={}", Self::MAX.0)).got(bits))
    }

    /// The number of bits.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The bits of the bins of straddled blocks: a quarter as many bins. Their pages have few entries, so
    /// more bins would cost memory and save hardly a page of a lookup.
    #[must_use]
    pub fn of_straddled(self) -> Self {
        Self(self.0.saturating_sub(STRADDLED_BITS_LESS).max(1))
    }

    /// The bin of `key`. A key shorter than a hash has the bin of the hash that it begins.
    #[must_use]
    pub fn bin_of(self, key: &[u8]) -> u64 {
        head_of(key) >> (u64::BITS - u32::from(self.0))
    }

    /// The last bin.
    pub(crate) const fn last(self) -> u64 {
        u64::MAX >> (u64::BITS - self.0 as u32)
    }

    /// The shortest key that is not after any key of `bin`, and after every key of the bins before it.
    pub(crate) fn first_key(self, bin: u64) -> Vec<u8> {
        let hash = bin.checked_shl(u64::BITS - u32::from(self.0)).unwrap_or(u64::MAX);
        let mut key = hash.to_be_bytes().to_vec();
        while key.last() == Some(&0) {
            key.pop();
        }
        key
    }
}

/// The first bin of a block, according to the bin index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstBin {
    pub(crate) bits: BinBits,
    pub(crate) bin: u64,
}

impl FirstBin {
    /// Checks that it is the bin of `first_key`, the first key of the block.
    ///
    /// # Errors
    /// `Corrupt` if it is not: index and block do not belong together.
    pub(crate) fn check(self, first_key: &[u8]) -> Result<()> {
        let found = self.bits.bin_of(first_key);
        if found == self.bin {
            return Ok(());
        }
        Err(Error::corrupt("first bin of a block")
            .expected(format_args!("{}, as in the bin index", self.bin))
            .got(format_args!("{found}, of {} bits", self.bits.0)))
    }
}

/// The first eight bytes as a number with the same order, padded with zeros. If two such numbers differ,
/// the bytes differ in the same order.
#[inline]
#[must_use]
pub fn head_of(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; HASH_BYTES];
    for (to, from) in head.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(layout: Layout) -> u8 {
        layout.bin_bits().unwrap().get()
    }

    /// Whatever the number of bytes and the range of hashes, a page has 45 to 91 bins.
    #[test]
    fn a_page_has_about_64_bins() {
        for end in [None, Some(&[0x80][..]), Some(&[0x04]), Some(&[0, 1, 7])] {
            let share = end.map_or(1.0, |end| head_of(end) as f64 / 2f64.powi(64));
            for pages in [1.0, 3.0, 100.0, 12_345.0, 16e6] {
                let layout = Layout::bins((pages * PAYLOAD_BYTES as f64) as u64, b"", end);
                let bins = 2f64.powi(i32::from(bits(layout))) * share / pages;
                assert!((45.0..91.0).contains(&bins), "{end:?} {pages}: {bins}");
            }
        }
        assert_eq!(bits(Layout::bins(0, b"", None)), 6);
        assert_eq!(bits(Layout::bins(1 << 60, &[1], Some(&[1]))), 56, "no range at all");
    }

    #[test]
    fn bins_are_the_top_bits_and_their_first_keys_are_boundaries() {
        let bits = BinBits::new(10).unwrap();
        assert_eq!(bits.bin_of(&[0xff; 9]), bits.last());
        assert_eq!(bits.bin_of(&[0x80]), 512);
        for bin in [1, 2, 511, 512, 1023] {
            let first = bits.first_key(bin);
            let mut before = (head_of(&first) - 1).to_be_bytes().to_vec();
            before.extend([0xff; 4]);
            assert!(before < first);
            assert_eq!((bits.bin_of(&before), bits.bin_of(&first)), (bin - 1, bin));
        }
        for (byte, is_known) in [(0, true), (1, true), (56, true), (57, false), (255, false)] {
            assert_eq!(Layout::decode(byte).map(Layout::encode).ok(), is_known.then_some(byte));
        }
    }
}

//! Packs straddled blocks, and decides whether a table has them.
//!
//! The first blocks of a table are aligned to pages, compressed or not. If they show entries of more than 600
//! bytes that would fill fewer pages one after the other, uncompressed, all later blocks are straddled. The
//! entries of a table are in the order of their hashes, so the first ones are a random sample.

use super::super::fit::capacity;
use super::super::straddle::{Marks, STRADDLED_PAGES_MAX};
use super::bins::Bins;
use super::{BLOCK_ENTRIES_MAX, NewEntry, PAYLOAD_BYTES, Packer};
use crate::page::run_pages;

/// Aligned blocks that show whether straddling is worthwhile.
const SAMPLE_BLOCKS: u64 = 4;

/// The mean entry above which entries may straddle pages, bytes. Smaller ones leave little of an aligned page
/// empty, and a read of one that straddles reads a second page.
const ENTRY_BYTES_MIN: u64 = 600;

/// Straddled blocks have to take at most this many hundredths of the pages of aligned ones.
const PAGES_PERCENT_MAX: u64 = 94;

/// The fewest pages of a straddled block that ends before its longest length. A shorter one would cost more
/// in the index than the end of a page that it saves.
const PAGES_MIN: usize = 3;

/// Whether blocks are straddled, the pages of the current one, and counts of aligned blocks.
#[derive(Debug, Default)]
pub(super) struct Straddling {
    pub(super) is_on: bool,
    pub(super) marks: Marks,
    blocks: u64,
    entries: u64,
    raw_bytes: u64,
    pages: u64,
}

impl Straddling {
    /// Counts an aligned block of `raw_bytes` bytes uncompressed on `pages` pages.
    pub(super) const fn count(&mut self, entries: usize, raw_bytes: usize, pages: usize) {
        self.blocks += 1;
        self.entries += entries as u64;
        self.raw_bytes += raw_bytes as u64;
        self.pages += pages as u64;
    }

    /// Whether straddled blocks would take fewer pages than the aligned ones so far.
    const fn is_worthwhile(&self) -> bool {
        self.blocks >= SAMPLE_BLOCKS
            && self.raw_bytes > self.entries * ENTRY_BYTES_MIN
            && self.raw_bytes * 100 <= self.pages * PAYLOAD_BYTES as u64 * PAGES_PERCENT_MAX
    }
}

/// Whether a straddled block of `raw_bytes` bytes and `entries` entries leaves little of its last page empty:
/// the longer the block, the more it may leave.
fn ends_well(raw_bytes: usize, entries: usize) -> bool {
    let pages = run_pages(raw_bytes);
    let empty = capacity(pages) - raw_bytes;
    let mean = raw_bytes / entries.max(1);
    let hundredths = match pages {
        ..PAGES_MIN => return false,
        PAGES_MIN => 10,
        4 => 15,
        5 => 20,
        6 => 30,
        _ => 45,
    };
    empty * 100 <= mean * hundredths
}

impl Packer {
    /// Makes the blocks from here on straddled, if that is worthwhile and a block has just ended.
    pub(super) fn consider_straddling(&mut self) {
        let is_possible = self.bins.is_some() && self.hash_key.is_some() && !self.straddling.is_on;
        if is_possible && self.block.count() == 0 && self.straddling.is_worthwhile() {
            self.straddling.is_on = true;
            self.bins = self.bins.map(Bins::of_straddled);
            self.block.base_on_zero();
        }
    }

    /// Appends an entry to the current straddled block if there is room, and the block does not end here.
    pub(super) fn append_straddling(&mut self, entry: NewEntry<'_>) -> bool {
        let (count, raw) = (self.block.count(), self.block.raw_bytes());
        if count > 0 {
            let room =
                count < BLOCK_ENTRIES_MAX && raw + entry.bytes() <= capacity(STRADDLED_PAGES_MAX);
            if !room {
                return false;
            }
            let begins_bin = self.bins.as_ref().is_none_or(|bins| !bins.is_last_of(entry.key));
            if begins_bin && ends_well(raw, count) {
                return false;
            }
        }
        self.stage(entry);
        self.size = self.block.raw_bytes();
        self.keep(entry);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_straddle_pages_if_they_leave_much_of_aligned_pages_empty() {
        let of = |entry_bytes: usize, stored: usize| {
            let mut straddling = Straddling::default();
            for _ in 0..4 {
                let entries = PAYLOAD_BYTES / stored;
                straddling.count(entries, entries * entry_bytes, 1);
            }
            straddling.is_worthwhile()
        };
        assert!(of(1030, 1030) && of(700, 700) && of(2500, 2500));
        assert!(!of(256, 256), "small entries");
        assert!(!of(1017, 1017), "four on a page");
        assert!(!of(1030, 500), "compressed to half");
        let mut few = Straddling::default();
        (0..3).for_each(|_| few.count(3, 3090, 1));
        assert!(!few.is_worthwhile());
    }

    #[test]
    fn a_block_ends_where_little_of_its_last_page_is_empty() {
        let full = |pages: usize, empty: usize| capacity(pages) - empty;
        assert!(!ends_well(full(2, 0), 8) && ends_well(full(3, 90), 12));
        assert!(!ends_well(full(3, 200), 12) && ends_well(full(8, 400), 32));
    }
}

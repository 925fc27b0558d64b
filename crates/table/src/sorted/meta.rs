//! Metadata pages: the index of the blocks and the filter of one partition, together on one page.
//!
//! A point read uses both in place on the cached page: the filter says whether to continue, and the
//! index in which block. The index is separators or, in a table with bins, the bins of the pages
//! ([`Layout`]). docs/format/table.md and docs/format/bins.md have the byte tables.
//!
//! A block's *number* counts the blocks of the partition, or, in a table with bins if first pages are
//! not listed, the pages. So numbers ascend, but not always by one: [`MetaPage::after`].
//!
//! In a partition of straddled blocks ([`straddle`](super::straddle)) a bit for each page says whether a
//! block begins there.

use base::{Cursor, Error, Result, Trailer};

use super::bin_index::BinIndex;
use super::filter::{FILTER_BITS_DEFAULT, FILTER_BITS_MAX, Filter};
use super::layout::{BinBits, FirstBin, Layout};
use super::separator::{Separator, Separators, Width};
use super::straddle::{Marks, Sought};
use crate::page::{Header, PageKind, payload};

/// Length of block count, flags, first page, data pages, seed, and the lengths of index and filter,
/// bytes.
pub(super) const FIXED_BYTES: usize = 20;

/// Flag: the first page of each block is listed. Without it, each block has one page, or, in a table
/// with bins, the pages of the same bin.
pub(super) const HAS_RUNS: u16 = 1;

/// Flag, only in a table with bins: some blocks begin within a bin, and have separators.
pub(super) const HAS_SPLITS: u16 = 2;

/// Position in the flags of the bin bits, 6 bits; 0 in a sorted table.
pub(super) const BIN_BITS_SHIFT: u32 = 2;

/// Position in the flags of the bits per filter value; 0 there means 8.
pub(super) const WIDTH_SHIFT: u32 = 8;

/// Flag, only in a table with bins: the blocks are straddled.
pub(super) const IS_STRADDLED: u16 = 1 << 15;

/// A view of a metadata page.
#[derive(Clone, Copy, Debug)]
pub struct MetaPage<'a> {
    blocks: usize,
    first_page: u32,
    pages: u32,
    index: Index<'a>,
    /// The first page of each block; empty if they are not listed.
    runs: &'a [u8],
    /// Whether a block begins on each page, a bit for each; empty unless the blocks are straddled.
    starts: &'a [u8],
    filter: Filter<'a>,
    filter_bytes: usize,
}

/// The index of the blocks.
#[derive(Clone, Copy, Debug)]
enum Index<'a> {
    Separators(Separators<'a>),
    Bins(Bins<'a>),
}

/// The index of a table with bins.
#[derive(Clone, Copy, Debug)]
struct Bins<'a> {
    bits: BinBits,
    /// The first bin of each block if their first pages are listed, else of each page.
    index: BinIndex<'a>,
    /// The numbers of the blocks that begin within a bin, and their separators.
    splits: &'a [u8],
    separators: Separators<'a>,
}

impl<'a> Bins<'a> {
    /// Views `bytes` as an index of `count` bins.
    fn parse(bits: BinBits, count: usize, has_splits: bool, bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new("bin index", bytes);
        if !has_splits {
            let separators = Separators::parse(Width::Page, 0, &[])?;
            let index = BinIndex::parse(count, cursor.rest())?;
            return Ok(Self { bits, index, splits: &[], separators });
        }
        let length = usize::from(cursor.u16()?);
        let index = BinIndex::parse(count, cursor.take(length)?)?;
        let splits = usize::from(cursor.u16()?);
        let separators = splits;
        let splits = cursor.take(splits * size_of::<u16>())?;
        let separators = Separators::parse(Width::Page, separators, cursor.rest())?;
        Ok(Self { bits, index, splits, separators })
    }

    /// The block of split `split`.
    fn split(&self, split: usize) -> Option<usize> {
        let block = self.splits.get(split * size_of::<u16>()..)?.first_chunk()?;
        Some(usize::from(u16::from_le_bytes(*block)))
    }

    /// The only block that may contain the newest version of `key` at or below `at`.
    fn search(&self, key: &[u8], at: Trailer) -> Result<usize> {
        let last = self.index.search(self.bits.bin_of(key));
        let first = self.index.equal_to(last)?.start;
        // Of the blocks that begin within a bin, the last that is not after the key.
        match self.separators.search(key, at)?.checked_sub(1).and_then(|split| self.split(split)) {
            Some(split) if split > last => Err(damaged_split(split)),
            Some(split) => Ok(split.max(first)),
            None => Ok(first),
        }
    }

    /// The separator before block `block`.
    fn separator(&self, block: usize) -> Result<Separator> {
        let (splits, _) = self.splits.as_chunks();
        let split = splits.binary_search_by_key(&block, |it| usize::from(u16::from_le_bytes(*it)));
        match split {
            Ok(split) => self.separators.get(split),
            Err(_) => {
                let key = self.bits.first_key(self.index.bin(block)?);
                Ok(Separator { key, trailer: None })
            }
        }
    }
}

#[cold]
fn damaged_split(block: usize) -> Error {
    Error::corrupt("block that begins within a bin").got(format_args!("block {block}"))
}

impl<'a> MetaPage<'a> {
    /// Views a page with a verified checksum.
    ///
    /// # Errors
    /// `Corrupt` if it is no metadata page, or its parts do not fit in it.
    pub fn parse(page: &'a [u8]) -> Result<Self> {
        let header = Header::parse(page)?;
        if header.kind != PageKind::Meta || header.run_pages() != 1 {
            return Err(Error::corrupt("page kind").expected("meta").got(header.kind.name()));
        }
        Self::parse_payload(payload(page, &header)?)
    }

    /// As [`MetaPage::parse`], for the payload of a page.
    pub(crate) fn parse_payload(payload: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new("metadata page", payload);
        let (blocks, flags) = (usize::from(cursor.u16()?), cursor.u16()?);
        let (first_page, pages, seed) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let (index, filter) = (usize::from(cursor.u16()?), usize::from(cursor.u16()?));
        let width = ((flags & !IS_STRADDLED) >> WIDTH_SHIFT) as u8;
        let layout = Layout::decode((flags >> BIN_BITS_SHIFT) as u8 & 0x3f)?;
        let (has_runs, has_splits) = (flags & HAS_RUNS != 0, flags & HAS_SPLITS != 0);
        let is_straddled = flags & IS_STRADDLED != 0;
        let is_known = width <= FILTER_BITS_MAX
            && (!has_splits || (has_runs && layout != Layout::Sorted))
            && (!is_straddled || (!has_runs && layout != Layout::Sorted));
        let ends = first_page.checked_add(pages).is_some();
        if blocks == 0 || !is_known || (pages as usize) < blocks || !ends {
            return Err(Error::corrupt("metadata page")
                .expected("blocks, a page or more for each, and known flags")
                .got(format_args!(
                    "{blocks} blocks, pages {first_page} + {pages}, flags {flags:#x}"
                )));
        }
        let index = cursor.take(index)?;
        let index = match layout {
            Layout::Sorted => Index::Separators(Separators::parse(Width::Page, blocks - 1, index)?),
            Layout::Bins(bits) => {
                let count = if has_runs { blocks } else { pages as usize };
                Index::Bins(Bins::parse(bits, count, has_splits, index)?)
            }
        };
        if !has_runs && layout == Layout::Sorted && pages as usize != blocks {
            return Err(Error::corrupt("data pages of a partition").expected(blocks).got(pages));
        }
        let runs = cursor.take(if has_runs { blocks * size_of::<u32>() } else { 0 })?;
        let starts = cursor.take(if is_straddled { (pages as usize).div_ceil(8) } else { 0 })?;
        let slots = cursor.take(filter)?;
        cursor.finish()?;
        let width = if width == 0 { FILTER_BITS_DEFAULT } else { width };
        let filter = Filter::new(seed, width, slots);
        let filter_bytes = slots.len();
        Ok(Self { blocks, first_page, pages, index, runs, starts, filter, filter_bytes })
    }

    /// Checks the bin index of a partition of a table with the layout `layout`. A partition that passes
    /// answers every search, and its blocks lie one after the other.
    ///
    /// # Errors
    /// `Corrupt` if the layout differs, or the index is damaged.
    pub(crate) fn check(&self, layout: Layout) -> Result<()> {
        self.check_layout(layout)?;
        let Index::Bins(bins) = &self.index else { return Ok(()) };
        bins.index.check(bins.bits.last())?;
        let (mut blocks, mut pages, mut splits) = (0, 0, 0);
        let mut next = Some(0);
        while let Some(block) = next {
            let (first, count) = self.block_pages(block)?;
            if first != self.first_page + pages {
                return Err(Error::corrupt("first page of a block").got(first));
            }
            (blocks, pages) = (blocks + 1, pages + count);
            if bins.index.equal_to(block)?.start < block {
                if bins.split(splits) != Some(block) {
                    return Err(damaged_split(block));
                }
                bins.separators.get(splits)?;
                splits += 1;
            }
            next = self.after(block)?;
        }
        if (blocks, pages, splits) == (self.blocks, self.pages, bins.separators.count()) {
            return Ok(());
        }
        Err(Error::corrupt("blocks, pages and separators of a partition")
            .expected(format_args!("{}, {}, {splits}", self.blocks, self.pages))
            .got(format_args!("{blocks}, {pages}, {}", bins.separators.count())))
    }

    /// Checks that the page is of a table with the layout `layout`.
    ///
    /// # Errors
    /// `Corrupt` if not.
    pub(crate) fn check_layout(&self, layout: Layout) -> Result<()> {
        let found = match &self.index {
            Index::Separators(_) => Layout::Sorted,
            Index::Bins(bins) => Layout::Bins(bins.bits),
        };
        let expected = match layout {
            Layout::Bins(bits) if self.is_straddled() => Layout::Bins(bits.of_straddled()),
            layout => layout,
        };
        if found == expected {
            return Ok(());
        }
        Err(Error::corrupt("layout of a partition")
            .expected(format_args!("{expected:?}"))
            .got(format_args!("{found:?}")))
    }

    /// Number of blocks in the partition.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.blocks
    }

    /// The block after block `block`; `None` after the last. The first block is block 0.
    ///
    /// # Errors
    /// `Corrupt` if the index is damaged.
    pub fn after(&self, block: usize) -> Result<Option<usize>> {
        if self.is_straddled() {
            let next = self.start_after(block);
            return Ok((next < self.pages as usize).then_some(next));
        }
        let (next, end) = match self.repeated() {
            Some(index) => (index.equal_to(block)?.end, index.count()),
            None => (block + 1, self.blocks),
        };
        Ok((next < end).then_some(next))
    }

    /// The block before block `block`; `None` before the first.
    ///
    /// # Errors
    /// `Corrupt` if the index is damaged.
    pub(crate) fn before(&self, block: usize) -> Result<Option<usize>> {
        let Some(before) = block.checked_sub(1) else { return Ok(None) };
        if self.is_straddled() {
            return Ok(Some(self.start_of(before)));
        }
        match self.repeated() {
            Some(index) => index.equal_to(before).map(|equal| Some(equal.start)),
            None => Ok(Some(before)),
        }
    }

    /// The last block.
    ///
    /// # Errors
    /// `Corrupt` if the index is damaged.
    pub(crate) fn last(&self) -> Result<usize> {
        if self.is_straddled() {
            return Ok(self.start_of(self.pages as usize - 1));
        }
        match self.repeated() {
            Some(index) => index.equal_to(index.count() - 1).map(|equal| equal.start),
            None => Ok(self.blocks - 1),
        }
    }

    /// Whether the blocks are straddled.
    pub(crate) const fn is_straddled(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Whether a straddled block begins on page `page` of the partition.
    fn begins_on(&self, page: usize) -> bool {
        self.starts.get(page / 8).is_some_and(|byte| byte >> (page % 8) & 1 == 1)
    }

    /// The first page of the straddled block on page `page` of the partition.
    fn start_of(&self, page: usize) -> usize {
        (0..=page).rev().find(|page| self.begins_on(*page)).unwrap_or(0)
    }

    /// The page after the straddled block on page `page` of the partition.
    fn start_after(&self, page: usize) -> usize {
        let pages = self.pages as usize;
        (page + 1..pages).find(|page| self.begins_on(*page)).unwrap_or(pages)
    }

    /// The pages, first and number, that hold all versions of `key` in a partition of straddled blocks, and
    /// the bins that they have there; `None` in any other.
    ///
    /// # Errors
    /// `Corrupt` if the index is damaged.
    pub(crate) fn part(&self, key: &[u8]) -> Result<Option<(u32, u32, Sought)>> {
        let Index::Bins(Bins { bits, index, .. }) = &self.index else { return Ok(None) };
        if !self.is_straddled() {
            return Ok(None);
        }
        let bin = bits.bin_of(key);
        let last = index.search(bin);
        let mut start = last;
        if index.bin(last)? == bin {
            // The bin begins on the page before its first page, unless its block begins there.
            let first = index.equal_to(last)?.start;
            start = first.saturating_sub(1).max(self.start_of(last)).min(last);
        }
        let end = last + 1;
        let after = match end < self.pages as usize && !self.begins_on(end) {
            true => Some(index.bin(end)?),
            false => None,
        };
        let sought = Sought { bits: *bits, first: index.bin(start)?, bin, after };
        let first = self.first_page.checked_add(start as u32);
        let first = first.ok_or_else(|| Error::corrupt("first page of a partition"))?;
        Ok(Some((first, (end - start) as u32, sought)))
    }

    /// Checks that the index has the bins of the pages of block `block`, which has `marks` if it is
    /// straddled.
    ///
    /// # Errors
    /// `Corrupt` if not.
    pub(crate) fn check_marks(&self, block: usize, marks: Option<&Marks>) -> Result<()> {
        if marks.is_some() != self.is_straddled() {
            return Err(Error::corrupt("pages of a partition")
                .expected(format_args!("straddled: {}", self.is_straddled()))
                .got(marks.is_some()));
        }
        let (Index::Bins(Bins { index, .. }), Some(marks)) = (&self.index, marks) else {
            return Ok(());
        };
        for (page, expected) in (block..).zip(marks.bins()) {
            let bin = index.bin(page)?;
            if bin != expected {
                return Err(Error::corrupt("bin of a straddled page, as in the bin index")
                    .expected(expected)
                    .got(bin));
            }
        }
        Ok(())
    }

    /// The bins of the pages, if these are the only list of the blocks' pages.
    const fn repeated(&self) -> Option<&BinIndex<'a>> {
        match &self.index {
            Index::Bins(bins) if self.runs.is_empty() => Some(&bins.index),
            _ => None,
        }
    }

    /// The first data page, and the number of data pages.
    #[must_use]
    pub const fn data_pages(&self) -> (u32, u32) {
        (self.first_page, self.pages)
    }

    /// Length of the filter, bytes.
    #[must_use]
    pub const fn filter_bytes(&self) -> usize {
        self.filter_bytes
    }

    /// The filter; `None` if the page has none.
    pub(crate) fn filter(&self) -> Option<Filter<'a>> {
        (self.filter_bytes > 0).then_some(self.filter)
    }

    /// False if the partition contains no key with this hash.
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The only block that may contain the newest version of `key` at or below `at`.
    ///
    /// # Errors
    /// `Corrupt` if the index is damaged.
    pub fn search(&self, key: &[u8], at: Trailer) -> Result<usize> {
        match &self.index {
            Index::Separators(separators) => separators.search(key, at),
            Index::Bins(bins) if self.is_straddled() => {
                Ok(self.start_of(bins.index.search(bins.bits.bin_of(key))))
            }
            Index::Bins(bins) => bins.search(key, at),
        }
    }

    /// The separator before block `block`; `None` before the first.
    pub(crate) fn separator(&self, block: usize) -> Result<Option<Separator>> {
        let Some(before) = block.checked_sub(1) else { return Ok(None) };
        match &self.index {
            Index::Separators(separators) => separators.get(before),
            Index::Bins(bins) => bins.separator(block),
        }
        .map(Some)
    }

    /// Checks that block `block`, with the first key `first_key`, is the one that the index describes.
    ///
    /// # Errors
    /// `Corrupt` if its first bin is not that of the index.
    pub(crate) fn check_first(&self, block: usize, first_key: &[u8]) -> Result<()> {
        self.first_bin(block)?.map_or(Ok(()), |bin| bin.check(first_key))
    }

    /// Whether the table has bins.
    pub(crate) const fn has_bins(&self) -> bool {
        matches!(self.index, Index::Bins(_))
    }

    /// The first bin of block `block`; `None` in a sorted table.
    pub(crate) fn first_bin(&self, block: usize) -> Result<Option<FirstBin>> {
        let Index::Bins(Bins { bits, index, .. }) = &self.index else { return Ok(None) };
        index.bin(block).map(|bin| Some(FirstBin { bits: *bits, bin }))
    }

    /// The first page of `block` in the file, and its number of pages.
    ///
    /// # Errors
    /// `Corrupt` if the list of pages does not ascend or leaves the partition, or `block` begins no
    /// block.
    pub fn block_pages(&self, block: usize) -> Result<(u32, u32)> {
        let damaged = || Error::corrupt("first page of a block").at(format_args!("block {block}"));
        let page = |index: usize| -> Option<u32> {
            let page = self.runs.get(index * size_of::<u32>()..)?.first_chunk()?;
            Some(u32::from_le_bytes(*page))
        };
        let (start, end) = match self.repeated() {
            Some(_) if self.is_straddled() => {
                if block >= self.pages as usize || !self.begins_on(block) {
                    return Err(damaged().expected("a page on which a block begins"));
                }
                (block as u32, self.start_after(block) as u32)
            }
            Some(index) => {
                let equal = index.equal_to(block)?;
                if equal.start != block {
                    return Err(damaged().expected(equal.start));
                }
                (equal.start as u32, equal.end as u32)
            }
            None if block >= self.blocks => {
                return Err(damaged().expected(format_args!("below {}", self.blocks)));
            }
            None if self.runs.is_empty() => (block as u32, block as u32 + 1),
            None => {
                let end = if block + 1 == self.blocks { Some(self.pages) } else { page(block + 1) };
                (page(block).ok_or_else(damaged)?, end.ok_or_else(damaged)?)
            }
        };
        match self.first_page.checked_add(start) {
            Some(first) if start < end && end <= self.pages => Ok((first, end - start)),
            _ => Err(damaged().expected(format_args!("ascending, by {}", self.pages)).got(start)),
        }
    }
}

#[cfg(test)]
mod tests;

//! Metadata pages: the separators and the filter of one partition, together on one page.
//!
//! A point read uses both in place on the cached page: the filter says whether to continue, and the
//! separators in which block. docs/format/table.md has the byte table.

use base::{Cursor, Error, Result, Trailer, invariant};

use super::filter::{FILTER_BITS_DEFAULT, FILTER_BITS_MAX, Filter, FilterBuilder, filter_bytes};
use super::separator::{Separator, Separators, SeparatorsBuilder, Width};
use crate::page::{Header, PAYLOAD_BYTES, PageKind, payload};

/// Length of block count, flags, first page, data pages, seed, and the lengths of separators and filter,
/// bytes.
const FIXED_BYTES: usize = 20;

/// Flag: some block has several pages, so the first page of each block is listed.
const HAS_RUNS: u16 = 1;

/// Position in the flags of the bits per filter value; 0 there means 8.
const WIDTH_SHIFT: u32 = 8;

/// Collects the blocks of one partition after another.
#[derive(Debug)]
pub(crate) struct MetaBuilder {
    first_page: u32,
    pages: u32,
    /// The first page of each block, relative to the partition's first page.
    blocks: Vec<u32>,
    has_runs: bool,
    separators: SeparatorsBuilder,
    hashes: Vec<u64>,
    filter: FilterBuilder,
    /// Bits of the filter's values.
    width: u8,
}

/// Sizes of an encoded metadata page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetaSize {
    pub(crate) payload_bytes: usize,
    pub(crate) filter_bytes: usize,
}

impl MetaBuilder {
    pub(crate) fn new(width: u8) -> Self {
        Self {
            width,
            first_page: 0,
            pages: 0,
            blocks: Vec::new(),
            has_runs: false,
            separators: SeparatorsBuilder::new(Width::Page),
            hashes: Vec::new(),
            filter: FilterBuilder::default(),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The page after the partition's data: that of its metadata.
    pub(crate) const fn end_page(&self) -> u32 {
        self.first_page + self.pages
    }

    /// Starts the partition whose data begins at page `first_page`.
    pub(crate) fn start(&mut self, first_page: u32) {
        (self.first_page, self.pages, self.has_runs) = (first_page, 0, false);
        self.blocks.clear();
        self.separators.clear();
        self.hashes.clear();
    }

    /// Whether another block of `pages` pages with `keys` distinct keys fits the partition's page. The
    /// first block always does.
    pub(crate) fn fits(&self, separator: &Separator, pages: usize, keys: usize) -> bool {
        let blocks = self.blocks.len() + 1;
        let runs = if self.has_runs || pages > 1 { blocks * size_of::<u32>() } else { 0 };
        let separators = self.separators.encoded_bytes_with(separator);
        let filter = filter_bytes(self.hashes.len() + keys, self.width);
        self.is_empty() || FIXED_BYTES + separators + runs + filter <= PAYLOAD_BYTES
    }

    /// Adds a block. The partition's first block has no separator here; its separator is in the top
    /// level.
    pub(crate) fn add(&mut self, separator: Option<Separator>, pages: usize, hashes: &[u64]) {
        invariant!(
            separator.is_none() == self.is_empty(),
            "every block but a partition's first has a separator"
        );
        if let Some(separator) = separator {
            self.separators.push(separator);
        }
        self.blocks.push(self.pages);
        self.pages += pages as u32;
        self.has_runs |= pages > 1;
        self.hashes.extend_from_slice(hashes);
    }

    /// Bits of the filter's values: fewer than requested only if a single block has so many keys that
    /// its filter would not fit.
    fn fitting_width(&self) -> u8 {
        let fits = |width: &u8| {
            let filter = filter_bytes(self.hashes.len(), *width);
            self.blocks.len() > 1 || FIXED_BYTES + size_of::<u32>() + filter <= PAYLOAD_BYTES
        };
        (1..=self.width).rev().find(fits).unwrap_or_default()
    }

    /// Replaces `out` with the payload of the partition's page.
    pub(crate) fn encode(&mut self, out: &mut Vec<u8>) -> Result<MetaSize> {
        invariant!(!self.is_empty(), "a partition has a block");
        let width = self.fitting_width();
        let (seed, slots) = self.filter.build(&self.hashes, width);
        let stored_width = if width == FILTER_BITS_DEFAULT { 0 } else { u16::from(width) };
        let flags = if self.has_runs { HAS_RUNS } else { 0 } | stored_width << WIDTH_SHIFT;
        out.clear();
        out.extend_from_slice(&(self.blocks.len() as u16).to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&self.first_page.to_le_bytes());
        out.extend_from_slice(&self.pages.to_le_bytes());
        out.extend_from_slice(&seed.to_le_bytes());
        out.extend_from_slice(&(self.separators.encoded_bytes() as u16).to_le_bytes());
        out.extend_from_slice(&(slots.len() as u16).to_le_bytes());
        self.separators.encode(out)?;
        if self.has_runs {
            out.extend(self.blocks.iter().flat_map(|page| page.to_le_bytes()));
        }
        out.extend_from_slice(slots);
        Ok(MetaSize { payload_bytes: out.len(), filter_bytes: slots.len() })
    }
}

// A single block always fits: its filter is bounded, and it has no separator.
const _: () = assert!(
    FIXED_BYTES
        + size_of::<u32>()
        + filter_bytes(super::block::BLOCK_ENTRIES_MAX, FILTER_BITS_DEFAULT)
        <= PAYLOAD_BYTES
);

/// A view of a metadata page.
#[derive(Clone, Copy, Debug)]
pub struct MetaPage<'a> {
    blocks: usize,
    first_page: u32,
    pages: u32,
    separators: Separators<'a>,
    /// The first page of each block; empty if block `i` is page `i`.
    runs: &'a [u8],
    filter: Filter<'a>,
    filter_bytes: usize,
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
        let mut cursor = Cursor::new("metadata page", payload(page, &header)?);
        let (blocks, flags) = (usize::from(cursor.u16()?), cursor.u16()?);
        let (first_page, pages, seed) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let (separators, filter) = (usize::from(cursor.u16()?), usize::from(cursor.u16()?));
        let (flags, width) = (flags & !(0xff << WIDTH_SHIFT), (flags >> WIDTH_SHIFT) as u8);
        let is_known = flags & !HAS_RUNS == 0 && width <= FILTER_BITS_MAX;
        let ends = first_page.checked_add(pages).is_some();
        if blocks == 0 || !is_known || (pages as usize) < blocks || !ends {
            return Err(Error::corrupt("metadata page")
                .expected("blocks, a page or more for each, and known flags")
                .got(format_args!(
                    "{blocks} blocks, pages {first_page} + {pages}, flags {flags}, a filter of {width} bits"
                )));
        }
        let separators = Separators::parse(Width::Page, blocks - 1, cursor.take(separators)?)?;
        let runs = if flags == HAS_RUNS { blocks * size_of::<u32>() } else { 0 };
        if flags == 0 && pages as usize != blocks {
            return Err(Error::corrupt("data pages of a partition").expected(blocks).got(pages));
        }
        let runs = cursor.take(runs)?;
        let slots = cursor.take(filter)?;
        cursor.finish()?;
        let width = if width == 0 { FILTER_BITS_DEFAULT } else { width };
        let filter = Filter::new(seed, width, slots);
        Ok(Self { blocks, first_page, pages, separators, runs, filter, filter_bytes: slots.len() })
    }

    /// Number of blocks in the partition.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.blocks
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

    /// False if the partition contains no key with this hash.
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The only block that may contain the newest version of `key` at or below `at`.
    ///
    /// # Errors
    /// `Corrupt` if a separator does not fit in the page.
    pub fn search(&self, key: &[u8], at: Trailer) -> Result<usize> {
        self.separators.search(key, at)
    }

    /// The separator before block `block`; `None` before the first.
    pub(crate) fn separator(&self, block: usize) -> Result<Option<Separator>> {
        block.checked_sub(1).map(|index| self.separators.get(index)).transpose()
    }

    /// The first page of `block` in the file, and its number of pages.
    ///
    /// # Errors
    /// `Corrupt` if the list of pages does not ascend or leaves the partition.
    pub fn block_pages(&self, block: usize) -> Result<(u32, u32)> {
        let damaged = || Error::corrupt("first page of a block").at(format_args!("block {block}"));
        if block >= self.blocks {
            return Err(damaged().expected(format_args!("below {}", self.blocks)));
        }
        let (start, end) = if self.runs.is_empty() {
            (block as u32, block as u32 + 1)
        } else {
            let page = |index: usize| -> Option<u32> {
                let page = self.runs.get(index * size_of::<u32>()..)?.first_chunk()?;
                Some(u32::from_le_bytes(*page))
            };
            let end = if block + 1 == self.blocks { Some(self.pages) } else { page(block + 1) };
            (page(block).ok_or_else(damaged)?, end.ok_or_else(damaged)?)
        };
        match self.first_page.checked_add(start) {
            Some(first) if start < end && end <= self.pages => Ok((first, end - start)),
            _ => Err(damaged().expected(format_args!("ascending, by {}", self.pages)).got(start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::seal_page;
    use base::limits::PAGE_BYTES;
    use base::{Codec, DictionaryId, EntryKind, PageSeed, Seqno, StoreId, TableId};

    fn page(builder: &mut MetaBuilder) -> Box<[u8; PAGE_BYTES]> {
        let mut content = Vec::new();
        builder.encode(&mut content).unwrap();
        let header = Header {
            kind: PageKind::Meta,
            codec: Codec::None,
            number: 0,
            dictionary: DictionaryId(0),
            payload_bytes: content.len() as u32,
            raw_bytes: content.len() as u32,
        };
        let mut page = Box::new([0; PAGE_BYTES]);
        seal_page(&mut page, PageSeed::new(StoreId(1), TableId(1)), 0, &header, &content);
        page
    }

    fn partition(width: u8, pages_of: impl Fn(usize) -> usize) -> MetaBuilder {
        let mut builder = MetaBuilder::new(width);
        builder.start(100);
        for block in 0..50usize {
            let key = format!("key{block:03}").into_bytes();
            let separator = Separator { key, trailer: None };
            let hashes: Vec<u64> = (0..20).map(|i| base::hash64(block as u64, &[i])).collect();
            assert!(builder.fits(&separator, pages_of(block), hashes.len()));
            builder.add((block > 0).then_some(separator), pages_of(block), &hashes);
        }
        builder
    }

    #[test]
    fn filter_separators_and_pages_are_read_in_place() {
        for (runs, width) in [(false, 8), (true, 8), (false, 12), (true, 5), (true, 0)] {
            let pages_of = |block: usize| if runs && block % 10 == 3 { 4 } else { 1 };
            let page = page(&mut partition(width, pages_of));
            let meta = MetaPage::parse(&*page).unwrap();
            let mut first = 100;
            for block in 0..50 {
                let pages = pages_of(block) as u32;
                assert_eq!(meta.block_pages(block).unwrap(), (first, pages));
                first += pages;
                let key = format!("key{block:03}x");
                let at = Trailer::new(Seqno::new(1), EntryKind::Put);
                assert_eq!(meta.search(key.as_bytes(), at).unwrap(), block);
                assert!((0..20).all(|i| meta.may_contain(base::hash64(block as u64, &[i]))));
            }
            assert_eq!(meta.data_pages(), (100, first - 100));
            assert_eq!(meta.filter_bytes(), filter_bytes(1000, width));
            assert!(meta.block_pages(50).is_err());
        }
    }

    #[test]
    fn a_block_of_many_keys_gets_the_widest_filter_that_fits() {
        let mut builder = MetaBuilder::new(FILTER_BITS_MAX);
        builder.start(0);
        let hashes: Vec<u64> = (0..2048)
            .map(|number: u64| base::hash64(1, &[number as u8, (number >> 8) as u8]))
            .collect();
        builder.add(None, 1, &hashes);
        let page = page(&mut builder);
        let meta = MetaPage::parse(&*page).unwrap();
        assert_eq!(meta.filter_bytes(), filter_bytes(2048, 15));
        assert!(hashes.iter().all(|hash| meta.may_contain(*hash)));
    }

    #[test]
    fn a_damaged_metadata_page_never_panics() {
        let clean = page(&mut partition(8, |block| 1 + block % 2));
        for at in 0..PAGE_BYTES {
            let mut page = clean.clone();
            page[at] ^= 0xff;
            let Ok(meta) = MetaPage::parse(&*page) else { continue };
            for block in 0..meta.blocks().min(60) {
                let _ = (meta.block_pages(block), meta.separator(block));
                let _ = meta.search(format!("key{block:03}").as_bytes(), Trailer::from_word(9));
            }
            let _ = meta.may_contain(7);
        }
    }
}

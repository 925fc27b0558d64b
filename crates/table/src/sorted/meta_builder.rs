//! The builder of metadata pages: collects the blocks of one partition after another.
//!
//! In a sorted table every block but a partition's first has a separator. In a table with bins
//! ([`Layout`]) the bins of the blocks are their index, and only a block that begins within a bin has a
//! separator as well.

use base::{Result, invariant, put_u16, put_u32};

use super::bin_index;
use super::filter::{FILTER_BITS_DEFAULT, Filter, FilterBuilder, filter_bytes};
use super::layout::{BinBits, Layout};
use super::meta::{BIN_BITS_SHIFT, FIXED_BYTES, HAS_RUNS, HAS_SPLITS, IS_STRADDLED, WIDTH_SHIFT};
use super::separator::{Separator, SeparatorsBuilder, Width};
use super::straddle::Marks;
use crate::page::PAYLOAD_BYTES;

/// The longest block of a table with bins that is listed by repeating its bin, pages. In a
/// partition with a longer block the first page of each block is listed instead, so that the longest
/// block takes no more of its metadata page than others.
const REPEATED_PAGES_MAX: usize = 16;

/// Collects the blocks of one partition after another.
#[derive(Debug)]
pub(crate) struct MetaBuilder {
    first_page: u32,
    pages: u32,
    /// The first page of each block, relative to the partition's first page.
    blocks: Vec<u32>,
    has_runs: bool,
    separators: SeparatorsBuilder,
    bins: Option<Bins>,
    hashes: Vec<u64>,
    filter: FilterBuilder,
    /// Bits of the filter's values.
    width: u8,
}

/// The bins of a partition's blocks.
#[derive(Debug)]
struct Bins {
    bits: BinBits,
    /// The first bin of each block.
    first: Vec<u64>,
    /// The numbers of the blocks that begin within a bin: those with separators.
    splits: Vec<u16>,
    /// Whether the first page of each block is listed.
    is_listed: bool,
    /// The bin of each page, if the blocks are straddled; otherwise none.
    pages: Vec<u64>,
}

/// Sizes of an encoded metadata page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetaSize {
    pub(crate) payload_bytes: usize,
    pub(crate) filter_bytes: usize,
}

/// The block that is to be added next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextBlock<'a> {
    /// Its first key.
    pub(crate) first_key: &'a [u8],
    /// Number of its pages.
    pub(crate) pages: usize,
    /// The hash of each distinct key.
    pub(crate) hashes: &'a [u64],
    /// The pages of a straddled block.
    pub(crate) marks: Option<&'a Marks>,
}

impl Bins {
    /// The bits of the partition's bins.
    fn own_bits(&self) -> BinBits {
        if self.is_straddled() { self.bits.of_straddled() } else { self.bits }
    }

    /// Whether the blocks are straddled.
    const fn is_straddled(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Length of the index of straddled blocks, and of the bits for their first pages, bytes.
    fn straddled_bytes(&self, more: usize, last: u64) -> usize {
        let (first, count) = (self.pages.first().copied(), self.pages.len() + more);
        let last = last.saturating_sub(first.unwrap_or(last));
        bin_index::encoded_bytes(count, last) + count.div_ceil(8)
    }

    /// Whether a block with the first bin `bin` begins within the last block's bin.
    fn is_split(&self, bin: u64) -> bool {
        self.first.last() == Some(&bin)
    }
}

impl MetaBuilder {
    pub(crate) fn new(width: u8, layout: Layout) -> Self {
        let bins = layout.bin_bits().map(|bits| Bins {
            bits,
            first: Vec::new(),
            splits: Vec::new(),
            is_listed: false,
            pages: Vec::new(),
        });
        Self {
            width,
            first_page: 0,
            pages: 0,
            blocks: Vec::new(),
            has_runs: false,
            separators: SeparatorsBuilder::new(Width::Page),
            bins,
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

    /// Starts the partition with data from page `first_page`.
    pub(crate) fn start(&mut self, first_page: u32) {
        (self.first_page, self.pages, self.has_runs) = (first_page, 0, false);
        self.blocks.clear();
        self.separators.clear();
        self.hashes.clear();
        if let Some(bins) = &mut self.bins {
            bins.first.clear();
            bins.splits.clear();
            bins.pages.clear();
            bins.is_listed = false;
        }
    }

    /// Whether a block with the first key `first_key` may follow: in a table with bins its bin either
    /// begins there, or fills the last block, which ends with `last_key`.
    pub(crate) fn may_follow(&self, last_key: &[u8], first_key: &[u8]) -> bool {
        self.bins.as_ref().filter(|bins| !bins.first.is_empty()).is_none_or(|bins| {
            let bits = bins.own_bits();
            let bin = bits.bin_of(first_key);
            bits.bin_of(last_key) < bin || bins.is_split(bin)
        })
    }

    /// Whether `next` fits the partition's page, with `separator` between it and the last block. The
    /// first block always does.
    pub(crate) fn fits(&self, separator: &Separator, next: NextBlock<'_>) -> bool {
        let filter = filter_bytes(self.hashes.len() + next.hashes.len(), self.width);
        self.is_empty()
            || self.may_hold(next)
                && FIXED_BYTES + self.index_bytes_with(separator, next) + filter <= PAYLOAD_BYTES
    }

    /// Whether `next` is of the form of the partition's blocks: straddled blocks have partitions of their
    /// own, and those begin where bins do.
    pub(crate) fn may_hold(&self, next: NextBlock<'_>) -> bool {
        let Some(bins) = &self.bins else { return true };
        match next.marks {
            None => !bins.is_straddled(),
            Some(_) => {
                bins.is_straddled() && !bins.is_split(bins.own_bits().bin_of(next.first_key))
            }
        }
    }

    /// Length of the index and the list of first pages, with `next`, bytes.
    fn index_bytes_with(&self, separator: &Separator, next: NextBlock<'_>) -> usize {
        let blocks = self.blocks.len() + 1;
        let listed = blocks * size_of::<u32>();
        let Some(bins) = &self.bins else {
            let runs = if self.has_runs || next.pages > 1 { listed } else { 0 };
            return self.separators.encoded_bytes_with(separator) + runs;
        };
        if let Some(marks) = next.marks {
            return bins.straddled_bytes(next.pages, marks.bins().last().unwrap_or_default());
        }
        let bin = bins.bits.bin_of(next.first_key);
        let last = bin - bins.first.first().copied().unwrap_or(bin).min(bin);
        let is_split = bins.is_split(bin);
        let is_listed = bins.is_listed || is_split || next.pages > REPEATED_PAGES_MAX;
        if !is_listed {
            return bin_index::encoded_bytes(self.pages as usize + next.pages, last);
        }
        let separators = match is_split {
            true => self.separators.encoded_bytes_with(separator),
            false => self.separators.encoded_bytes(),
        };
        let splits = bins.splits.len() + usize::from(is_split);
        let splits = if splits > 0 { 2 * size_of::<u16>() + splits * size_of::<u16>() } else { 0 };
        bin_index::encoded_bytes(blocks, last) + splits + separators + listed
    }

    /// Adds a block. `separator` is between it and the last block; the partition's first block has none
    /// here, because its separator is in the top level.
    pub(crate) fn add(&mut self, separator: Option<Separator>, next: NextBlock<'_>) {
        invariant!(
            separator.is_none() == self.is_empty(),
            "every block but a partition's first has a separator"
        );
        let mut separator = separator;
        if let Some(bins) = &mut self.bins {
            bins.pages.extend(next.marks.into_iter().flat_map(Marks::bins));
            let bin = bins.own_bits().bin_of(next.first_key);
            if bins.is_split(bin) {
                bins.splits.push(self.blocks.len() as u16);
                bins.is_listed = true;
            } else {
                separator = None;
            }
            bins.is_listed |= next.pages > REPEATED_PAGES_MAX && next.marks.is_none();
            bins.first.push(bin);
            invariant!(
                !bins.is_straddled() || !bins.is_listed,
                "a partition of straddled blocks has no others, and no parts of bins"
            );
        }
        if let Some(separator) = separator {
            self.separators.push(separator);
        }
        invariant!(
            next.pages > 0 && self.blocks.last().is_none_or(|last| *last < self.pages),
            "the blocks of a partition begin at ascending pages"
        );
        self.blocks.push(self.pages);
        self.pages += next.pages as u32;
        self.has_runs |= next.pages > 1;
        if self.width > 0 {
            self.hashes.extend_from_slice(next.hashes);
        }
    }

    /// Bits of the filter's values: fewer than requested only if a single block has so many keys that
    /// its filter would not fit.
    fn fitting_width(&self) -> u8 {
        let fits = |width: &u8| {
            let filter = filter_bytes(self.hashes.len(), *width);
            let index = match &self.bins {
                Some(bins) if bins.is_straddled() => {
                    bins.straddled_bytes(0, bins.pages.last().copied().unwrap_or_default())
                }
                bins => single_bytes_max(bins.is_some()),
            };
            self.blocks.len() > 1 || FIXED_BYTES + index + filter <= PAYLOAD_BYTES
        };
        (1..=self.width).rev().find(fits).unwrap_or_default()
    }

    /// Replaces `out` with the payload of the partition's page.
    pub(crate) fn encode(&mut self, out: &mut Vec<u8>) -> Result<MetaSize> {
        invariant!(!self.is_empty(), "a partition has a block");
        let width = self.fitting_width();
        let stored_width = if width == FILTER_BITS_DEFAULT { 0 } else { u16::from(width) };
        let is_listed = self.bins.as_ref().map_or(self.has_runs, |bins| bins.is_listed);
        let mut flags = if is_listed { HAS_RUNS } else { 0 } | stored_width << WIDTH_SHIFT;
        if let Some(bins) = &self.bins {
            flags |= u16::from(bins.own_bits().get()) << BIN_BITS_SHIFT;
            flags |= if bins.splits.is_empty() { 0 } else { HAS_SPLITS };
            flags |= if bins.is_straddled() { IS_STRADDLED } else { 0 };
        }
        let (seed, slots) = self.filter.build(&self.hashes, width);
        out.clear();
        put_u16(out, self.blocks.len() as u16);
        put_u16(out, flags);
        put_u32(out, self.first_page);
        put_u32(out, self.pages);
        put_u32(out, seed);
        let lengths = out.len();
        put_u16(out, 0);
        put_u16(out, slots.len() as u16);
        let start = out.len();
        match &self.bins {
            None => self.separators.encode(out)?,
            Some(bins) if bins.is_straddled() => bin_index::encode(&bins.pages, out)?,
            Some(bins) => encode_bins(bins, &self.blocks, self.pages, &self.separators, out)?,
        }
        invariant!(
            out.len() - start <= usize::from(u16::MAX)
                && self.blocks.len() <= usize::from(u16::MAX),
            "the counts of a metadata page fit their fields"
        );
        debug_assert!(
            width == 0 || {
                let filter = Filter::new(seed, width, slots);
                self.hashes.iter().all(|hash| filter.may_contain(*hash))
            },
            "a filter admits every key of its partition"
        );
        let index = ((out.len() - start) as u16).to_le_bytes();
        if let Some(length) = out.get_mut(lengths..).and_then(<[u8]>::first_chunk_mut) {
            *length = index;
        }
        if is_listed {
            out.extend(self.blocks.iter().flat_map(|page| page.to_le_bytes()));
        }
        if let Some(bins) = self.bins.as_ref().filter(|bins| bins.is_straddled()) {
            let starts = out.len();
            out.resize(starts + bins.pages.len().div_ceil(8), 0);
            for page in &self.blocks {
                if let Some(byte) = out.get_mut(starts + *page as usize / 8) {
                    *byte |= 1 << (page % 8);
                }
            }
        }
        out.extend_from_slice(slots);
        Ok(MetaSize { payload_bytes: out.len(), filter_bytes: slots.len() })
    }
}

/// Appends the index of blocks with the first pages `blocks`, of `pages` pages in all.
fn encode_bins(
    bins: &Bins,
    blocks: &[u32],
    pages: u32,
    separators: &SeparatorsBuilder,
    out: &mut Vec<u8>,
) -> Result<()> {
    let Bins { first, splits, is_listed, .. } = bins;
    if !is_listed {
        let ends = blocks.iter().copied().skip(1).chain([pages]);
        let each = first.iter().zip(blocks.iter().zip(ends));
        let repeated = each.flat_map(|(bin, (page, end))| (*page..end).map(|_| *bin));
        return bin_index::encode(&repeated.collect::<Vec<_>>(), out);
    }
    if splits.is_empty() {
        return bin_index::encode(first, out);
    }
    let start = out.len();
    put_u16(out, 0);
    bin_index::encode(first, out)?;
    let length = ((out.len() - start - size_of::<u16>()) as u16).to_le_bytes();
    if let Some(stored) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
        *stored = length;
    }
    put_u16(out, splits.len() as u16);
    splits.iter().for_each(|block| put_u16(out, *block));
    separators.encode(out)
}

/// Most bytes of the index and the first page of a single block.
const fn single_bytes_max(has_bins: bool) -> usize {
    // With bins: an index of one bin and its page, or of a bin that is repeated for each page.
    size_of::<u32>() + if has_bins { bin_index::FIXED_BYTES + 2 } else { 0 }
}

const _: () = assert!(REPEATED_PAGES_MAX <= 16, "two bytes of high bits");

// A single block always fits: its filter is bounded, and it has no separator.
const _: () = assert!(
    FIXED_BYTES
        + single_bytes_max(true)
        + filter_bytes(super::block::BLOCK_ENTRIES_MAX, FILTER_BITS_DEFAULT)
        <= PAYLOAD_BYTES
);

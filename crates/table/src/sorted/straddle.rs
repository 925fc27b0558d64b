//! Straddled blocks: entries of a hashed keyspace that lie over the ends of their pages.
//!
//! Entries of a quarter of a page, one after the other on aligned pages, leave a quarter of each page empty.
//! A straddled block is a run of up to eight pages that entries fill to the end. The index has a bin for each
//! page, and a page states where its first entry begins, so a lookup reads the pages of one bin: one page, or
//! two if the entry lies on both. Cursors read whole blocks, as they do elsewhere.
//!
//! The page before a page's first entry may hold the start of a bin that the page continues: the bin of a
//! page is that of the entry with the page's first byte. docs/format/bins.md has the byte table.

use std::ops::Range;

use base::{Error, HashKey, Result, Trailer, broken_invariant};

use super::block::{Block, BlockEntry};
use super::layout::{BinBits, head_of};
use crate::page::{Header, NO_ENTRY, PAYLOAD_BYTES, Straddle, payload, run_pages};

/// The longest straddled block of several entries, pages. A merge reads at least as many at once.
pub(crate) const STRADDLED_PAGES_MAX: usize = 8;

/// The description of one page of a straddled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Offset in the page's payload of the first entry that begins there, or [`NO_ENTRY`].
    first: u16,
    /// The bin of the entry with the page's first byte; of the last entry on a page after all entries.
    pub(crate) bin: u64,
    /// The last 16 bits of that entry's hash.
    hash: u16,
}

/// The descriptions of the pages of a straddled block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pages: Vec<Mark>,
    /// The mark of a page without an entry, after the last one.
    after: Option<Mark>,
    /// Length of the entries, bytes.
    entries_bytes: usize,
}

impl Marks {
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        (self.after, self.entries_bytes) = (None, 0);
    }

    /// Adds the entry at `range` of the block, with the key `key` in `bin`. Entries are adjacent.
    pub(crate) fn add(&mut self, range: Range<usize>, bin: u64, key: &[u8]) {
        let mark = Mark { first: NO_ENTRY, bin, hash: head_of(key) as u16 };
        self.pages.resize(self.pages.len().max(range.end.div_ceil(PAYLOAD_BYTES)), mark);
        let begins = self.pages.get_mut(range.start / PAYLOAD_BYTES);
        if let Some(page) = begins.filter(|page| page.first == NO_ENTRY) {
            page.first = (range.start % PAYLOAD_BYTES) as u16;
        }
        (self.after, self.entries_bytes) = (Some(mark), range.end);
    }

    /// Ends the block, which has `bytes` bytes with the part after its entries.
    pub(crate) fn end(&mut self, bytes: usize) {
        if let Some(after) = self.after {
            self.pages.resize(self.pages.len().max(run_pages(bytes)), after);
        }
    }

    /// The bin of each page.
    pub(crate) fn bins(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().map(|page| page.bin)
    }

    /// The header fields of page `number`.
    pub(crate) fn straddle(&self, number: usize) -> Result<Straddle> {
        let mark = self.pages.get(number);
        let Mark { first, bin, hash } =
            mark.ok_or_else(|| broken_invariant!("a straddled block describes each of its pages"))?;
        let entries_bytes = self.entries_bytes as u16;
        Ok(Straddle { first: *first, bin: *bin as u16, entries_bytes, hash: *hash })
    }

    /// Checks that `pages`, all pages of the block, have these marks.
    ///
    /// # Errors
    /// `Corrupt` if not.
    pub(crate) fn check<'a>(&self, pages: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        for (number, page) in pages.enumerate() {
            let (found, expected) = (Header::parse(page)?.straddle, self.straddle(number)?);
            if found != Some(expected) {
                return Err(Error::corrupt("marks of a straddled page")
                    .expected(format_args!("{expected:?}"))
                    .got(format_args!("{found:?}")));
            }
        }
        Ok(())
    }
}

/// The part of a straddled block that a lookup reads, according to the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sought {
    pub(crate) bits: BinBits,
    /// The bin of the part's first page.
    pub(crate) first: u64,
    /// The bin of the key, and of all pages of the part but the first.
    pub(crate) bin: u64,
    /// The bin of the page after the part, if the block has one.
    pub(crate) after: Option<u64>,
}

/// Consecutive pages of a straddled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Offset in the joined payloads of the first entry that begins there.
    pub(crate) first: usize,
    /// Offset of the end of the entries on these pages.
    pub(crate) end: usize,
    /// Whether the last entry may end on a later page.
    pub(crate) is_cut: bool,
}

impl Part {
    /// Appends the payloads of `pages`, which were verified, to `joined`, and views them. The pages must be
    /// those that the index describes, if it is given.
    ///
    /// # Errors
    /// `Corrupt` if the pages are not adjacent pages of one straddled block, or others than described.
    pub(crate) fn join<'a>(
        pages: impl Iterator<Item = &'a [u8]>,
        sought: Option<&Sought>,
        joined: &mut Vec<u8>,
    ) -> Result<Self> {
        let (mut first, mut entry, mut entries_end) = (None, None, 0);
        for (index, page) in pages.enumerate() {
            let header = Header::parse(page)?;
            let Some(straddle) = header.straddle else {
                return Err(Error::corrupt("page kind")
                    .expected("a straddled page")
                    .got(header.kind.name()));
            };
            let expected = first.get_or_insert((header, straddle.entries_bytes));
            let number = usize::from(expected.0.number) + index;
            let is_next = usize::from(header.number) == number
                && header.payload_bytes == expected.0.payload_bytes
                && straddle.entries_bytes == expected.1;
            if !is_next {
                return Err(Error::corrupt("page of a straddled block")
                    .expected(format_args!("page {number} of {} bytes", expected.0.payload_bytes))
                    .got(format_args!("{header:?}")));
            }
            if let Some(sought) = sought {
                check_bin(straddle.bin, if index == 0 { sought.first } else { sought.bin })?;
            }
            if entry.is_none() && straddle.first != NO_ENTRY {
                entry = Some(joined.len() + usize::from(straddle.first));
            }
            entries_end = usize::from(straddle.entries_bytes)
                .saturating_sub(usize::from(expected.0.number) * PAYLOAD_BYTES);
            joined.extend_from_slice(payload(page, &header)?);
        }
        let end = joined.len().min(entries_end);
        Ok(Self { first: entry.unwrap_or(end).min(end), end, is_cut: entries_end > joined.len() })
    }

    /// The newest version of `key` with a trailer of at most `at` in these pages, whose payloads are
    /// `joined`.
    ///
    /// # Errors
    /// `Corrupt` if the pages are damaged, or not those of the key.
    pub(crate) fn get(
        self,
        joined: &[u8],
        (key, at): (&[u8], Trailer),
        hash_key: HashKey,
        sought: &Sought,
    ) -> Result<Option<BlockEntry>> {
        // A shorter key is in no hashed keyspace.
        let Some((hash, user)) = key.split_first_chunk() else { return Ok(None) };
        let block = Block::part(joined.get(..self.end).unwrap_or_default(), hash_key);
        let mut offset = self.first;
        while let Some((entry, other)) = self.entry(&block, offset)? {
            if other == user && entry.trailer <= at && hash_key.hash(user).to_be_bytes() == *hash {
                if entry.value().end <= self.end {
                    return Ok(Some(entry));
                }
                return Err(Error::corrupt("entry of a straddled page")
                    .expected(format_args!("its end by byte {}", self.end))
                    .got(entry.value().end));
            }
            offset = entry.value().end;
        }
        // A key that is not on the pages that a wrong index names may be on others.
        self.check(&block, hash_key, sought).map(|()| None)
    }

    /// The entry at `offset` and its key without the hash; `None` after the last one.
    fn entry<'a>(self, block: &Block<'a>, offset: usize) -> Result<Option<(BlockEntry, &'a [u8])>> {
        if offset < self.end { block.part_entry(offset, self.is_cut) } else { Ok(None) }
    }

    /// Checks that the entries that begin on these pages are in order, and in the bins that the index states.
    fn check(self, block: &Block<'_>, hash_key: HashKey, sought: &Sought) -> Result<()> {
        let (mut offset, mut last) = (self.first, 0);
        while let Some((entry, user)) = self.entry(block, offset)? {
            offset = entry.value().end;
            let hash = hash_key.hash(user);
            let bin = sought.bits.bin_of(&hash.to_be_bytes());
            // An entry that goes on after these pages has the first byte of the next one.
            let goes_on = offset > self.end;
            let is_within = match sought.after {
                Some(after) if goes_on => bin == after,
                Some(after) => (sought.first..=after).contains(&bin),
                None => bin >= sought.first && !goes_on,
            };
            if !is_within || hash < last {
                return Err(Error::corrupt("bins of straddled pages")
                    .expected(format_args!(
                        "{} to {:?} in order, as in the bin index",
                        sought.first, sought.after
                    ))
                    .got(bin));
            }
            last = hash;
        }
        Ok(())
    }
}

/// Checks that the low bits `found` are those of the bin `expected`, which the index states.
fn check_bin(found: u16, expected: u64) -> Result<()> {
    if found == expected as u16 {
        return Ok(());
    }
    Err(Error::corrupt("bin of a straddled page")
        .expected(format_args!("{:04x}, as in the bin index", expected as u16))
        .got(format_args!("{found:04x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first entry of each page, and the entry with the page's first byte: on a page that an entry fills,
    /// on one that an entry ends with, and on one with the block's tags alone.
    #[test]
    fn marks_state_the_entries_of_each_page() {
        const PAGE: usize = PAYLOAD_BYTES;
        let mut marks = Marks::default();
        let ends = [1000, PAGE + 500, 2 * PAGE, 4 * PAGE + 100, 4 * PAGE + 200, 5 * PAGE - 9];
        let mut start = 0;
        for (number, end) in (1..).zip(ends) {
            marks.add(start..end, 10 * number, &(70_000 + number).to_be_bytes());
            start = end;
        }
        marks.end(5 * PAGE + 30);
        let straddles: Vec<_> = (0..6).map(|page| marks.straddle(page).unwrap()).collect();
        let of = |field: fn(&Straddle) -> u16| straddles.iter().map(field).collect::<Vec<_>>();
        assert_eq!(of(|it| it.first), [0, 500, 0, NO_ENTRY, 100, NO_ENTRY]);
        assert_eq!(of(|it| it.bin), [10, 20, 40, 40, 40, 60]);
        assert_eq!(of(|it| it.hash), [1, 2, 4, 4, 4, 6].map(|number| 70_000u64 as u16 + number));
        assert!(of(|it| it.entries_bytes).iter().all(|bytes| *bytes as usize == 5 * PAGE - 9));
        marks.clear();
        marks.end(9);
        assert_eq!(marks.bins().count(), 0);
    }
}

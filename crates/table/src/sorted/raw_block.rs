//! Raw blocks: blocks that a merge copies from one table to another unchanged (block passthrough).
//!
//! If no other input of a merge has a key within a block, the merge may copy the block. The block is
//! still decompressed, because its keys go into the new table's filter. The merge saves packing and
//! compressing it again, most of the cost of a rewrite.

use std::cmp::Ordering;

use base::{Codec, DictionaryId, Error, Result, Seqno, TableId, Trailer, invariant, key_hash};

use super::block::{Block, BlockPosition};
use super::step::Pages;
use super::tally::Tally;
use crate::page::{Header, payload};

/// Most pages of a block that is kept as stored. Up to this length the fixed overhead of a cursor covers
/// it; longer values gain little.
const KEPT_PAGES_MAX: u32 = 16;

/// A block as stored, with a summary of its entries. The entries are complete and in order.
#[derive(Debug, Default)]
pub struct RawBlock {
    stored: StoredBlock,
    first: Vec<u8>,
    first_trailer: Option<Trailer>,
    position: BlockPosition,
    last: Vec<u8>,
    last_trailer: Option<Trailer>,
    hashes: Vec<u64>,
    tally: Tally,
}

/// A block's payload, and the header fields of its pages.
#[derive(Debug, Default)]
pub(crate) struct StoredBlock {
    payload: Vec<u8>,
    codec: Option<Codec>,
    dictionary: DictionaryId,
    raw_bytes: usize,
}

impl StoredBlock {
    /// Copies the payload of the block on `pages`, which were verified, in place of the previous one. A
    /// block that is too long is not kept.
    pub(crate) fn keep(&mut self, pages: &Pages, count: u32) -> Result<()> {
        self.payload.clear();
        self.codec = None;
        if count > KEPT_PAGES_MAX {
            return Ok(());
        }
        for page in pages.iter().take(count as usize) {
            let header = Header::parse(page)?;
            self.payload.extend_from_slice(payload(page, &header)?);
            self.codec = Some(header.codec);
            self.dictionary = header.dictionary;
            self.raw_bytes = header.raw_bytes as usize;
        }
        Ok(())
    }
}

impl RawBlock {
    pub(crate) const fn stored(&mut self) -> &mut StoredBlock {
        &mut self.stored
    }

    /// Whether a block is kept.
    pub(crate) const fn is_kept(&self) -> bool {
        self.stored.codec.is_some()
    }

    /// Summarises the entries of `block`, the decompressed form of the kept block.
    pub(crate) fn summarise(&mut self, block: Block<'_>) -> Result<()> {
        self.hashes.clear();
        let sums_entries = self.tally.sums_entries;
        self.tally = Tally { sums_entries, ..Tally::default() };
        self.last_trailer = None;
        self.position.first(block)?;
        while let Some(entry) = self.position.entry() {
            let (key, trailer, value) = (self.position.key(), entry.trailer, block.value(entry));
            let order = match self.last_trailer {
                None => {
                    self.first.clear();
                    self.first.extend_from_slice(key);
                    self.first_trailer = Some(trailer);
                    Ordering::Greater
                }
                Some(last) => key.cmp(&self.last).then_with(|| last.cmp(&trailer)),
            };
            if order != Ordering::Greater {
                return Err(Error::corrupt("order of versions")
                    .expected("each after the one before")
                    .got(format_args!("{trailer:?} of `{}`", key.escape_ascii())));
            }
            let new_key = self.last_trailer.is_none() || key != self.last.as_slice();
            let counted = self.tally.add_value(trailer.kind()?, value);
            counted.map_err(|error| Error::corrupt("version").got(error))?;
            self.tally.add(key, trailer, value, new_key);
            if new_key {
                self.hashes.push(key_hash(key));
                self.last.clear();
                self.last.extend_from_slice(key);
            }
            self.last_trailer = Some(trailer);
            self.position.next(block)?;
        }
        invariant!(
            self.tally.entries == block.count() as u64
                && self.tally.keys == self.hashes.len() as u64,
            "a summary counts every entry and key of its block"
        );
        Ok(())
    }

    /// Has the following summaries sum the hashes of entries.
    pub(crate) const fn sum_entries(&mut self) {
        self.tally.sums_entries = true;
    }

    /// The payload, as stored on its pages.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.stored.payload
    }

    /// The codec of the payload.
    #[must_use]
    pub fn codec(&self) -> Codec {
        invariant!(self.is_kept(), "a raw block is read after a block was kept");
        self.stored.codec.unwrap_or(Codec::None)
    }

    /// The dictionary of the payload; 0 for none.
    #[must_use]
    pub const fn dictionary(&self) -> DictionaryId {
        self.stored.dictionary
    }

    /// Length of the decompressed payload, bytes.
    #[must_use]
    pub const fn raw_bytes(&self) -> usize {
        self.stored.raw_bytes
    }

    /// The first entry: its key, and its seqno and kind.
    #[must_use]
    pub fn first(&self) -> (&[u8], Trailer) {
        invariant!(self.first_trailer.is_some(), "a raw block is read after it was summarised");
        (&self.first, self.first_trailer.unwrap_or(Trailer::from_word(0)))
    }

    /// The last entry: its key, and its seqno and kind.
    #[must_use]
    pub fn last(&self) -> (&[u8], Trailer) {
        invariant!(self.last_trailer.is_some(), "a raw block is read after it was summarised");
        (&self.last, self.last_trailer.unwrap_or(Trailer::from_word(0)))
    }

    /// Number of versions.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.tally.entries
    }

    /// The sum of the hashes of all entries ([`entry_hash`](crate::entry_hash)); 0 if it is not counted.
    #[must_use]
    pub const fn entry_sum(&self) -> u64 {
        self.tally.entry_sum
    }

    /// Number of distinct keys: equal to the number of versions if no version shadows another.
    #[must_use]
    pub const fn keys(&self) -> u64 {
        self.tally.keys
    }

    /// Number of tombstones.
    #[must_use]
    pub const fn deletes(&self) -> u64 {
        self.tally.deletes
    }

    /// Number of merge operands.
    #[must_use]
    pub const fn merges(&self) -> u64 {
        self.tally.merges
    }

    /// The value files that the block points into.
    pub fn value_files(&self) -> impl Iterator<Item = TableId> {
        self.tally.values.keys().copied()
    }

    /// The earliest expiry of a version, Unix milliseconds; `None` if no version expires.
    #[must_use]
    pub fn earliest_expiry(&self) -> Option<u64> {
        self.tally.expiries.map(|(earliest, _)| earliest)
    }

    /// The smallest and the largest seqno.
    #[must_use]
    pub fn seqnos(&self) -> (Seqno, Seqno) {
        invariant!(self.tally.seqnos.is_some(), "a raw block has an entry");
        self.tally.seqnos.unwrap_or_default()
    }

    /// The hash of each distinct key.
    pub(crate) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    pub(super) const fn tally(&self) -> &Tally {
        &self.tally
    }
}

//! Blocks taken from one table to another whole: as stored, neither unpacked nor packed anew.
//!
//! A merge whose other inputs have no key within a block may pass it on. The block is decompressed
//! all the same, because its keys go into the new table's filter; what is saved is to pack and to
//! compress it again, most of what a rewrite costs.

use std::cmp::Ordering;

use base::{Codec, DictionaryId, Error, Result, Seqno, TableId, Trailer, key_hash};

use super::block::{Block, BlockPosition};
use super::step::Pages;
use super::tally::Tally;
use crate::page::{Header, payload};

/// The most pages of a block that is kept as stored: what a cursor holds is covered by the fixed
/// overhead, and longer values gain little.
const KEPT_PAGES_MAX: u32 = 16;

/// A block as stored, with what is known of its entries. It is whole and in order.
#[derive(Debug, Default)]
pub struct RawBlock {
    stored: Stored,
    first: Vec<u8>,
    first_trailer: Option<Trailer>,
    place: BlockPosition,
    last: Vec<u8>,
    last_trailer: Option<Trailer>,
    hashes: Vec<u64>,
    tally: Tally,
}

/// A block's payload, and what its pages say about it.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    payload: Vec<u8>,
    codec: Option<Codec>,
    dictionary: DictionaryId,
    raw_bytes: usize,
}

impl Stored {
    /// Copies the payload of the block that `pages`, which were verified, hold. Forgets the one
    /// before, also where this one is too long to be kept.
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
    pub(crate) const fn stored(&mut self) -> &mut Stored {
        &mut self.stored
    }

    /// Whether a block is kept.
    pub(crate) const fn is_kept(&self) -> bool {
        self.stored.codec.is_some()
    }

    /// Takes stock of the entries of `block`, which is the decompressed form of what is stored.
    pub(crate) fn take_stock(&mut self, block: Block<'_>) -> Result<()> {
        self.hashes.clear();
        self.tally = Tally::default();
        self.last_trailer = None;
        self.place.first(block)?;
        while let Some(entry) = self.place.entry() {
            let (key, trailer, value) = (self.place.key(), entry.trailer, block.value(entry));
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
            self.place.next(block)?;
        }
        Ok(())
    }

    /// The payload, as it lies on its pages.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.stored.payload
    }

    /// How the payload is compressed.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.stored.codec.unwrap_or(Codec::None)
    }

    /// The dictionary it needs; 0 for none.
    #[must_use]
    pub const fn dictionary(&self) -> DictionaryId {
        self.stored.dictionary
    }

    /// The bytes of the payload once decompressed.
    #[must_use]
    pub const fn raw_bytes(&self) -> usize {
        self.stored.raw_bytes
    }

    /// The first entry: its key, and its sequence number and kind.
    #[must_use]
    pub fn first(&self) -> (&[u8], Trailer) {
        (&self.first, self.first_trailer.unwrap_or(Trailer::from_word(0)))
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> (&[u8], Trailer) {
        (&self.last, self.last_trailer.unwrap_or(Trailer::from_word(0)))
    }

    /// Versions.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.tally.entries
    }

    /// Distinct keys: as many as there are versions where no version hides another.
    #[must_use]
    pub const fn keys(&self) -> u64 {
        self.tally.keys
    }

    /// Versions that delete.
    #[must_use]
    pub const fn deletes(&self) -> u64 {
        self.tally.deletes
    }

    /// Merge operands.
    #[must_use]
    pub const fn merges(&self) -> u64 {
        self.tally.merges
    }

    /// The value files it points into.
    pub fn value_files(&self) -> impl Iterator<Item = TableId> {
        self.tally.values.keys().copied()
    }

    /// When the first version that expires does, Unix milliseconds; `None` where none ever does.
    #[must_use]
    pub fn earliest_expiry(&self) -> Option<u64> {
        self.tally.expiries.map(|(earliest, _)| earliest)
    }

    /// The smallest and the largest sequence number.
    #[must_use]
    pub fn seqnos(&self) -> (Seqno, Seqno) {
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

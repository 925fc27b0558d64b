//! The packer: takes a stream of entries, and makes blocks that fill their pages.
//!
//! The packer adds entries to a block until its compressed form would no longer fit its page; the entry
//! that does not fit starts the next block. With LZ4 that takes one pass of compression
//! ([`lz4::Encoder`]). With zstd and DEFLATE the packer estimates the size, compresses, and corrects a wrong
//! estimate. A block is stored uncompressed if compression saves no page.
//!
//! In a table with bins ([`Layout`](super::Layout)) a block ends only between bins. A bin that is longer
//! than a page is a block of its own with as many pages as it takes, up to the longest block; only a
//! longer one is cut within. If aligned blocks leave much of their pages empty, compact blocks straddle pages
//! ([`straddling`]).
//!
//! An entry longer than the longest block is a block of its own with as many pages as it takes. If
//! memory is too short to compress it, it is stored uncompressed.

use base::{
    Account, Codec, DictionaryId, EntryKind, HashKey, Result, Trailer, broken_invariant, invariant,
    key_hash,
};

use super::block::{BLOCK_BYTES_MAX, BLOCK_ENTRIES_MAX, ENTRY_OVERHEAD_MAX};
use super::block_builder::BlockBuilder;
use super::fit::{BLOCK_PAGES_MAX, Padding, Predictor, capacity};
use super::pieces::Pieces;
use super::straddle::Marks;
use crate::codec::{Compressor, lz4};
use crate::page::{PAYLOAD_BYTES, run_pages};
use batched::Batched;
use bins::Bins;
use straddling::Straddling;

/// Bytes that an entry usually takes besides its value and the suffix of its key.
const ENTRY_OVERHEAD_USUAL: usize = 6;

/// Free bytes on a page that justify another compression.
const WORTH_BYTES: usize = PAYLOAD_BYTES / 50;

/// A block that is ready to be written.
#[derive(Debug)]
pub(crate) struct PackedBlock<'a> {
    pub(crate) payload: Pieces<'a>,
    pub(crate) codec: Codec,
    pub(crate) dictionary: DictionaryId,
    pub(crate) raw_bytes: usize,
    pub(crate) first_key: &'a [u8],
    pub(crate) last: (&'a [u8], Trailer),
    /// The hash of each distinct key.
    pub(crate) hashes: &'a [u64],
    /// The pages of a straddled block.
    pub(crate) marks: Option<&'a Marks>,
}

/// Receives the packed blocks.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(PackedBlock<'_>) -> Result<()>;

/// How the packer knows the size of a growing block.
enum Fit {
    /// Exactly, because it is not compressed.
    Stored,
    /// Exactly, because it is compressed as it grows.
    Lz4(lz4::Encoder),
    /// By estimate, because only whole blocks are compressed.
    Whole(Predictor, Compressor),
}

/// An entry to add.
#[derive(Clone, Copy)]
struct NewEntry<'a> {
    key: &'a [u8],
    trailer: Trailer,
    kind: EntryKind,
    value: &'a [u8],
}

impl NewEntry<'_> {
    /// An upper bound of its length in a block, bytes.
    const fn bytes(&self) -> usize {
        self.key.len() + self.value.len() + ENTRY_OVERHEAD_MAX
    }
}

/// Packs the entries of one table.
pub(crate) struct Packer {
    fit: Fit,
    block: BlockBuilder,
    /// Number of pages that the current block may fill.
    pages: usize,
    /// Size of the current block, if it is known exactly.
    size: usize,
    first_key: Vec<u8>,
    last_trailer: Trailer,
    hashes: Vec<u64>,
    /// The whole block with its tail, for codecs that compress only whole blocks.
    raw: Vec<u8>,
    /// The part after the entries.
    tail: Vec<u8>,
    payload: Vec<u8>,
    /// For [`Fit::Whole`]: the block's length when it was last compressed, and the compressed length.
    measured: (usize, usize),
    /// Whether `payload` is the compressed form of the current block.
    compressed: bool,
    padding: Padding,
    /// The engine that compresses blocks, if the packer does not. The packer then fits blocks by their
    /// length in LZ4.
    batched: Option<Box<Batched>>,
    /// Where blocks may end, if not everywhere.
    bins: Option<Bins>,
    straddling: Straddling,
    /// The hash key of the keyspace, if its blocks are compact.
    hash_key: Option<HashKey>,
    compressions: u64,
    /// Charged for a long entry while it is compressed.
    account: Account,
}

impl Packer {
    pub(crate) fn stored(account: &Account) -> Self {
        Self::with(Fit::Stored, account)
    }

    pub(crate) fn lz4(account: &Account) -> Self {
        Self::with(Fit::Lz4(lz4::Encoder::new()), account)
    }

    pub(crate) fn whole(compressor: Compressor, account: &Account) -> Self {
        Self::with(Fit::Whole(Predictor::new(), compressor), account)
    }

    fn with(fit: Fit, account: &Account) -> Self {
        let mut packer = Self {
            fit,
            block: BlockBuilder::default(),
            pages: 1,
            size: 0,
            first_key: Vec::new(),
            last_trailer: Trailer::from_word(0),
            hashes: Vec::new(),
            raw: Vec::new(),
            tail: Vec::new(),
            payload: Vec::new(),
            measured: (0, 0),
            compressed: false,
            padding: Padding::default(),
            batched: None,
            bins: None,
            straddling: Straddling::default(),
            hash_key: None,
            compressions: 0,
            account: account.clone(),
        };
        packer.clear();
        packer
    }

    /// Padding of the blocks emitted so far.
    pub(crate) const fn padding(&self) -> Padding {
        self.padding
    }

    /// Uncompressed length of the block being packed, bytes; 0 if there is none.
    pub(crate) fn open_bytes(&self) -> usize {
        self.block.entries().len()
    }

    /// Counts a block that was copied unchanged.
    pub(crate) fn add_copied(&mut self, payload_bytes: usize) {
        self.padding.add_copied(run_pages(payload_bytes), payload_bytes);
    }

    /// Number of compressions, corrections of wrong estimates included.
    pub(crate) const fn compressions(&self) -> u64 {
        self.compressions
    }

    /// Number of pages, approximately, of blocks that the engine has.
    pub(crate) fn pages_in_flight(&self) -> usize {
        self.batched.as_ref().map_or(0, |batched| batched.pages())
    }

    /// Adds an entry, which must be after the previous one. Emits the blocks that are full.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        emit: Emit<'_>,
    ) -> Result<()> {
        let entry = NewEntry { key, trailer, kind: trailer.kind()?, value };
        if entry.bytes() > BLOCK_BYTES_MAX {
            if let Some(kept) = self.bin_begins_at(key) {
                self.close_before(kept, emit)?;
            }
            self.finish(emit)?;
            if self.batched.is_some() {
                return self.add_alone(entry, emit);
            }
            // Its pages hold no other entry, so they need not be filled.
            let straddles = std::mem::replace(&mut self.straddling.is_on, false);
            let added = self.add_own_block(entry, emit);
            self.straddling.is_on = straddles;
            return added;
        }
        // Every close emits at least one entry, and an empty block takes any entry.
        while !self.try_append(entry)? {
            match self.bin_begins_at(entry.key) {
                Some(kept) => self.close_before(kept, emit)?,
                None => self.close(emit)?,
            }
            self.consider_straddling();
        }
        Ok(())
    }

    /// Emits the rest.
    pub(crate) fn finish(&mut self, emit: Emit<'_>) -> Result<()> {
        while self.block.count() > 0 {
            self.close(emit)?;
        }
        self.drain(emit)
    }

    fn stage(&mut self, entry: NewEntry<'_>) {
        self.block.stage(entry.key, entry.trailer.seqno(), entry.kind, entry.value);
        self.compressed = false;
    }

    fn keep(&mut self, entry: NewEntry<'_>) {
        if self.block.count() == 1 {
            self.first_key.clear();
            self.first_key.extend_from_slice(entry.key);
        }
        if self.hashes.is_empty() || entry.key != self.block.last_key() {
            self.hashes.push(key_hash(entry.key));
        }
        debug_assert!(self.hashes.len() <= self.block.count(), "an entry adds at most one key");
        if let Some(bins) = &mut self.bins {
            bins.keep(entry.key, self.block.count());
            if self.straddling.is_on {
                let range = self.block.staged_at()..self.block.entries().len();
                self.straddling.marks.add(range, bins.last(), entry.key);
            }
        }
        self.last_trailer = entry.trailer;
        self.block.keep(entry.key);
    }

    fn clear(&mut self) {
        self.block.clear();
        self.straddling.marks.clear();
        self.hashes.clear();
        self.raw.clear();
        self.raw.shrink_to(2 * BLOCK_BYTES_MAX);
        self.payload.clear();
        self.payload.shrink_to(4 * BLOCK_BYTES_MAX);
        (self.pages, self.size) = (1, 0);
        (self.measured, self.compressed) = ((0, 0), false);
        if let Fit::Lz4(encoder) = &mut self.fit {
            encoder.reset();
        }
    }

    /// Appends an entry to the current block if there is room.
    fn try_append(&mut self, entry: NewEntry<'_>) -> Result<bool> {
        if self.straddling.is_on {
            return Ok(self.append_straddling(entry));
        }
        let count = self.block.count();
        let room = count < BLOCK_ENTRIES_MAX
            && self.block.raw_bytes() + entry.bytes() <= BLOCK_BYTES_MAX
            && self.pages <= BLOCK_PAGES_MAX;
        if count > 0 && !room {
            return Ok(false);
        }
        if let Some(bins) = self.bins.filter(|_| count > 0) {
            match bins.is_one_with(entry.key) {
                // A bin is on the pages of one block, however many it takes.
                true => return Ok(self.append_to_bin(entry)),
                // A block longer than a page holds one bin only, so that a read of any other bin reads one
                // page.
                false if self.size > PAYLOAD_BYTES => return Ok(false),
                false => {}
            }
        }
        match &self.fit {
            Fit::Stored | Fit::Lz4(_) => Ok(self.append_exactly(entry)),
            Fit::Whole(..) => self.append_by_estimate(entry),
        }
    }

    fn append_exactly(&mut self, entry: NewEntry<'_>) -> bool {
        let mark = match &self.fit {
            Fit::Lz4(encoder) => encoder.mark(),
            _ => lz4::Mark::default(),
        };
        self.stage(entry);
        let raw = self.block.raw_bytes();
        let size = match &mut self.fit {
            Fit::Lz4(encoder) => {
                let entries = self.block.entries();
                encoder.advance(entries);
                let size = encoder.size(entries.len(), self.block.tail_bytes());
                self.batched.as_ref().map_or(size, |batched| batched.predict(size)).min(raw)
            }
            _ => raw,
        };
        if self.bins.is_some() {
            if self.block.count() > 1 && size > capacity(1) {
                self.drop_staged(mark);
                return false;
            }
        } else if self.block.count() == 1 {
            self.pages = run_pages(size);
            if self.pages > 1 && !self.padding.worth_filling(self.pages, size) {
                // A read of a small entry must not read several pages because the entry lies on the last
                // of them.
                self.pages = self.pages.max(BLOCK_PAGES_MAX + 1);
            }
        } else if size > capacity(self.pages) {
            if size <= capacity(BLOCK_PAGES_MAX) && self.padding.worth_filling(1, self.size) {
                self.pages = BLOCK_PAGES_MAX;
            } else {
                self.drop_staged(mark);
                return false;
            }
        }
        self.size = size;
        self.keep(entry);
        true
    }

    fn drop_staged(&mut self, mark: lz4::Mark) {
        self.block.drop_staged();
        if let Fit::Lz4(encoder) = &mut self.fit {
            encoder.rollback(mark);
        }
    }

    fn append_by_estimate(&mut self, entry: NewEntry<'_>) -> Result<bool> {
        let Fit::Whole(predictor, _) = &self.fit else {
            return Err(broken_invariant!("only sizes of whole blocks are estimated"));
        };
        let shared = self.block.unstored_bytes(entry.key);
        let bytes = entry.key.len() - shared + entry.value.len() + ENTRY_OVERHEAD_USUAL;
        let (raw_then, used_then) = self.measured;
        let since = self.block.raw_bytes() - raw_then + bytes;
        let predicted = used_then + predictor.size(since);
        let mut fits = self.block.count() == 0 || predicted <= predictor.target(self.pages);
        if !fits {
            // The block is full unless the estimate is too high: compress it to find out.
            let used = self.compress_block()?;
            self.measured = (self.block.raw_bytes(), used);
            let Fit::Whole(predictor, _) = &self.fit else {
                return Err(broken_invariant!("only sizes of whole blocks are estimated"));
            };
            let with = used + predictor.size(bytes);
            // Continuing costs a compression, which a little room does not justify.
            fits = with + WORTH_BYTES <= predictor.target(self.pages);
            if !fits
                && self.bins.is_none()
                && self.pages == 1
                && with <= predictor.target(BLOCK_PAGES_MAX)
                && self.padding.worth_filling(1, used)
            {
                (self.pages, fits) = (BLOCK_PAGES_MAX, true);
            }
        }
        if fits {
            self.stage(entry);
            self.keep(entry);
        }
        Ok(fits)
    }

    /// Compresses the current whole block, at most once. Returns its size.
    fn compress_block(&mut self) -> Result<usize> {
        if !self.compressed {
            self.assemble();
            let Fit::Whole(predictor, compressor) = &mut self.fit else {
                return Err(broken_invariant!("whole blocks have a compressor"));
            };
            if !compressor.compress(&self.raw, &mut self.payload)? {
                self.payload.extend_from_slice(&self.raw);
            }
            self.compressions += 1;
            self.compressed = true;
            predictor.learn(self.raw.len(), self.payload.len());
        }
        Ok(self.payload.len().min(self.raw.len()))
    }

    fn end_block(&mut self) {
        self.tail.clear();
        self.block.put_tail(&mut self.tail);
    }

    fn assemble(&mut self) {
        self.raw.clear();
        self.raw.extend_from_slice(self.block.entries());
        self.block.put_tail(&mut self.raw);
    }

    /// Emits the current block, or as many of its entries as fit its pages.
    fn close(&mut self, emit: Emit<'_>) -> Result<()> {
        if self.straddling.is_on {
            return self.emit(emit);
        }
        if self.batched.is_some() {
            return self.close_batched(emit);
        }
        match &mut self.fit {
            Fit::Stored => {}
            Fit::Lz4(encoder) => {
                self.tail.clear();
                self.block.put_tail(&mut self.tail);
                encoder.finish(self.block.entries(), &self.tail, &mut self.payload);
                self.compressions += 1;
            }
            Fit::Whole(..) => {
                let used = self.compress_block()?;
                let over = used > capacity(self.pages)
                    && self.block.count() > 1
                    && self.bins.as_ref().is_none_or(|bins| bins.begins_at > 0);
                if let Fit::Whole(predictor, _) = &mut self.fit {
                    predictor.learn_estimate(over);
                }
                if over {
                    return match self.bins {
                        Some(_) => self.cut_between(used, usize::MAX, emit),
                        None => self.cut(used, emit),
                    };
                }
            }
        }
        self.emit(emit)
    }

    /// Emits the current block, compressed or not, and starts the next one.
    fn emit(&mut self, emit: Emit<'_>) -> Result<()> {
        self.end_block();
        let raw_bytes = self.block.raw_bytes();
        invariant!(
            self.block.count() > 0 && !self.hashes.is_empty(),
            "a block that is emitted has an entry"
        );
        let stored = run_pages(raw_bytes);
        let (codec, dictionary) = match &self.fit {
            _ if self.payload.is_empty() || stored <= run_pages(self.payload.len()) => {
                (Codec::None, DictionaryId(0))
            }
            Fit::Stored => (Codec::None, DictionaryId(0)),
            Fit::Lz4(_) => (Codec::Lz4, DictionaryId(0)),
            Fit::Whole(_, compressor) => (compressor.codec(), compressor.dictionary_id()),
        };
        let payload = match codec {
            Codec::None => Pieces::new(self.block.entries(), &self.tail, &[]),
            _ => Pieces::from(self.payload.as_slice()),
        };
        let pages = run_pages(payload.len());
        // If memory for the codec runs out during a cut, the block is stored uncompressed, however long.
        let is_uncompressed = codec == Codec::None && matches!(self.fit, Fit::Whole(..));
        let is_bin = self.bins.as_ref().is_some_and(|bins| bins.begins_at == 0);
        let straddles = self.straddling.is_on;
        invariant!(
            self.block.count() == 1
                || pages <= BLOCK_PAGES_MAX
                || is_uncompressed
                || is_bin
                || straddles,
            "a block of several entries has at most two pages, unless it is one bin or straddled"
        );
        self.padding.add(pages, payload.len());
        match straddles {
            true => self.straddling.marks.end(payload.len()),
            false => self.straddling.count(self.block.count(), raw_bytes, pages),
        }
        emit(PackedBlock {
            payload,
            codec,
            dictionary,
            raw_bytes,
            first_key: &self.first_key,
            last: (self.block.last_key(), self.last_trailer),
            hashes: &self.hashes,
            marks: straddles.then_some(&self.straddling.marks),
        })?;
        self.clear();
        Ok(())
    }
}

mod alone;
mod batched;
mod bins;
mod cut;
mod straddling;
#[cfg(test)]
mod tests;

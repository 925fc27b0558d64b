//! Packing for an engine that compresses blocks elsewhere, several at a time.
//!
//! Where a block ends depends on its compressed size, which is known only [`LAG`] blocks later. So the packer
//! predicts it from the block's size in LZ4, which it knows exactly as the block grows: the ratio of the two
//! codecs changes less than that of the data. A block that turns out too long for its pages is packed again
//! here. The order of events depends on the entries alone, not on the engine's speed: the same entries give
//! the same blocks.
//!
//! An engine that fails costs time: the blocks that it did not give back are compressed here.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Account, Charge, Codec, DictionaryId, Result, Trailer, broken_invariant, invariant};

use super::super::block::{BLOCK_BYTES_MAX, Block, BlockPosition};
use super::super::fit::{Predictor, capacity};
use super::super::pieces::Pieces;
use super::{Emit, Fit, NewEntry, PackedBlock, Packer};
use crate::codec::{BlockEngine, BlockStream};
use crate::page::run_pages;

/// Blocks in flight.
const LAG: usize = 16;

/// Blocks that show their sizes one by one at first, before others are predicted from them.
const FIRST_BLOCKS: u64 = 4;

/// Memory of the blocks in flight, raw and compressed, bytes.
const FLIGHT_BYTES: u64 = 2 * (LAG as u64 + 1) * (BLOCK_BYTES_MAX as u64 + (4 << 10));

/// A block that the engine has.
struct Pending {
    raw: Arc<Vec<u8>>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last_trailer: Trailer,
    hashes: Vec<u64>,
    entries: usize,
    /// Pages that it may fill.
    pages: usize,
    /// Its length in LZ4, bytes.
    lz4_bytes: usize,
}

/// The blocks in flight to an engine.
pub(super) struct Batched {
    stream: Box<dyn BlockStream>,
    codec: Codec,
    /// Whether the engine failed: the rest is compressed here.
    has_failed: bool,
    /// Packs what the engine does not: long entries, and blocks that did not fit.
    local: Box<Packer>,
    pending: VecDeque<Pending>,
    /// Predicts bytes from bytes of LZ4.
    predictor: Predictor,
    learned: u64,
    _charge: Charge,
}

impl Batched {
    /// The size to expect of a block with `lz4_bytes` bytes in LZ4.
    pub(super) fn predict(&self, lz4_bytes: usize) -> usize {
        self.predictor.size_with_margin(lz4_bytes)
    }

    pub(super) fn pages(&self) -> usize {
        self.pending.iter().map(|block| block.pages.min(2)).sum()
    }

    /// Blocks that may be in flight.
    const fn lag(&self) -> usize {
        if self.learned < FIRST_BLOCKS { 0 } else { LAG }
    }

    fn submit(&mut self, block: Pending) {
        if !self.has_failed {
            self.has_failed = self.stream.submit(&block.raw).is_err();
        }
        self.pending.push_back(block);
    }

    /// The oldest block and its compressed form: `None` if the engine failed.
    fn take(&mut self) -> Option<(Pending, Option<Vec<u8>>)> {
        let block = self.pending.pop_front()?;
        let payload = if self.has_failed { None } else { self.stream.take().ok() };
        self.has_failed |= payload.is_none();
        if let Some(payload) = &payload {
            let bytes = if payload.is_empty() { block.raw.len() } else { payload.len() };
            self.predictor.learn(block.lz4_bytes, bytes);
            self.learned += 1;
        }
        Some((block, payload))
    }
}

impl Packer {
    /// Lets `engine` compress the blocks of this packer, which compresses whole blocks. Returns it unchanged
    /// if the engine cannot, or memory is short. Must be called before anything is added.
    pub(crate) fn compressing_with(
        self,
        engine: &dyn BlockEngine,
        level: i32,
        account: &Account,
    ) -> Self {
        invariant!(self.block.count() == 0, "a packer gets its engine before its first entry");
        let Fit::Whole(_, compressor) = &self.fit else { return self };
        let (codec, is_plain) = (compressor.codec(), compressor.dictionary_id() == DictionaryId(0));
        if !is_plain || self.bins.is_some() {
            return self;
        }
        let Some(charge) = account.try_charge(FLIGHT_BYTES) else { return self };
        let Some(stream) = engine.stream(codec, level, account) else { return self };
        let mut packer = Self::lz4(account);
        packer.batched = Some(Box::new(Batched {
            stream,
            codec,
            has_failed: false,
            local: Box::new(self),
            pending: VecDeque::new(),
            predictor: Predictor::new(),
            learned: 0,
            _charge: charge,
        }));
        packer
    }

    fn batched(&mut self) -> Result<Box<Batched>> {
        self.batched
            .take()
            .ok_or_else(|| broken_invariant!("a packer with an engine has blocks for it"))
    }

    /// Submits the current block, and emits blocks that are in flight for long enough.
    pub(super) fn close_batched(&mut self, emit: Emit<'_>) -> Result<()> {
        let mut batched = self.batched()?;
        let lz4_bytes = match &self.fit {
            Fit::Lz4(encoder) => encoder.size(self.block.entries().len(), self.block.tail_bytes()),
            _ => self.block.raw_bytes(),
        };
        self.assemble();
        invariant!(!self.hashes.is_empty(), "a block that is submitted has a key");
        batched.submit(Pending {
            raw: Arc::new(std::mem::take(&mut self.raw)),
            first_key: std::mem::take(&mut self.first_key),
            last_key: self.block.last_key().to_vec(),
            last_trailer: self.last_trailer,
            hashes: std::mem::take(&mut self.hashes),
            entries: self.block.count(),
            pages: self.pages,
            lz4_bytes: lz4_bytes.max(1),
        });
        self.clear();
        let lag = batched.lag();
        let emitted = self.emit_until(&mut batched, lag, emit);
        self.batched = Some(batched);
        emitted
    }

    /// Emits all blocks in flight.
    pub(super) fn drain(&mut self, emit: Emit<'_>) -> Result<()> {
        if self.batched.is_none() {
            return Ok(());
        }
        let mut batched = self.batched()?;
        let emitted = self.emit_until(&mut batched, 0, emit);
        self.batched = Some(batched);
        emitted
    }

    /// Emits a block of one long entry, which the engine does not get.
    pub(super) fn add_alone(&mut self, entry: NewEntry<'_>, emit: Emit<'_>) -> Result<()> {
        let mut batched = self.batched()?;
        let NewEntry { key, trailer, value, .. } = entry;
        let added = self.with_local(&mut batched, |local| {
            local.add(key, trailer, value, emit)?;
            local.finish(emit)
        });
        self.batched = Some(batched);
        added
    }

    fn emit_until(&mut self, batched: &mut Batched, left: usize, emit: Emit<'_>) -> Result<()> {
        while batched.pending.len() > left {
            let Some((block, payload)) = batched.take() else { return Ok(()) };
            self.emit_block(batched, &block, payload, emit)?;
        }
        Ok(())
    }

    fn emit_block(
        &mut self,
        batched: &mut Batched,
        block: &Pending,
        payload: Option<Vec<u8>>,
        emit: Emit<'_>,
    ) -> Result<()> {
        let raw = &*block.raw;
        let Some(payload) = payload else { return self.pack_again(batched, raw, emit) };
        let is_stored = payload.is_empty() || run_pages(raw.len()) <= run_pages(payload.len());
        let used = if is_stored { raw.len() } else { payload.len() };
        let is_over = block.entries > 1 && used > capacity(block.pages);
        batched.predictor.learn_estimate(is_over);
        if is_over {
            return self.pack_again(batched, raw, emit);
        }
        self.compressions += 1;
        self.padding.add(run_pages(used), used);
        let (codec, payload) = match is_stored {
            true => (Codec::None, Pieces::from(raw.as_slice())),
            false => (batched.codec, Pieces::from(payload.as_slice())),
        };
        emit(PackedBlock {
            payload,
            codec,
            dictionary: DictionaryId(0),
            raw_bytes: raw.len(),
            first_key: &block.first_key,
            last: (&block.last_key, block.last_trailer),
            hashes: &block.hashes,
            marks: None,
        })
    }

    /// Packs the entries of a block here.
    fn pack_again(&mut self, batched: &mut Batched, raw: &[u8], emit: Emit<'_>) -> Result<()> {
        self.with_local(batched, |local| {
            let block = Block::parse(raw, None)?;
            let mut position = BlockPosition::default();
            position.first(block)?;
            while let Some(entry) = position.entry() {
                local.add(position.key(), entry.trailer, block.value(entry), emit)?;
                position.next(block)?;
            }
            local.finish(emit)
        })
    }

    /// Has the packer without an engine do something, on the same padding budget.
    fn with_local<T>(
        &mut self,
        batched: &mut Batched,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let local = &mut batched.local;
        local.padding = self.padding;
        let before = local.compressions;
        let ran = run(local);
        self.padding = local.padding;
        self.compressions += local.compressions - before;
        ran
    }
}

#[cfg(test)]
mod tests;

//! Packs an entry longer than the longest block as a block of its own.

use base::{Charge, Codec, DictionaryId, Result};

use super::super::pieces::Pieces;
use super::{Emit, Fit, NewEntry, PackedBlock, Packer};
use crate::codec::lz4;
use crate::page::run_pages;

/// A longer entry is not compressed: its value is written from the caller's memory, so that a flush
/// needs no memory in proportion to the longest value.
const STREAMED_BYTES_MIN: usize = 1 << 20;

impl Packer {
    /// Emits `entry`, which is longer than the longest block, as a block of its own.
    pub(super) fn add_own_block(&mut self, entry: NewEntry<'_>, emit: Emit<'_>) -> Result<()> {
        let Some(_charge) = self.charge_alone(entry) else {
            return self.stream(entry, emit);
        };
        self.stage(entry);
        self.keep(entry);
        self.compress_alone()?;
        self.emit(emit)
    }

    /// Charges for a block of one long entry: the block, the block with its tail, and the compressed
    /// form. `None` if the entry is to be stored uncompressed, because it is too long or memory is
    /// short.
    fn charge_alone(&self, entry: NewEntry<'_>) -> Option<Charge> {
        let bytes = entry.bytes();
        let is_compressed = bytes <= STREAMED_BYTES_MIN;
        is_compressed.then(|| self.account.try_charge(4 * bytes as u64)).flatten()
    }

    /// Emits an entry as an uncompressed block of its own, without copying its value.
    fn stream(&mut self, entry: NewEntry<'_>, emit: Emit<'_>) -> Result<()> {
        let NewEntry { key, trailer, kind, value } = entry;
        self.block.stage_head(key, trailer.seqno(), kind, value.len());
        self.keep(entry);
        self.end_block();
        let payload = Pieces::new(self.block.entries(), value, &self.tail);
        self.padding.add(run_pages(payload.len()), payload.len());
        emit(PackedBlock {
            payload,
            codec: Codec::None,
            dictionary: DictionaryId(0),
            raw_bytes: payload.len(),
            first_key: &self.first_key,
            last: (self.block.last_key(), self.last_trailer),
            hashes: &self.hashes,
            marks: None,
        })?;
        self.clear();
        Ok(())
    }

    /// Compresses a block of one long entry.
    fn compress_alone(&mut self) -> Result<()> {
        if matches!(self.fit, Fit::Stored) {
            return Ok(());
        }
        self.assemble();
        match &mut self.fit {
            Fit::Stored => {}
            Fit::Lz4(_) => lz4::compress(&self.raw, &mut self.payload)?,
            // Leaves the payload empty if memory is too short: the entry is then stored uncompressed.
            Fit::Whole(_, compressor) => _ = compressor.compress(&self.raw, &mut self.payload)?,
        }
        self.compressions += 1;
        Ok(())
    }
}

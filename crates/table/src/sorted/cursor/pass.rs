//! Walks block by block, for a merge that passes blocks on as they are stored.

use base::Result;

use super::{Goal, TableCursor};
use crate::sorted::block::{Block, BlockPosition};
use crate::sorted::raw_block::RawBlock;

impl TableCursor {
    /// Whether blocks are kept as stored, for [`TableCursor::raw_block`]; copying them costs a tenth
    /// of a microsecond each. From the next block on.
    pub fn keep_stored(&mut self, keep: bool) {
        self.raw = keep.then(Box::default);
    }

    /// Whether the cursor is on the first entry of a block.
    #[must_use]
    pub const fn is_at_block_start(&self) -> bool {
        self.is_valid() && self.place.index() == 0
    }

    /// The key of the last entry of the present block, whether or not it lies inside the bounds.
    /// `None` on no entry.
    ///
    /// # Errors
    /// `Corrupt` where the block is damaged.
    pub fn last_key_of_block(&mut self) -> Result<Option<&[u8]>> {
        let (Some(loaded), true) = (&self.block, self.place.entry().is_some()) else {
            return Ok(None);
        };
        let mut place = std::mem::replace(&mut self.far, BlockPosition::new());
        let moved = place.last(Block::with_layout(&loaded.bytes, loaded.layout));
        let page = loaded.page;
        self.far = place;
        moved.map_err(|error| self.table.place(error, page))?;
        Ok(Some(self.far.key()))
    }

    /// The present block as stored, with stock taken of its entries, where the cursor is on the
    /// first of them. `None` where it is not, where the block is long (over 64 KiB as stored), was
    /// not kept ([`TableCursor::keep_stored`]), lies in part outside the bounds, or reads as of
    /// another sequence number than stored.
    ///
    /// # Errors
    /// `Corrupt` where the block is damaged in a way that its checksum did not show.
    pub fn raw_block(&mut self) -> Result<Option<&RawBlock>> {
        let (Some(loaded), Some(raw)) = (&self.block, &mut self.raw) else { return Ok(None) };
        let at_start = self.place.entry().is_some() && self.place.index() == 0;
        if !at_start || !raw.is_kept() || self.table.seqno().is_some() {
            return Ok(None);
        }
        let taken = raw.take_stock(Block::with_layout(&loaded.bytes, loaded.layout));
        taken.map_err(|error| self.table.place(error, loaded.page))?;
        Ok(Some(&**raw).filter(|raw| self.bounds.contains(raw.last().0)))
    }

    /// Starts to go to the first entry of the next block; from no entry it leads to none.
    pub fn next_block(&mut self) {
        self.start(Goal::NextBlock, true);
    }
}

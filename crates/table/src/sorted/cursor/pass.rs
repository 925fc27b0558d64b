//! Iteration block by block, for merges that copy compressed blocks unchanged (block passthrough).

use base::Result;

use super::{Goal, TableCursor};
use crate::sorted::block::Block;
use crate::sorted::raw_block::RawBlock;

impl TableCursor {
    /// Sets whether blocks are kept as stored, for [`TableCursor::raw_block`], from the next block on.
    /// The copy costs a tenth of a microsecond per block.
    pub fn keep_stored(&mut self, keep: bool) {
        self.raw = keep.then(Box::default);
    }

    /// Has the summaries of blocks that are kept sum the hashes of their entries. Call it after
    /// [`TableCursor::keep_stored`].
    pub fn sum_entries(&mut self) {
        self.raw.iter_mut().for_each(|raw| raw.sum_entries());
    }

    /// Whether the cursor is on the first entry of a block.
    #[must_use]
    pub const fn is_at_block_start(&self) -> bool {
        self.is_valid() && self.position.index() == 0
    }

    /// The current block as stored, with a summary of its entries, if the cursor is on its first entry.
    /// `None` if it is not, or if the block is long (over 64 KiB as stored), was not kept
    /// ([`TableCursor::keep_stored`]), lies partly outside the bounds, or reads at another seqno than
    /// stored.
    ///
    /// # Errors
    /// `Corrupt` if the block is damaged but its checksum matches.
    pub fn raw_block(&mut self) -> Result<Option<&RawBlock>> {
        let (Some(loaded), Some(raw)) = (&self.block, &mut self.raw) else { return Ok(None) };
        let at_start = self.position.entry().is_some() && self.position.index() == 0;
        if !at_start || !raw.is_kept() || self.table.seqno().is_some() {
            return Ok(None);
        }
        let taken = raw.summarise(Block::with_layout(&loaded.bytes, loaded.layout));
        taken.map_err(|error| self.table.locate_error(error, loaded.page))?;
        Ok(Some(&**raw).filter(|raw| self.bounds.contains(raw.last().0)))
    }

    /// Starts to move to the first entry of the next block. From no entry it stays on none.
    pub fn next_block(&mut self) {
        self.start(Goal::NextBlock, true);
    }
}

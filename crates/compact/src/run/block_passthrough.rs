//! Block passthrough: in key ranges that only one run holds, blocks are copied to the output without
//! decoding.
//!
//! Compressed blocks are retained only after the run has supplied a whole block without interruption, so a
//! merge of interleaved runs pays nothing. A copied block closes the block being packed and leaves part of a
//! page empty, so padding is allowed only after several uninterrupted blocks.

use table::{RangeDeletes, RawBlock};

/// Uninterrupted blocks of one source before its following blocks are retained as stored.
const KEPT_AFTER: u32 = 1;

/// Uninterrupted blocks of one source before a page may be left partly empty to copy a block.
const PADDED_AFTER: u32 = 4;

/// For how many blocks the same source has won the merge.
#[derive(Debug)]
pub(super) struct BlockPassthrough {
    source: usize,
    /// Whether it has won every entry since the start of its current block.
    won_whole_block: bool,
    /// Blocks before the current one that it supplied without interruption.
    blocks: u32,
}

impl BlockPassthrough {
    /// The state before the first entry.
    pub(super) const fn new() -> Self {
        Self { source: usize::MAX, won_whole_block: false, blocks: 0 }
    }

    /// Records that the next entry comes from `winner`. Returns the previous winner if it changed.
    #[inline]
    pub(super) const fn set_winner(&mut self, winner: usize) -> Option<usize> {
        if self.source == winner {
            return None;
        }
        let before = self.source;
        *self = Self { source: winner, won_whole_block: false, blocks: 0 };
        Some(before)
    }

    /// Records that the winner is on the first entry of a block.
    pub(super) fn note_block_start(&mut self) {
        if self.won_whole_block {
            self.blocks = self.blocks.saturating_add(1);
        }
        self.won_whole_block = true;
    }

    /// Whether the following blocks are retained as stored.
    pub(super) const fn keeps_stored(&self) -> bool {
        self.blocks >= KEPT_AFTER
    }

    /// Records that a block was not copied. The page that it leaves open is not padded for the next block.
    pub(super) const fn interrupt(&mut self) {
        if self.blocks > KEPT_AFTER {
            self.blocks = KEPT_AFTER;
        }
    }

    /// Whether a block may be copied if that leaves part of a page empty.
    pub(super) const fn may_pad(&self) -> bool {
        self.blocks >= PADDED_AFTER
    }
}

/// Whether every entry of `block` surely survives: each is a put, the only version of its key, not expired,
/// not under a range delete, and before `next`, the smallest key of all other sources.
pub(super) fn needs_no_decision(
    block: &RawBlock,
    next: Option<&[u8]>,
    range_deletes: &RangeDeletes,
    now_ms: u64,
) -> bool {
    let ((first, _), (last, _)) = (block.first(), block.last());
    block.deletes() == 0
        && block.merges() == 0
        && block.keys() == block.entries()
        && block.earliest_expiry().is_none_or(|expiry| expiry > now_ms)
        && next.is_none_or(|next| last < next)
        && (range_deletes.is_empty()
            || range_deletes.iter_from(first).next().is_none_or(|it| **it.start > *last))
}

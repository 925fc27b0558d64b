//! Stretches of keys that one run has alone: there, won_whole_block blocks pass into the output as they are.
//!
//! Only after some blocks of a run have gone by alone are its blocks kept as stored, and passed where
//! nothing is to be decided about their entries: so a merge of runs that mix pays nothing. A block that
//! is passed ends the one being packed, which leaves part of a page empty, so a stretch must have
//! lasted for some blocks before that is done.

use table::{RangeDeletes, RawBlock};

/// Blocks that go by alone before the following are kept as stored.
const KEPT_AFTER: u32 = 1;

/// Blocks that go by alone before a page is left partly empty to pass more.
const PADDED_AFTER: u32 = 4;

/// How long the winner of a losers has been winning.
#[derive(Debug)]
pub(super) struct BlockPassthrough {
    source: usize,
    /// Whether it has won since the beginning of its present block.
    won_whole_block: bool,
    /// The blocks before that one that it went through alone.
    blocks: u32,
}

impl BlockPassthrough {
    /// Nobody has won yet.
    pub(super) const fn new() -> Self {
        Self { source: usize::MAX, won_whole_block: false, blocks: 0 }
    }

    /// The next entry is of `winner`. The source that was alone until now, where it was another.
    #[inline]
    pub(super) const fn set_winner(&mut self, winner: usize) -> Option<usize> {
        if self.source == winner {
            return None;
        }
        let before = self.source;
        *self = Self { source: winner, won_whole_block: false, blocks: 0 };
        Some(before)
    }

    /// The winner is on the first entry of a block.
    pub(super) fn note_block_start(&mut self) {
        if self.won_whole_block {
            self.blocks = self.blocks.saturating_add(1);
        }
        self.won_whole_block = true;
    }

    /// Whether the blocks to come shall be kept as stored.
    pub(super) const fn keeps_stored(&self) -> bool {
        self.blocks >= KEPT_AFTER
    }

    /// A block could not pass: the page that it leaves open is not given up for the next one.
    pub(super) const fn interrupt(&mut self) {
        if self.blocks > KEPT_AFTER {
            self.blocks = KEPT_AFTER;
        }
    }

    /// Whether a block may pass that leaves part of a page empty.
    pub(super) const fn may_pad(&self) -> bool {
        self.blocks >= PADDED_AFTER
    }
}

/// Whether nothing is to be decided about the entries of `block`: each is the only version of its key
/// before `next`, the first key of all other sources, and says all by itself; none has expired.
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

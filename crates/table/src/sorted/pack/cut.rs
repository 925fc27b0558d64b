//! Cuts a block of zstd or DEFLATE that is longer than its pages to the entries that fit.
//!
//! The number of entries that fit is estimated in proportion to the size, because entries are usually
//! alike. If one entry is most of the block, proportional steps would be small, each with a compression;
//! so the search then continues by halving. If the entries that fit one page leave much padding, because
//! a long entry follows, the block takes two pages.

use base::{Result, broken_invariant, invariant};

use super::super::block::{Block, BlockPosition};
use super::super::fit::{BLOCK_PAGES_MAX, capacity};
use super::{Emit, Fit, NewEntry, Packer};

/// Number of proportional steps while no number of entries fits.
const IN_PROPORTION: usize = 2;

/// The search ends when the remaining interval is at most this fraction (as a divisor) of the entries
/// that fit.
const PART: usize = 16;

impl Packer {
    /// Emits as many entries of the current block, which has `used` bytes compressed, as fit its pages.
    /// The rest start the next block.
    pub(super) fn cut(&mut self, used: usize, emit: Emit<'_>) -> Result<()> {
        let whole = std::mem::take(&mut self.raw);
        let (all, mut pages) = (self.block.count(), self.pages);
        // Bounded by the pages of a block.
        let kept = loop {
            let (fits, size) = match used <= capacity(pages) {
                true => (all, used),
                false => self.search(&whole, (all, used), pages)?,
            };
            let is_full = fits > 0 && !self.padding.worth_filling(pages, size);
            if is_full || fits == all || pages >= BLOCK_PAGES_MAX {
                // A single entry takes as many pages as it needs.
                break fits.max(1);
            }
            pages += 1;
        };
        if kept != self.block.count() {
            self.compress_part(&whole, kept)?;
        }
        self.emit(emit)?;
        self.append_from(&whole, kept..usize::MAX)?;
        invariant!(kept + self.block.count() == all, "a cut keeps every entry");
        Ok(())
    }

    /// About how many of the first entries of the block `raw` fit `pages` pages, and their size; zero if
    /// the first entry alone does not fit. `over` is a number of entries that does not fit, with its
    /// size.
    fn search(
        &mut self,
        raw: &[u8],
        mut over: (usize, usize),
        pages: usize,
    ) -> Result<(usize, usize)> {
        let mut fits = (0_usize, 0);
        // Bounded: proportional steps are counted, and each later step halves the interval.
        for step in 0.. {
            let Fit::Whole(predictor, _) = &self.fit else {
                return Err(broken_invariant!("only blocks that are compressed whole are cut"));
            };
            let count = match step < IN_PROPORTION && fits.0 == 0 {
                true => over.0 * predictor.target(pages) / over.1,
                false => fits.0.midpoint(over.0),
            };
            let count = count.clamp(1, (over.0 - 1).max(1));
            let size = self.compress_part(raw, count)?;
            match size <= capacity(pages) {
                true => fits = (count, size),
                false => over = (count, size),
            }
            let is_full = fits.0 > 0 && !self.padding.worth_filling(pages, fits.1);
            if is_full || over.0 - fits.0 <= 1 + fits.0 / PART {
                break;
            }
        }
        Ok(fits)
    }

    /// Makes the first `count` entries of the block `raw` the current block, and compresses it. Returns
    /// its size.
    pub(super) fn compress_part(&mut self, raw: &[u8], count: usize) -> Result<usize> {
        self.clear();
        self.append_from(raw, 0..count)?;
        self.compress_block()
    }

    /// Appends the entries in `range` of a block.
    pub(super) fn append_from(&mut self, raw: &[u8], range: std::ops::Range<usize>) -> Result<()> {
        let block = Block::parse(raw, self.hash_key)?;
        let mut position = BlockPosition::default();
        position.first(block)?;
        for index in 0..block.count().min(range.end) {
            let Some(entry) = position.entry() else {
                return Err(broken_invariant!("a block has as many entries as it states"));
            };
            let (trailer, value) = (entry.trailer, block.value(entry));
            if index >= range.start {
                let entry = NewEntry { key: position.key(), trailer, kind: trailer.kind()?, value };
                self.stage(entry);
                self.keep(entry);
            }
            position.next(block)?;
        }
        Ok(())
    }
}

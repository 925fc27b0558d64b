//! Cutting a block of zstd that came out longer than its pages to what fits them.
//!
//! Entries that are alike fit in proportion. Where one is most of the block, steps in proportion to the whole
//! would be small ones, a compression each: then by halves. Where what fits one page leaves much of it
//! empty, because a long entry comes next, it is two pages.

use base::Result;

use super::super::block::{Block, BlockPosition};
use super::super::fit::{BLOCK_PAGES_MAX, capacity};
use super::{Added, Emit, Fit, Packer};

/// So many steps are in proportion, as long as none fits.
const IN_PROPORTION: usize = 2;

/// The search ends where so small a part of what fits is left to be found out.
const PART: usize = 16;

impl Packer {
    /// Emits as many entries of the present block, which takes `used` bytes compressed, as fit its pages; the
    /// others start the next.
    pub(super) fn cut(&mut self, used: usize, emit: Emit<'_>) -> Result<()> {
        let whole = std::mem::take(&mut self.raw);
        let (all, mut pages) = (self.block.count(), self.pages);
        // Bounded: by the pages of a block.
        let kept = loop {
            let (fits, size) = match used <= capacity(pages) {
                true => (all, used),
                false => self.search(&whole, (all, used), pages)?,
            };
            let is_full = fits > 0 && !self.padding.worth_filling(pages, size);
            if is_full || fits == all || pages >= BLOCK_PAGES_MAX {
                // One entry goes on as many pages as it takes.
                break fits.max(1);
            }
            pages += 1;
        };
        if kept != self.block.count() {
            self.compress_part(&whole, kept)?;
        }
        self.emit(emit)?;
        self.append_from(&whole, kept..usize::MAX)
    }

    /// How many of the first entries of the block `raw` fit `pages` pages, about, and their size; none where
    /// one takes more. So many as `over` says, of that size, do not.
    fn search(
        &mut self,
        raw: &[u8],
        mut over: (usize, usize),
        pages: usize,
    ) -> Result<(usize, usize)> {
        let mut fits = (0_usize, 0);
        // Bounded: steps in proportion are, and each of the others halves what is between the two.
        for step in 0.. {
            let Fit::Zstd(predictor, _) = &self.fit else { break };
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

    /// Has the first `count` entries of the block `raw` be the present block, and compresses it. Its size.
    fn compress_part(&mut self, raw: &[u8], count: usize) -> Result<usize> {
        self.clear();
        self.append_from(raw, 0..count)?;
        self.compress_block()
    }

    /// Appends the entries of a block that lie in `range`.
    fn append_from(&mut self, raw: &[u8], range: std::ops::Range<usize>) -> Result<()> {
        let block = Block::parse(raw)?;
        let mut place = BlockPosition::default();
        place.first(block)?;
        for index in 0..block.count().min(range.end) {
            let Some(entry) = place.entry() else { break };
            let (trailer, value) = (entry.trailer, block.value(entry));
            if index >= range.start {
                let added = Added { key: place.key(), trailer, kind: trailer.kind()?, value };
                self.stage(added);
                self.keep(added);
            }
            place.next(block)?;
        }
        Ok(())
    }
}

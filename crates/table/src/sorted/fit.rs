//! Page fit: the policy for how many entries go into a block so that it fills its page when compressed.
//!
//! Without compression and with LZ4 the size is known exactly while the block grows. Zstd compresses
//! only whole blocks; there a [`Predictor`] estimates the size from earlier blocks, and the packer
//! corrects the estimate.

use base::invariant;

use crate::page::PAYLOAD_BYTES;

/// Fraction of data pages that may be padding before blocks take a second page.
const PADDING_BUDGET: f64 = 0.14;

/// Most pages of a block of several entries.
pub(crate) const BLOCK_PAGES_MAX: usize = 2;

/// Payload capacity of `pages` pages, bytes.
pub(crate) const fn capacity(pages: usize) -> usize {
    pages * PAYLOAD_BYTES
}

/// Padding of the blocks so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Padding {
    pub(crate) pages: u64,
    pub(crate) bytes: u64,
    /// Padding of blocks that were copied from other tables, bytes.
    copied_bytes: u64,
}

impl Padding {
    pub(crate) fn add(&mut self, pages: usize, payload_bytes: usize) {
        invariant!(payload_bytes <= capacity(pages), "a block fits its pages");
        self.pages += pages as u64;
        self.bytes += (capacity(pages) - payload_bytes) as u64;
    }

    /// Counts a block that was copied unchanged. Its padding does not influence the packing of other
    /// blocks.
    pub(crate) fn add_copied(&mut self, pages: usize, payload_bytes: usize) {
        invariant!(payload_bytes <= capacity(pages), "a block fits its pages");
        self.copied_bytes += (capacity(pages) - payload_bytes) as u64;
    }

    /// Padding of all blocks together, bytes.
    pub(crate) const fn total_bytes(&self) -> u64 {
        self.bytes + self.copied_bytes
    }

    /// Whether a block that fills `payload_bytes` of `pages` pages, and has no room there for the next
    /// entry, should take another page.
    ///
    /// Entries of around a third of a page, or of more than half a page, leave much padding: only two
    /// fit when 2.9 would. They fit better on two pages, but a read must then read both. So a table
    /// takes second pages only as far as needed to keep its padding within the budget.
    pub(crate) fn worth_filling(self, pages: usize, payload_bytes: usize) -> bool {
        let empty = capacity(pages).saturating_sub(payload_bytes) as f64;
        let budget = |pages: u64| PADDING_BUDGET * (pages * PAYLOAD_BYTES as u64) as f64;
        let pages = pages as u64;
        empty > budget(pages) && self.bytes as f64 + empty > budget(self.pages + pages)
    }
}

/// Estimates the compressed size of a block from earlier blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predictor {
    /// Compressed bytes per raw byte.
    ratio: f64,
    /// Fraction of a page left free so that a slightly wrong estimate still fits.
    margin: f64,
}

/// Limits and step of the margin. About one estimate in twenty exceeds the page: each correct estimate
/// lowers the margin by a twentieth of the amount that a wrong one adds.
const MARGIN_MIN: f64 = 0.001;
const MARGIN_MAX: f64 = 0.06;
const MARGIN_STEP: f64 = 0.008;

impl Predictor {
    pub(crate) const fn new() -> Self {
        // Entries rarely compress better than to a third; the first block corrects the ratio.
        Self { ratio: 0.35, margin: 0.01 }
    }

    /// The estimated compressed size of a block of `raw_bytes` bytes.
    pub(crate) fn size(self, raw_bytes: usize) -> usize {
        (raw_bytes as f64 * self.ratio) as usize
    }

    /// As [`Predictor::size`], with the margin added: compare it with the pages' whole capacity.
    pub(crate) fn size_with_margin(self, raw_bytes: usize) -> usize {
        (raw_bytes as f64 * self.ratio / (1.0 - self.margin)) as usize
    }

    /// The size to aim for on `pages` pages.
    pub(crate) fn target(self, pages: usize) -> usize {
        (capacity(pages) as f64 * (1.0 - self.margin)) as usize
    }

    /// Learns that a block of `raw_bytes` bytes was compressed to `bytes` bytes.
    pub(crate) fn learn(&mut self, raw_bytes: usize, bytes: usize) {
        invariant!(raw_bytes > 0, "a block that was compressed is not empty");
        let ratio = bytes as f64 / raw_bytes as f64;
        // Neighbouring blocks are alike, so the last few count; a jump counts at once.
        let jump = (ratio - self.ratio).abs() > 0.1 * self.ratio;
        let weight = if jump { 1.0 } else { 0.25 };
        self.ratio += (ratio - self.ratio) * weight;
    }

    /// Learns whether an estimate exceeded the page.
    pub(crate) fn learn_estimate(&mut self, over: bool) {
        let step = if over { MARGIN_STEP } else { -MARGIN_STEP / 20.0 };
        self.margin = (self.margin + step).clamp(MARGIN_MIN, MARGIN_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_page_is_taken_only_to_keep_the_padding_budget() {
        let mut padding = Padding::default();
        // Small entries leave little padding: never a second page.
        assert!(!padding.worth_filling(1, capacity(1) - 300));
        // Three entries of 1060 bytes on a page: as many second pages as needed to keep the budget.
        let mut seconds = 0;
        for _ in 0..1000 {
            if padding.worth_filling(1, 3 * 1060) {
                padding.add(2, 7 * 1060);
                seconds += 1;
            } else {
                padding.add(1, 3 * 1060);
            }
        }
        let part = padding.bytes as f64 / (padding.pages * PAYLOAD_BYTES as u64) as f64;
        assert!(part <= PADDING_BUDGET + 0.001, "{part}");
        assert!((300..700).contains(&seconds), "{seconds}");
    }

    #[test]
    fn the_predictor_learns_a_jump_at_once_and_its_margin_settles() {
        let mut predictor = Predictor::new();
        predictor.learn(8000, 800);
        assert_eq!(predictor.size(1000), 100);
        for _ in 0..1000 {
            predictor.learn_estimate(false);
        }
        assert_eq!(predictor.target(1), (capacity(1) as f64 * 0.999) as usize);
        (0..100).for_each(|_| predictor.learn_estimate(true));
        assert!(predictor.target(1) >= capacity(1) * 93 / 100);
    }
}

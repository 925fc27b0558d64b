//! Page fit: how much goes in a block so that, compressed, it fills its page. Pure policy.
//!
//! With LZ4 and without compression the size is known exactly as the block grows. Zstd compresses
//! only whole blocks, so there a [`Predictor`] guesses from the blocks before, and the packer
//! corrects it.

use crate::page::PAYLOAD_BYTES;

/// The part of data pages that may be padding before blocks take a second page.
const PADDING_BUDGET: f64 = 0.14;

/// The most pages of a block of several entries.
pub(crate) const BLOCK_PAGES_MAX: usize = 2;

/// The room for payload on `pages` pages.
pub(crate) const fn capacity(pages: usize) -> usize {
    pages * PAYLOAD_BYTES
}

/// What the blocks so far left empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Padding {
    pub(crate) pages: u64,
    pub(crate) bytes: u64,
    /// In blocks that were packed elsewhere.
    passed: u64,
}

impl Padding {
    pub(crate) fn add(&mut self, pages: usize, payload_bytes: usize) {
        self.pages += pages as u64;
        self.bytes += (capacity(pages) - payload_bytes) as u64;
    }

    /// Counts a block that was packed elsewhere: what it leaves empty is no reason to pack others
    /// otherwise.
    pub(crate) fn add_passed(&mut self, pages: usize, payload_bytes: usize) {
        self.passed += (capacity(pages) - payload_bytes) as u64;
    }

    /// The bytes left empty in all.
    pub(crate) const fn total_bytes(&self) -> u64 {
        self.bytes + self.passed
    }

    /// Whether a block that fills `payload_bytes` of `pages` pages, and has no room for the next
    /// entry on them (or is otherwise done), should rather go on.
    ///
    /// Entries of around a third of a page, or more than half of one, leave much of it empty: only
    /// two fit where 2.9 would. Two pages fit them better, at the price of reading both; so a
    /// table goes on to second pages no faster than its padding would pass the budget without.
    pub(crate) fn worth_filling(self, pages: usize, payload_bytes: usize) -> bool {
        let empty = capacity(pages).saturating_sub(payload_bytes) as f64;
        let budget = |pages: u64| PADDING_BUDGET * (pages * PAYLOAD_BYTES as u64) as f64;
        let pages = pages as u64;
        empty > budget(pages) && self.bytes as f64 + empty > budget(self.pages + pages)
    }
}

/// Guesses the compressed size of a block from those before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predictor {
    /// Compressed bytes per raw byte.
    ratio: f64,
    /// The part of a page left free so that a guess that is a little off still fits.
    margin: f64,
}

/// A margin so small that about one guess in twenty is over the page: each right guess lowers it
/// by a twentieth of what a wrong one adds.
const MARGIN_MIN: f64 = 0.001;
const MARGIN_MAX: f64 = 0.06;
const MARGIN_STEP: f64 = 0.008;

impl Predictor {
    pub(crate) const fn new() -> Self {
        // Entries rarely compress better than to a third; the first block corrects it.
        Self { ratio: 0.35, margin: 0.01 }
    }

    /// The compressed size of a block of `raw_bytes`.
    pub(crate) fn size(self, raw_bytes: usize) -> usize {
        (raw_bytes as f64 * self.ratio) as usize
    }

    /// The size to aim at on `pages` pages.
    pub(crate) fn target(self, pages: usize) -> usize {
        (capacity(pages) as f64 * (1.0 - self.margin)) as usize
    }

    /// Learns that a block of `raw_bytes` took `bytes`.
    pub(crate) fn learn(&mut self, raw_bytes: usize, bytes: usize) {
        let ratio = bytes as f64 / raw_bytes as f64;
        // Neighbouring blocks are alike, so the last few count; a jump counts at once.
        let jump = (ratio - self.ratio).abs() > 0.1 * self.ratio;
        let weight = if jump { 1.0 } else { 0.25 };
        self.ratio += (ratio - self.ratio) * weight;
    }

    /// Learns whether a guess was over the page.
    pub(crate) fn guessed(&mut self, over: bool) {
        let step = if over { MARGIN_STEP } else { -MARGIN_STEP / 20.0 };
        self.margin = (self.margin + step).clamp(MARGIN_MIN, MARGIN_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_page_is_taken_only_to_keep_to_the_budget() {
        let mut padding = Padding::default();
        // Small entries leave little: never.
        assert!(!padding.worth_filling(1, capacity(1) - 300));
        // Three entries of 1060 bytes on a page: as often as needed, and the budget is kept.
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
            predictor.guessed(false);
        }
        assert_eq!(predictor.target(1), (capacity(1) as f64 * 0.999) as usize);
        (0..100).for_each(|_| predictor.guessed(true));
        assert!(predictor.target(1) >= capacity(1) * 93 / 100);
    }
}

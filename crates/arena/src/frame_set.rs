//! A set of a chunk's frames: a bit for each, taken and put by any thread.
//!
//! Concurrency: taking a frame is one atomic operation on the word it is in, putting too. Whoever
//! takes a frame sees everything done before it was put.

use crate::frame_pool::FRAMES_PER_CHUNK;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const WORDS: usize = FRAMES_PER_CHUNK.div_ceil(64);

/// Frames by their places in a chunk.
#[derive(Default)]
pub(crate) struct FrameSet([AtomicU64; WORDS]);

impl FrameSet {
    /// Takes a frame out, the lowest of a word.
    pub(crate) fn take(&self) -> Option<usize> {
        for (word, bits) in self.0.iter().enumerate() {
            let mut seen = bits.load(Relaxed);
            while seen != 0 {
                let lowest = seen & seen.wrapping_neg();
                // Acquire pairs with the release of `put`: the frame's last user is done with it.
                let before = bits.fetch_and(!lowest, Acquire);
                if before & lowest != 0 {
                    return Some(word * 64 + lowest.trailing_zeros() as usize);
                }
                seen = before;
            }
        }
        None
    }

    /// Puts the frame in `slot` in.
    pub(crate) fn insert(&self, slot: usize) {
        if let Some(bits) = self.0.get(slot / 64) {
            bits.fetch_or(1 << (slot % 64), Release);
        }
    }

    /// Puts the first `frames` frames in.
    pub(crate) fn fill(&self, frames: usize) {
        (0..frames).for_each(|slot| self.insert(slot));
    }

    /// Moves every frame from here to `other`; how many.
    pub(crate) fn move_to(&self, other: &Self) -> usize {
        let words = self.0.iter().zip(&other.0);
        let moved = words.map(|(from, to)| {
            let bits = from.swap(0, Acquire);
            to.fetch_or(bits, Release);
            bits.count_ones() as usize
        });
        moved.sum()
    }

    /// Whether the frame in `slot` is in.
    pub(crate) fn contains(&self, slot: usize) -> bool {
        self.0.get(slot / 64).is_some_and(|bits| bits.load(Relaxed) & 1 << (slot % 64) != 0)
    }

    /// How many frames are in, while nobody takes or puts any.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|bits| bits.load(Relaxed).count_ones() as usize).sum()
    }
}

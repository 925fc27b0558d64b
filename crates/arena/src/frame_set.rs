//! A set of frames of one chunk: one bit for each slot of the chunk.
//!
//! Any thread may take and insert frames. Cost: one atomic operation each, on the word with the frame's bit.
//! A thread that takes a frame sees all writes that happened before the frame was inserted.

use base::invariant;

use crate::chunk::FRAMES_PER_CHUNK;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const WORDS: usize = FRAMES_PER_CHUNK.div_ceil(64);

/// Frames by their slots in a chunk.
#[derive(Default)]
pub(crate) struct FrameSet([AtomicU64; WORDS]);

impl FrameSet {
    /// Removes and returns the lowest slot of the first word that is not empty.
    pub(crate) fn take(&self) -> Option<usize> {
        for (word, bits) in self.0.iter().enumerate() {
            let mut seen = bits.load(Relaxed);
            while seen != 0 {
                let lowest = seen & seen.wrapping_neg();
                // Acquire pairs with the release in `insert`: the last user of the frame is done with it.
                let before = bits.fetch_and(!lowest, Acquire);
                if before & lowest != 0 {
                    return Some(word * 64 + lowest.trailing_zeros() as usize);
                }
                seen = before;
            }
        }
        None
    }

    /// Inserts the frame of `slot`, which is not in the set.
    #[expect(clippy::indexing_slicing, reason = "a slot is below FRAMES_PER_CHUNK")]
    pub(crate) fn insert(&self, slot: usize) {
        let bit = 1 << (slot % 64);
        let before = self.0[slot / 64].fetch_or(bit, Release);
        invariant!(before & bit == 0, "a frame is given back once");
    }

    /// Inserts the first `frames` frames of the chunk.
    pub(crate) fn fill(&self, frames: usize) {
        (0..frames).for_each(|slot| self.insert(slot));
    }

    /// Moves all frames to `other`. Returns how many.
    pub(crate) fn move_to(&self, other: &Self) -> usize {
        let words = self.0.iter().zip(&other.0);
        let moved = words.map(|(from, to)| {
            let bits = from.swap(0, Acquire);
            let before = to.fetch_or(bits, Release);
            invariant!(before & bits == 0, "a frame is in one set of its chunk");
            bits.count_ones() as usize
        });
        moved.sum()
    }

    /// Whether the frame of `slot` is in the set.
    pub(crate) fn contains(&self, slot: usize) -> bool {
        self.0.get(slot / 64).is_some_and(|bits| bits.load(Relaxed) & 1 << (slot % 64) != 0)
    }

    /// The number of frames; exact while no other thread takes or inserts any.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|bits| bits.load(Relaxed).count_ones() as usize).sum()
    }
}

//! Attached blocks: for each frame of a chunk at most one decompressed block, made from the frame's page.
//!
//! A block is attached once and stays until the frame has one exclusive owner again. So a thread with a
//! handle of the frame may use the block in place, without a count of its own. Cost: 40 B a frame, charged
//! when the first block of a chunk is attached (I10).

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::OnceLock;

use base::{Charge, invariant};
use bytes::Bytes;

use crate::chunk::FRAMES_PER_CHUNK;
use crate::prefetch::line;

/// The blocks attached to the frames of one chunk, by slot.
pub(crate) struct AttachedBlocks {
    blocks: Box<[UnsafeCell<OnceLock<Bytes>>]>,
    _charge: Charge,
}

// SAFETY: threads with handles of a frame share its element and use it as a `OnceLock`, which is `Sync`. Only
// a thread that knows that no other handle exists changes the element through `&mut`.
unsafe impl Sync for AttachedBlocks {}

impl AttachedBlocks {
    /// The bytes of the elements, without the blocks.
    pub(crate) const BYTES: usize = FRAMES_PER_CHUNK * size_of::<OnceLock<Bytes>>();

    /// No blocks yet. `charge` covers [`AttachedBlocks::BYTES`].
    pub(crate) fn new(charge: Charge) -> Self {
        invariant!(charge.bytes() == Self::BYTES as u64, "attached blocks are charged for first");
        let blocks = (0..FRAMES_PER_CHUNK).map(|_| UnsafeCell::new(OnceLock::new()));
        Self { blocks: blocks.collect(), _charge: charge }
    }

    /// Prefetches the element of `slot`.
    #[inline]
    pub(crate) fn prefetch(&self, slot: usize) {
        if let Some(block) = self.blocks.get(slot) {
            line(NonNull::from(block).cast());
        }
    }

    /// The block attached to the frame of `slot`.
    ///
    /// # Safety
    /// The caller has a handle of the frame for as long as it uses the block.
    #[inline]
    pub(crate) unsafe fn get(&self, slot: usize) -> Option<&Bytes> {
        let block = self.blocks.get(slot)?.get();
        // SAFETY: while there is a shared handle, no thread has an exclusive reference to the element.
        unsafe { &*block }.get()
    }

    /// Attaches a block to the frame of `slot`. Returns false, and drops `block`, if the frame has one.
    ///
    /// # Safety
    /// As [`AttachedBlocks::get`].
    pub(crate) unsafe fn set(&self, slot: usize, block: Bytes) -> bool {
        let Some(place) = self.blocks.get(slot) else { return false };
        // SAFETY: as in `get`.
        unsafe { &*place.get() }.set(block).is_ok()
    }

    /// Detaches the block from the frame of `slot`.
    ///
    /// # Safety
    /// No other handle of the frame exists or can be made during the call.
    pub(crate) unsafe fn take(&self, slot: usize) -> Option<Bytes> {
        let block = self.blocks.get(slot)?.get();
        // SAFETY: no other thread uses the element, as the caller promises.
        unsafe { &mut *block }.take()
    }
}

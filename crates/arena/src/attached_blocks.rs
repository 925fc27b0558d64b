//! What hangs on the frames of one chunk: for a frame at most one block, made from its page.
//!
//! A block is hung once and stays until its frame is its owner's again: so whoever has a handle of the
//! frame may use it in place. Cost: 40 B a frame, charged before (I10).

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::OnceLock;

use base::Charge;
use bytes::Bytes;

use crate::frame_pool::FRAMES_PER_CHUNK;
use crate::prefetch::line;

/// The blocks on a chunk's frames.
pub(crate) struct AttachedBlocks {
    places: Box<[UnsafeCell<OnceLock<Bytes>>]>,
    _charge: Charge,
}

// SAFETY: a place is shared among those with handles of its frame, who use it as the `Sync` `OnceLock`
// that it is, and is changed by one who knows that nobody else has a handle.
unsafe impl Sync for AttachedBlocks {}

impl AttachedBlocks {
    /// What the places take, bytes.
    pub(crate) const BYTES: usize = FRAMES_PER_CHUNK * size_of::<OnceLock<Bytes>>();

    /// No blocks; `charge` is for the places.
    pub(crate) fn new(charge: Charge) -> Self {
        let places = (0..FRAMES_PER_CHUNK).map(|_| UnsafeCell::new(OnceLock::new()));
        Self { places: places.collect(), _charge: charge }
    }

    /// Asks the processor for what [`AttachedBlocks::get`] reads.
    #[inline]
    pub(crate) fn prefetch(&self, slot: usize) {
        if let Some(place) = self.places.get(slot) {
            line(NonNull::from(place).cast());
        }
    }

    /// The block on the frame in `slot`.
    ///
    /// # Safety
    /// The caller has a handle of the frame for as long as it uses the block.
    #[inline]
    pub(crate) unsafe fn get(&self, slot: usize) -> Option<&Bytes> {
        let place = self.places.get(slot)?.get();
        // SAFETY: while there is a handle nobody has a place for itself alone.
        unsafe { &*place }.get()
    }

    /// Hangs a block on the frame in `slot`; whether there was none.
    ///
    /// # Safety
    /// As [`AttachedBlocks::get`].
    pub(crate) unsafe fn set(&self, slot: usize, block: Bytes) -> bool {
        let Some(place) = self.places.get(slot) else { return false };
        // SAFETY: as in `get`.
        unsafe { &*place.get() }.set(block).is_ok()
    }

    /// Takes the block from the frame in `slot`.
    ///
    /// # Safety
    /// Nobody else has a handle of the frame, nor can get one meanwhile.
    pub(crate) unsafe fn take(&self, slot: usize) -> Option<Bytes> {
        let place = self.places.get(slot)?.get();
        // SAFETY: nobody else uses the place, as the caller promises.
        unsafe { &mut *place }.take()
    }
}

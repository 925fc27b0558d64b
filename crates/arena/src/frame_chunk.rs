//! A chunk of frames: 2 MiB of memory, the headers of its frames, its free frames and attached blocks.
//!
//! Every frame in use holds one strong count of its pool, so the pool and its chunks outlive the last handle
//! of the last frame. A chunk is never dropped before its pool: an evacuation gives back its memory only.

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use base::limits::PAGE_BYTES;
use base::{Charge, invariant};
use bytes::Bytes;

use crate::attached_blocks::AttachedBlocks;
use crate::chunk::{Chunk, FRAMES_PER_CHUNK};
use crate::frame_header::FrameHeader;
use crate::frame_pool_state::FramePoolState;
use crate::frame_set::FrameSet;
use crate::stripe::own_stripe;
use crate::sync::atomic::Ordering::Relaxed;

/// The number of a frame in its pool, from 1 on.
pub type FrameId = std::num::NonZeroU32;

/// Frames in one piece of memory, and their headers.
pub(crate) struct FrameChunk {
    /// The pool of this chunk, as `Arc::as_ptr` returns it.
    pool: *const FramePoolState,
    /// The number of the chunk in its pool.
    pub(crate) number: usize,
    /// The number of frames; less than `FRAMES_PER_CHUNK` if the pool's limit allowed no more.
    pub(crate) frames: usize,
    pub(crate) memory: Chunk,
    pub(crate) free: FrameSet,
    headers: [FrameHeader; FRAMES_PER_CHUNK],
    /// Made when the first block is attached to a frame of the chunk.
    attached: OnceLock<AttachedBlocks>,
    _charge: Charge,
}

// SAFETY: `pool` is used only through a handle of a frame, which holds a strong count of that pool.
unsafe impl Send for FrameChunk {}
// SAFETY: as above; all other fields are `Sync`.
unsafe impl Sync for FrameChunk {}

impl FrameChunk {
    /// Chunk `number` of `pool`; its set of free frames is empty. `charge` covers everything but `memory`.
    pub(crate) fn new(
        pool: *const FramePoolState,
        number: usize,
        frames: usize,
        memory: Chunk,
        charge: Charge,
    ) -> Self {
        invariant!(
            charge.bytes() >= size_of::<Self>() as u64,
            "the headers of frames are charged for first"
        );
        let headers = std::array::from_fn(|_| FrameHeader::free());
        let (free, attached) = (FrameSet::default(), OnceLock::new());
        Self { pool, number, frames, memory, free, headers, attached, _charge: charge }
    }

    /// The header of the frame of `slot`.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a slot is a remainder modulo the chunk's frames")]
    pub(crate) fn header(&self, slot: usize) -> &FrameHeader {
        &self.headers[slot % FRAMES_PER_CHUNK]
    }

    /// The memory of the frame of `slot`.
    #[inline]
    pub(crate) fn data(&self, slot: usize) -> NonNull<u8> {
        debug_assert!(slot < self.frames, "a slot lies within its chunk");
        // SAFETY: a frame's slot is below `frames`, so the address lies within the chunk's memory.
        unsafe { self.memory.start().add(slot * PAGE_BYTES) }
    }

    /// The id of the frame of `slot`.
    pub(crate) fn frame_id(&self, slot: usize) -> FrameId {
        FrameId::MIN.saturating_add((self.number * FRAMES_PER_CHUNK + slot) as u32)
    }

    /// Whether no frame has more than one handle now.
    pub(crate) fn is_unshared(&self) -> bool {
        self.headers.iter().all(FrameHeader::is_unshared)
    }

    /// Prefetches the header of the frame of `slot`, and the pointer to its attached block.
    #[inline]
    pub(crate) fn prefetch(&self, slot: usize) {
        crate::prefetch::line(NonNull::from(self.header(slot)).cast());
        if let Some(attached) = self.attached.get() {
            attached.prefetch(slot);
        }
    }

    /// The block attached to the frame of `slot`.
    ///
    /// # Safety
    /// The caller has a handle of the frame for as long as it uses the block.
    #[inline]
    pub(crate) unsafe fn block(&self, slot: usize) -> Option<&Bytes> {
        let attached = self.attached.get()?;
        // SAFETY: as the caller promises.
        unsafe { attached.get(slot) }
    }

    /// Attaches `block` to the frame of `slot`. False if the frame has a block, or if there is no memory for
    /// the chunk's [`AttachedBlocks`].
    ///
    /// # Safety
    /// As [`FrameChunk::block`].
    pub(crate) unsafe fn attach(&self, slot: usize, block: Bytes) -> bool {
        if self.attached.get().is_none() {
            // SAFETY: the frame holds a strong count of the pool.
            let pool = unsafe { &*self.pool };
            let Some(charge) = pool.account.try_charge(AttachedBlocks::BYTES as u64) else {
                return false;
            };
            // Another thread may be first: then this charge is given back.
            let _ = self.attached.set(AttachedBlocks::new(charge));
        }
        // SAFETY: as the caller promises.
        self.attached.get().is_some_and(|attached| unsafe { attached.set(slot, block) })
    }

    /// Detaches the block from the frame of `slot`.
    ///
    /// # Safety
    /// No other handle of the frame exists or can be made during the call.
    pub(crate) unsafe fn take_block(&self, slot: usize) -> Option<Bytes> {
        let attached = self.attached.get()?;
        // SAFETY: as the caller promises.
        unsafe { attached.take(slot) }
    }

    /// Makes the frame of `slot` free. The pool, and with it the chunk, may be dropped by this call.
    ///
    /// # Safety
    /// - `chunk` is the chunk of a frame that `FramePool::alloc` returned.
    /// - The caller had the frame's last handle and does not use it again.
    pub(crate) unsafe fn give_back(chunk: NonNull<Self>, slot: usize) {
        // SAFETY: the frame holds a strong count of the pool, which keeps the chunk.
        let chunk = unsafe { chunk.as_ref() };
        // SAFETY: `FramePool::pop` leaked one strong count of this pool for this frame. This call takes it
        // back, once, and drops it after the frame is free.
        let pool = unsafe { Arc::from_raw(chunk.pool) };
        if let Some(hint) = pool.hints.get(own_stripe()) {
            hint.0.store(chunk.number, Relaxed);
        }
        // SAFETY: the last handle is gone, and nobody can share a frame without a handle.
        drop(unsafe { chunk.take_block(slot) });
        chunk.free.insert(slot);
        pool.count_free(1);
    }

    /// Ends the handle of the frame of `slot` without making the frame free, for an evacuation.
    ///
    /// # Safety
    /// As [`FrameChunk::give_back`]. The caller also has a handle of the pool, which keeps the chunk.
    pub(crate) unsafe fn withhold(&self, slot: usize) {
        // SAFETY: the caller has the only handle, and nobody can share an exclusive frame.
        drop(unsafe { self.take_block(slot) });
        self.header(slot).clear();
        // SAFETY: as in `give_back`: the one count leaked for this frame.
        drop(unsafe { Arc::from_raw(self.pool) });
    }
}

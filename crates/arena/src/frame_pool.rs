//! The pool of frames: allocates 4 KiB frames out of 2 MiB chunks, and finds them by id.
//!
//! An index outside the pool ([`crate::FrameIndex`]) keeps the ids of frames. [`FramePool::find`] turns an id
//! and a name into a handle without a lock. It returns a frame only if the frame holds the page of that name
//! now, whatever happened to the frame since the id was read from the index.
//!
//! Invariants: each frame is in exactly one state: it is in its chunk's set of free frames, or its header
//! counts handles, or an `Evacuation` owns it, or its chunk has no memory. Each frame in use holds one strong
//! count of its pool, so handles may outlive the [`FramePool`]. Memory is charged one chunk at a time, before
//! it is mapped (I10). It is given back when the chunk is evacuated, or when the pool and all handles are
//! dropped; the headers of an evacuated chunk stay.
//!
//! Concurrency: any thread; lock-free except to add a chunk and to evacuate one. A thread first searches the
//! chunk in which it last found or freed a frame. Cost: 32 B of DRAM for each 4 KiB frame, and 40 B more in
//! chunks with attached blocks.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Error, Result};

use crate::chunk::{CHUNK_BYTES, FRAMES_PER_CHUNK};
use crate::frame::{Frame, FrameMut};
use crate::frame_chunk::{FrameChunk, FrameId};
use crate::frame_header::FrameName;
use crate::frame_pool_state::{FramePoolState, TABLE_CHUNKS, TableEntry};
use crate::prefetch::{LINE_BYTES, line};
use crate::stripe::own_stripe;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::yield_now;

/// A pool of 4 KiB frames that grows up to a limit. Shared; cheap to clone.
#[derive(Clone)]
pub struct FramePool(pub(crate) Arc<FramePoolState>);

impl FramePool {
    /// A pool of at most `frames_max` frames, without frame memory yet. Each frame charges `owner_bytes` more
    /// bytes, for the data that the caller keeps about the frame.
    ///
    /// # Errors
    /// `Retry` if the budget refuses the pool's own memory, `Invalid` if `frames_max` exceeds 32 bits.
    pub fn new(account: &Account, frames_max: usize, owner_bytes: usize) -> Result<Self> {
        if u32::try_from(frames_max).is_err() {
            return Err(Error::invalid("frames in one pool")
                .expected(format_args!("at most {}", u32::MAX))
                .got(frames_max));
        }
        let charge = account.charge(FramePoolState::BYTES as u64)?;
        Ok(Self(Arc::new(FramePoolState::new(account, frames_max, owner_bytes, charge))))
    }

    /// The bytes of a chunk of frames.
    pub const CHUNK_BYTES: u64 = CHUNK_BYTES as u64;

    /// The most frames at once.
    #[must_use]
    pub fn frames_max(&self) -> usize {
        self.0.frames_max.load(Relaxed)
    }

    /// Changes the most frames at once. Frames above the limit stay until their chunks are evacuated.
    pub fn set_frames_max(&self, frames_max: usize) {
        self.0.frames_max.store(frames_max.min(u32::MAX as usize), Relaxed);
    }

    /// Frames with memory, in use or free.
    #[must_use]
    pub fn frames_grown(&self) -> usize {
        self.0.growth().frames
    }

    /// The bytes that a pool of `frames` frames charges: frame memory, headers and tables, without
    /// `owner_bytes` and attached blocks.
    #[must_use]
    pub fn cost_bytes(frames: usize) -> u64 {
        let chunks = frames.div_ceil(FRAMES_PER_CHUNK);
        let headers = chunks * size_of::<FrameChunk>();
        let table_entries = chunks.div_ceil(TABLE_CHUNKS) * TABLE_CHUNKS;
        let tables = table_entries * size_of::<TableEntry>();
        (frames * PAGE_BYTES + headers + tables + FramePoolState::BYTES) as u64
    }

    /// A free frame; its content is arbitrary but initialised. `None` if all frames are in use and the pool
    /// cannot grow, because of its limit or the budget's.
    #[must_use]
    pub fn alloc(&self) -> Option<FrameMut> {
        loop {
            if let Some(frame) = self.pop() {
                return Some(frame);
            }
            if !self.grow(0) {
                // Another thread may have freed a frame since the first search.
                return self.pop();
            }
            // The count includes frames that another thread is taking.
            yield_now();
        }
    }

    /// As [`FramePool::alloc`], but only if more than `reserve` frames are free, now or after growing.
    #[must_use]
    pub fn alloc_above(&self, reserve: usize) -> Option<FrameMut> {
        let may = reserve == 0 || self.free_frames() > reserve || self.grow(reserve);
        if may { self.alloc() } else { None }
    }

    /// Free frames, approximately.
    fn free_frames(&self) -> usize {
        self.0.free_frames()
    }

    /// The frame `id`, if it holds the page `name` now. Takes no lock. Also `None` while a thread fills the
    /// frame or has made it exclusive for a moment to try whether it can be evicted.
    #[inline]
    #[must_use]
    pub fn find(&self, id: FrameId, name: FrameName) -> Option<Frame> {
        let (chunk, slot) = self.locate(id)?;
        let data = chunk.data(slot);
        // While the header is being fetched: the first and the last line of a page are read first.
        line(data);
        line(data.map_addr(|at| at.saturating_add(PAGE_BYTES - LINE_BYTES)));
        let header = chunk.header(slot);
        if !header.share() {
            return None;
        }
        // SAFETY: `share` counted this handle, of a frame that is in use.
        let frame = unsafe { Frame::shared(data, NonNull::from(chunk)) };
        // The handle keeps the name from changing.
        (header.name() == name).then_some(frame)
    }

    /// Prefetches the memory that [`FramePool::find`] reads of frame `id`, and the pointer to its block.
    #[inline]
    pub fn prefetch(&self, id: FrameId) {
        if let Some((chunk, slot)) = self.locate(id) {
            chunk.prefetch(slot);
        }
    }

    /// The chunk of frame `id` and the frame's slot in it; `None` if the pool has no such frame.
    #[inline]
    fn locate(&self, id: FrameId) -> Option<(&FrameChunk, usize)> {
        let number = id.get() as usize - 1;
        let chunk = self.0.chunk(number / FRAMES_PER_CHUNK)?;
        let slot = number % FRAMES_PER_CHUNK;
        (slot < chunk.frames).then_some((chunk, slot))
    }

    /// Takes a free frame, if there is one.
    fn pop(&self) -> Option<FrameMut> {
        let pool = &*self.0;
        if pool.free_frames() == 0 {
            return None;
        }
        let hint = pool.hints.get(own_stripe())?;
        let first = hint.0.load(Relaxed);
        let others = (0..).map_while(|number| pool.chunk(number));
        let mut chunks = pool.chunk(first).into_iter().chain(others);
        let (chunk, slot) = chunks.find_map(|chunk| Some((chunk, chunk.free.take()?)))?;
        pool.count_free(-1);
        if chunk.number != first {
            hint.0.store(chunk.number, Relaxed);
        }
        chunk.header(slot).take();
        // The frame owns this strong count; `FrameChunk::give_back` takes it back.
        let _counted: *const FramePoolState = Arc::into_raw(Arc::clone(&self.0));
        // SAFETY: the frame was free, so nobody uses it; its handle and the pool's count are set above.
        Some(unsafe { FrameMut::new(chunk.data(slot), NonNull::from(chunk)) })
    }

    /// Adds a chunk of free frames unless more than `enough` frames are free by now. False at a limit.
    fn grow(&self, enough: usize) -> bool {
        let pool = &*self.0;
        // Checked without the lock, because a full pool is asked to grow at every page that misses.
        if !pool.account.has_room(CHUNK_BYTES.min(self.frames_max() * PAGE_BYTES) as u64) {
            return false;
        }
        let mut growth = pool.growth();
        if pool.free_frames() > enough {
            return true;
        }
        let room = self.frames_max().saturating_sub(growth.frames);
        let grown = match growth.without_memory.last().and_then(|number| pool.chunk(*number)) {
            Some(chunk) if chunk.frames <= room => pool.restore(chunk, &mut growth),
            _ => pool.add_chunk(Arc::as_ptr(&self.0), room, &mut growth),
        };
        if let (Some(number), Some(hint)) = (grown, pool.hints.get(own_stripe())) {
            hint.0.store(number, Relaxed);
        }
        grown.is_some()
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePool({} of {} frames)", self.frames_grown(), self.frames_max())
    }
}

#[cfg(test)]
mod tests;

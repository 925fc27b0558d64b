//! Evacuation: empties one chunk of frames and gives its 2 MiB back to the operating system.
//!
//! The pool picks a chunk and takes its free frames. The owner of the frames in use, a cache, finds them by
//! their tags and hands them over one by one. When the evacuation owns every frame, it discards the chunk's
//! memory. If one frame is pinned, or another thread allocated it meanwhile, all frames go back to the chunk.
//!
//! Concurrency: one evacuation at a time; other threads allocate and free frames meanwhile.

use crate::chunk::FRAMES_PER_CHUNK;
use crate::frame::{Frame, FrameMut};
use crate::frame_chunk::FrameChunk;
use crate::frame_pool::FramePool;
use crate::frame_pool_state::{FramePoolState, Growth};
use crate::frame_set::FrameSet;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering::Relaxed;

use base::invariant;
use base::limits::PAGE_BYTES;

/// A chunk that is being emptied.
pub struct Evacuation<'a> {
    pool: &'a FramePoolState,
    chunk: &'a FrameChunk,
    /// The frames that the evacuation owns; no other thread uses them.
    owned: FrameSet,
    /// Excludes other evacuations.
    _exclusive: MutexGuard<'a, ()>,
}

/// The most chunks that are searched for one without a pinned frame.
const CANDIDATES_MAX: usize = 64;

impl FramePool {
    /// Begins to empty a chunk: one without frames in use, or else the next one, in turn, in which no frame
    /// has a second handle. `None` if at most `chunks_min` chunks have memory, or if pinned pages are in
    /// every candidate.
    ///
    /// Waits for another evacuation to end. [`Evacuation::in_use`] lists the frames to hand over.
    #[must_use]
    pub fn evacuate(&self, chunks_min: usize) -> Option<Evacuation<'_>> {
        let pool = &*self.0;
        let exclusive = pool.begin_evacuation();
        let mut growth = pool.growth();
        if growth.charges.len().saturating_sub(growth.without_memory.len()) <= chunks_min {
            return None;
        }
        let chunk = pool.free_chunk(&growth).or_else(|| pool.next_unshared_chunk(&growth))?;
        growth.evacuation_hand = chunk.number + 1;
        drop(growth);
        let owned = FrameSet::default();
        let mut evacuation = Evacuation { pool, chunk, owned, _exclusive: exclusive };
        evacuation.take_free();
        Some(evacuation)
    }
}

impl FramePoolState {
    /// A chunk without frames in use.
    fn free_chunk(&self, growth: &Growth) -> Option<&FrameChunk> {
        if self.free_frames() < FRAMES_PER_CHUNK {
            return None;
        }
        let numbers = (0..growth.charges.len()).filter(|number| growth.has_memory(*number));
        let mut chunks = numbers.filter_map(|number| self.chunk(number));
        chunks.find(|chunk| chunk.free.len() == chunk.frames)
    }

    /// The next chunk from the hand on in which no frame is pinned by a second handle.
    fn next_unshared_chunk(&self, growth: &Growth) -> Option<&FrameChunk> {
        let made = growth.charges.len();
        let in_turn = (0..made).map(|step| (growth.evacuation_hand + step) % made);
        let candidates = in_turn.filter(|number| growth.has_memory(*number)).take(CANDIDATES_MAX);
        candidates.filter_map(|number| self.chunk(number)).find(|chunk| chunk.is_unshared())
    }
}

impl Evacuation<'_> {
    /// Takes the chunk's free frames out of allocation.
    fn take_free(&mut self) {
        let taken = self.chunk.free.move_to(&self.owned);
        self.pool.count_free(-(taken as i64));
    }

    /// The tags of the chunk's frames in use; `u32::MAX` for a frame without a tag. Only a hint: other
    /// threads may free and allocate frames of the chunk at any time.
    pub fn in_use(&self) -> impl Iterator<Item = u32> {
        let slots = (0..self.chunk.frames).filter(|slot| !self.owned.contains(*slot));
        slots.map(|slot| self.chunk.header(slot).tag().load(Relaxed))
    }

    /// Whether `frame` belongs to the chunk.
    #[must_use]
    pub fn contains(&self, frame: &Frame) -> bool {
        frame.chunk().is_some_and(|chunk| std::ptr::eq(chunk, self.chunk))
    }

    /// Takes ownership of a frame of the chunk.
    ///
    /// # Errors
    /// The frame, if it belongs to another chunk.
    pub fn take(&mut self, frame: FrameMut) -> Result<(), FrameMut> {
        if !std::ptr::eq(frame.chunk(), self.chunk) {
            return Err(frame);
        }
        self.owned.insert(frame.withhold());
        Ok(())
    }

    /// Ends the evacuation. Returns the bytes given back to the operating system; 0, and nothing is given
    /// back, if a frame is missing.
    #[must_use]
    pub fn finish(mut self) -> usize {
        self.take_free();
        if self.owned.len() < self.chunk.frames {
            return 0;
        }
        let mut growth = self.pool.growth();
        invariant!(growth.has_memory(self.chunk.number), "a chunk that is evacuated has memory");
        let Some(charge) = growth.charges.get_mut(self.chunk.number) else { return 0 };
        // SAFETY: the evacuation owns every frame of the chunk, so no other thread uses the memory.
        unsafe { self.chunk.memory.discard() };
        // After the memory: the charge is never less than the memory in use (I10).
        *charge = None;
        growth.without_memory.push(self.chunk.number);
        invariant!(growth.frames >= self.chunk.frames, "the frames of every chunk were counted");
        growth.frames -= self.chunk.frames;
        self.owned = FrameSet::default();
        self.chunk.frames * PAGE_BYTES
    }
}

impl Drop for Evacuation<'_> {
    /// Makes the frames that the evacuation still owns free again.
    fn drop(&mut self) {
        let freed = self.owned.move_to(&self.chunk.free);
        self.pool.count_free(freed as i64);
    }
}

impl std::fmt::Debug for Evacuation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (owned, frames) = (self.owned.len(), self.chunk.frames);
        write!(f, "Evacuation({owned} of {frames} frames)")
    }
}

#[cfg(test)]
mod tests;

//! Emptying a chunk of frames, to give its 2 MiB back to the operating system.
//!
//! The pool picks a chunk and keeps its free frames from being used; the owner of the others, who
//! finds them by their tags, hands them over one by one. Once all are there, the chunk's memory
//! goes. Where a frame is pinned, or is taken by another thread meanwhile, the frames that were
//! gathered go back and the chunk stays as it was.
//!
//! Concurrency: one evacuation at a time; allocation goes on beside it.

use crate::frame::{Frame, FrameMut};
use crate::frame_pool::{FRAMES_PER_CHUNK, FrameChunk, FramePool, Pool};
use crate::frame_set::FrameSet;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering::Relaxed;

use base::limits::PAGE_BYTES;

/// A chunk being emptied.
pub struct Evacuation<'a> {
    pool: &'a Pool,
    chunk: &'a FrameChunk,
    /// The frames gathered so far: nobody else has them.
    owned: FrameSet,
    _one: MutexGuard<'a, ()>,
}

/// Chunks looked at for one without a pinned frame.
const LOOKED_AT_MAX: usize = 64;

impl FramePool {
    /// Begins to empty a chunk: one that is free as a whole, or else the next in turn that nobody
    /// holds a page of. `None` where fewer than `least` chunks would stay, or pinned pages are
    /// everywhere.
    ///
    /// Waits for another evacuation to end. [`Evacuation::in_use`] says what is left to move.
    #[must_use]
    pub fn evacuate(&self, least: usize) -> Option<Evacuation<'_>> {
        let pool = &*self.0;
        let one = pool.begin_evacuation();
        let mut growth = pool.growth();
        let made = growth.chunks.len();
        if made.saturating_sub(growth.absent.len()) <= least {
            return None;
        }
        let present = |number: &usize| growth.chunks.get(*number).is_some_and(Option::is_some);
        let whole = match pool.free_frames() >= FRAMES_PER_CHUNK {
            true => (0..made)
                .filter(present)
                .filter_map(|number| pool.chunk(number))
                .find(|chunk| chunk.free.len() == chunk.frames),
            false => None,
        };
        let in_turn = || {
            let turn = (0..made).map(|step| (growth.evacuation_hand + step) % made).filter(present);
            let looked_at = turn.take(LOOKED_AT_MAX).filter_map(|number| pool.chunk(number));
            looked_at.into_iter().find(|chunk| chunk.is_unshared())
        };
        let chunk = whole.or_else(in_turn)?;
        growth.evacuation_hand = chunk.number + 1;
        drop(growth);
        let mut evacuation = Evacuation { pool, chunk, owned: FrameSet::default(), _one: one };
        evacuation.gather_free();
        Some(evacuation)
    }
}

impl Evacuation<'_> {
    fn gather_free(&mut self) {
        let gathered = self.chunk.free.move_to(&self.owned);
        self.pool.count_free(-(gathered as i64));
    }

    /// The tags of the frames that are in use: what their owners marked them with, or `u32::MAX`.
    /// A hint: another thread may give a frame back, and take it, at any time.
    pub fn in_use(&self) -> impl Iterator<Item = u32> {
        let slots = (0..self.chunk.frames).filter(|slot| !self.owned.contains(*slot));
        slots.map(|slot| self.chunk.header(slot).tag().load(Relaxed))
    }

    /// Whether `frame` is one of the chunk's.
    #[must_use]
    pub fn contains(&self, frame: &Frame) -> bool {
        frame.chunk().is_some_and(|chunk| std::ptr::eq(chunk, self.chunk))
    }

    /// Takes a frame over; gives it back where it is another chunk's.
    ///
    /// # Errors
    /// The frame, where it is not one of the chunk's.
    pub fn take(&mut self, frame: FrameMut) -> Result<(), FrameMut> {
        if !std::ptr::eq(frame.chunk(), self.chunk) {
            return Err(frame);
        }
        self.owned.insert(frame.withhold());
        Ok(())
    }

    /// Ends it; the bytes given back, 0 where a frame is missing.
    #[must_use]
    pub fn finish(mut self) -> usize {
        self.gather_free();
        if self.owned.len() < self.chunk.frames {
            return 0;
        }
        let mut growth = self.pool.growth();
        let Some(charge) = growth.chunks.get_mut(self.chunk.number) else { return 0 };
        // SAFETY: every frame of the chunk is owned here, and goes nowhere.
        unsafe { self.chunk.memory.discard() };
        // After the memory: what is charged is never less than what is taken (I10).
        *charge = None;
        growth.absent.push(self.chunk.number);
        growth.frames -= self.chunk.frames;
        self.owned = FrameSet::default();
        self.chunk.frames * PAGE_BYTES
    }
}

impl Drop for Evacuation<'_> {
    /// Frees what was gathered.
    fn drop(&mut self) {
        let gathered = self.owned.move_to(&self.chunk.free);
        self.pool.count_free(gathered as i64);
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

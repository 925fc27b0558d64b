//! The pool of frames: 4 KiB pieces of huge-page chunks, taken and given back by number.
//!
//! Invariants: a frame is either on exactly one stack of free frames or counted by its handles.
//! Each frame in use holds one strong count of its pool, so a handle may outlive the [`FramePool`].
//! Memory is charged a chunk at a time, before it is mapped (I10), and kept until the pool and all
//! its frames are gone.
//!
//! Concurrency: lock-free but for growing. A thread uses its own stack first and then the others.
//! Cost: 8 B of DRAM for each 4 KiB frame.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, Result};

use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::frame::FrameMut;
use crate::stripe::{STRIPES, own_stripe};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::{Mutex, Padded, lock};

/// Frames of a whole chunk.
pub(crate) const FRAMES_PER_CHUNK: usize = CHUNK_BYTES / PAGE_BYTES;

/// The end of a stack, and the number no frame has.
const NO_FRAME: u32 = u32::MAX;

/// A pool of 4 KiB frames that grows up to a limit. Shared; cheap to clone.
#[derive(Clone)]
pub struct FramePool(Arc<Pool>);

struct Pool {
    account: Account,
    frames_max: usize,
    stacks: [Padded<Stack>; STRIPES],
    /// Chunk `n` holds the frames from `n * FRAMES_PER_CHUNK`; set in order, under `growing`.
    chunks: Box<[OnceLock<Box<FrameChunk>>]>,
    /// How many chunks are set.
    growing: Mutex<usize>,
    _charge: Charge,
}

/// Frames in one piece of memory, and their headers.
pub(crate) struct FrameChunk {
    /// The pool that owns this chunk, as `Arc::into_raw` gives it.
    pool: *const Pool,
    number: usize,
    memory: Chunk,
    headers: [Header; FRAMES_PER_CHUNK],
    _charge: Charge,
}

// SAFETY: `pool` is only used by a frame's handle, which holds a strong count of that pool.
unsafe impl Send for FrameChunk {}
// SAFETY: as above; the rest is `Sync` itself.
unsafe impl Sync for FrameChunk {}

struct Header {
    /// Handles of the frame; 0 while it is free.
    references: AtomicU32,
    /// The next free frame's number while this one is free.
    next: AtomicU32,
}

impl FramePool {
    /// A pool of at most `frames_max` frames; takes no frame memory yet.
    ///
    /// # Errors
    /// `Retry` where the budget does not hold the table of chunks, `Invalid` where frame numbers
    /// would not fit in 32 bits.
    pub fn new(account: &Account, frames_max: usize) -> Result<Self> {
        if u32::try_from(frames_max).is_err() {
            return Err(Error::invalid("frames in one pool")
                .expected(format_args!("at most {}", u32::MAX))
                .got(frames_max));
        }
        let chunks = frames_max.div_ceil(FRAMES_PER_CHUNK);
        let table_bytes = chunks * size_of::<OnceLock<Box<FrameChunk>>>() + size_of::<Pool>();
        let charge = account.charge(table_bytes as u64)?;
        Ok(Self(Arc::new(Pool {
            account: account.clone(),
            frames_max,
            stacks: std::array::from_fn(|_| Padded(Stack::new())),
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            growing: Mutex::new(0),
            _charge: charge,
        })))
    }

    /// The most frames at once.
    #[must_use]
    pub fn frames_max(&self) -> usize {
        self.0.frames_max
    }

    /// Frames that have memory, in use or free.
    #[must_use]
    pub fn frames_grown(&self) -> usize {
        (*lock(&self.0.growing) * FRAMES_PER_CHUNK).min(self.0.frames_max)
    }

    /// What `frames` frames charge when all are in use, bytes: memory and headers.
    #[must_use]
    pub fn cost_bytes(frames: usize) -> u64 {
        let chunks = frames.div_ceil(FRAMES_PER_CHUNK);
        let each = size_of::<FrameChunk>() + size_of::<OnceLock<Box<FrameChunk>>>();
        (frames * PAGE_BYTES + chunks * each + size_of::<Pool>()) as u64
    }

    /// A frame nobody uses; its content is arbitrary but initialised. `None` where all frames are
    /// in use and the pool cannot grow, for its limit or for the budget's.
    #[must_use]
    pub fn alloc(&self) -> Option<FrameMut> {
        loop {
            if let Some(frame) = self.pop() {
                return Some(frame);
            }
            if !self.grow() {
                // A frame may have come back meanwhile; the last look is after the refusal.
                return self.pop();
            }
        }
    }

    fn pop(&self) -> Option<FrameMut> {
        let pool = &*self.0;
        let own = own_stripe();
        let number = (0..STRIPES)
            .filter_map(|step| pool.stacks.get((own + step) % STRIPES))
            .find_map(|stack| stack.0.pop(pool))?;
        let (chunk, slot) = pool.locate(number)?;
        chunk.headers.get(slot)?.references.store(1, Relaxed);
        // Handed to the frame; `FrameChunk::give_back` takes it back.
        let _counted: *const Pool = Arc::into_raw(Arc::clone(&self.0));
        // SAFETY: `slot` is below `FRAMES_PER_CHUNK`, and the frame has memory.
        let data = unsafe { chunk.memory.start().add(slot * PAGE_BYTES) };
        // SAFETY: the frame was on a stack, so nobody uses it; both counts were set just now.
        Some(unsafe { FrameMut::new(data, NonNull::from(chunk)) })
    }

    /// Adds a chunk of free frames, unless another thread did just now. False at the limits.
    fn grow(&self) -> bool {
        let pool = &*self.0;
        let mut grown = lock(&pool.growing);
        if pool.stacks.iter().any(|stack| !stack.0.is_empty()) {
            return true;
        }
        let number = *grown;
        let first = number * FRAMES_PER_CHUNK;
        let frames = (pool.frames_max - first.min(pool.frames_max)).min(FRAMES_PER_CHUNK);
        let (Some(place), true) = (pool.chunks.get(number), frames > 0) else { return false };
        let bytes = frames * PAGE_BYTES;
        let Ok(charge) = pool.account.charge((bytes + size_of::<FrameChunk>()) as u64) else {
            return false;
        };
        let Ok(memory) = Chunk::map(bytes) else { return false };
        let last = first + frames - 1;
        let headers = std::array::from_fn(|slot| Header {
            references: AtomicU32::new(0),
            next: AtomicU32::new(if first + slot < last {
                (first + slot + 1) as u32
            } else {
                NO_FRAME
            }),
        });
        let chunk =
            FrameChunk { pool: Arc::as_ptr(&self.0), number, memory, headers, _charge: charge };
        if place.set(Box::new(chunk)).is_err() {
            return false;
        }
        *grown = number + 1;
        if let Some(stack) = pool.stacks.get(own_stripe()) {
            stack.0.push(pool, first as u32, last as u32);
        }
        true
    }
}

impl FrameChunk {
    /// The count of the handles of the frame in `slot`.
    #[expect(clippy::indexing_slicing, reason = "a slot is a remainder modulo the chunk's frames")]
    pub(crate) fn references(&self, slot: usize) -> &AtomicU32 {
        &self.headers[slot % FRAMES_PER_CHUNK].references
    }

    /// Puts the frame in `slot` on a stack of free frames. The pool, and the chunk with it, may be
    /// gone afterwards.
    ///
    /// # Safety
    /// - `chunk` is the chunk of a frame that `FramePool::alloc` handed out.
    /// - The caller had the frame's last handle and does not use it again.
    pub(crate) unsafe fn give_back(chunk: NonNull<Self>, slot: usize) {
        // SAFETY: the frame holds a strong count of the pool, which keeps the chunk.
        let Self { pool, number, .. } = unsafe { chunk.as_ref() };
        let (pool, number) = (*pool, *number);
        // SAFETY: `FramePool::pop` leaked one strong count of this pool for this frame, which is
        // taken back here, once, and dropped after the frame is on its stack.
        let pool = unsafe { Arc::from_raw(pool) };
        let frame = (number * FRAMES_PER_CHUNK + slot) as u32;
        if let Some(stack) = pool.stacks.get(own_stripe()) {
            stack.0.push(&pool, frame, frame);
        }
    }
}

impl Pool {
    fn locate(&self, number: u32) -> Option<(&FrameChunk, usize)> {
        let number = number as usize;
        let chunk = self.chunks.get(number / FRAMES_PER_CHUNK)?.get()?;
        Some((chunk, number % FRAMES_PER_CHUNK))
    }

    fn next(&self, number: u32) -> Option<&AtomicU32> {
        let (chunk, slot) = self.locate(number)?;
        Some(&chunk.headers.get(slot)?.next)
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePool({} of {} frames)", self.frames_grown(), self.frames_max())
    }
}

/// A stack of free frames, linked by number (Treiber, 1986).
///
/// The head packs `changes << 32 | number`. The count of changes makes a head that came back to
/// the same frame differ, so that a pop that slept does not install a stale successor.
struct Stack(AtomicU64);

impl Stack {
    fn new() -> Self {
        Self(AtomicU64::new(u64::from(NO_FRAME)))
    }

    fn is_empty(&self) -> bool {
        self.0.load(Relaxed) as u32 == NO_FRAME
    }

    fn pop(&self, pool: &Pool) -> Option<u32> {
        // Acquire pairs with the release of `push`: the frame's last user is done with it.
        let mut head = self.0.load(Acquire);
        loop {
            let number = head as u32;
            if number == NO_FRAME {
                return None;
            }
            // Stale where another thread took the frame meanwhile; then the exchange fails.
            let next = pool.next(number)?.load(Relaxed);
            let new = follow(head, next);
            match self.0.compare_exchange_weak(head, new, Acquire, Acquire) {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
    }

    /// Pushes the frames linked from `first` to `last`.
    fn push(&self, pool: &Pool, first: u32, last: u32) {
        let Some(next) = pool.next(last) else { return };
        let mut head = self.0.load(Relaxed);
        loop {
            next.store(head as u32, Relaxed);
            let new = follow(head, first);
            match self.0.compare_exchange_weak(head, new, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// The head after `head`, at frame `number`.
const fn follow(head: u64, number: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | number as u64
}

#[cfg(test)]
mod tests;

//! The pool of frames: 4 KiB pieces of huge-page chunks, taken and given back by number.
//!
//! A frame may have a name, and is then found by its place and its name ([`FramePool::find`]): whoever
//! keeps places in an index of its own ([`crate::FrameIndex`]) gets a handle without a lock, and never
//! of another page, whatever became of the frame since the place was read.
//!
//! Invariants: a frame's bit in its chunk's map of free frames is set, or the frame is counted by
//! its handles, or an `Evacuation` owns it, or its chunk has no memory. Each frame in use holds
//! one strong count of its pool, so a handle may outlive the [`FramePool`]. Memory is charged a
//! chunk at a time, before it is mapped (I10), and given back when the chunk is evacuated or the
//! pool and all its frames are gone; a chunk's headers stay.
//!
//! Concurrency: lock-free but for growing and evacuating. A thread looks first where it found or
//! gave back a frame last. Cost: 32 B of DRAM for each 4 KiB frame, and 40 B more in chunks of which a
//! frame had a block attached on it.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, Result};
use bytes::Bytes;

use crate::attached_blocks::AttachedBlocks;
use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::frame::{Frame, FrameMut};
use crate::frame_header::{FrameHeader, FrameName};
use crate::frame_set::FrameSet;
use crate::prefetch::{LINE_BYTES, line};
use crate::stripe::{STRIPES, own_stripe};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use crate::sync::{CachePadded, Mutex, MutexGuard, lock, yield_now};

/// Frames of a whole chunk.
pub(crate) const FRAMES_PER_CHUNK: usize = CHUNK_BYTES / PAGE_BYTES;

/// Chunks are found through tables of this many, made as the pool grows. Few under Miri, to which each
/// reference to a table is one to every place in it.
const TABLE_CHUNKS: usize = if cfg!(miri) { 4 } else { 512 };

/// The most tables: 2 TiB of frames.
const TABLES_MAX: usize = if cfg!(miri) { 4 } else { 2048 };

/// Where a frame lies in its pool: what an index keeps of it.
pub type FrameId = std::num::NonZeroU32;

/// A pool of 4 KiB frames that grows up to a limit. Shared; cheap to clone.
#[derive(Clone)]
pub struct FramePool(pub(crate) Arc<Pool>);

pub(crate) struct Pool {
    account: Account,
    frames_max: AtomicUsize,
    /// Bytes charged with each frame for what its owner keeps of it.
    owner_bytes: usize,
    /// Free frames; off by what other threads are about to count.
    free: CachePadded<AtomicU64>,
    /// The chunk that a thread looks into first.
    hints: [CachePadded<AtomicUsize>; STRIPES],
    /// Chunk `n` is in place `n % TABLE_CHUNKS` of table `n / TABLE_CHUNKS`; set in order, under
    /// `growth`.
    tables: Box<[OnceLock<Table>]>,
    growth: Mutex<Growth>,
    /// Held while a chunk is evacuated: one at a time.
    evacuating: Mutex<()>,
    _charge: Charge,
}

type Table = Box<[OnceLock<Box<FrameChunk>>]>;

/// Which chunks there are.
#[derive(Default)]
pub(crate) struct Growth {
    /// The memory of each chunk that was ever made; `None` for one that gave it back.
    pub(crate) chunks: Vec<Option<Charge>>,
    /// The numbers of those that gave it back.
    pub(crate) absent: Vec<usize>,
    /// Frames that have memory.
    pub(crate) frames: usize,
    /// The chunk to be evacuated next.
    pub(crate) evacuation_hand: usize,
}

/// Frames in one piece of memory, and their headers.
pub(crate) struct FrameChunk {
    /// The pool that owns this chunk, as `Arc::into_raw` gives it.
    pool: *const Pool,
    pub(crate) number: usize,
    pub(crate) frames: usize,
    pub(crate) memory: Chunk,
    pub(crate) free: FrameSet,
    headers: [FrameHeader; FRAMES_PER_CHUNK],
    /// Made when the first block is attached on a frame.
    attached: OnceLock<AttachedBlocks>,
    _charge: Charge,
}

// SAFETY: `pool` is only used by a frame's handle, which holds a strong count of that pool.
unsafe impl Send for FrameChunk {}
// SAFETY: as above; the rest is `Sync` itself.
unsafe impl Sync for FrameChunk {}

impl FramePool {
    /// A pool of at most `frames_max` frames; takes no frame memory yet. With each frame `owner_bytes`
    /// more bytes are charged, for what the owner keeps of it elsewhere.
    ///
    /// # Errors
    /// `Retry` where the budget does not hold the pool, `Invalid` where frame numbers would not
    /// fit in 32 bits.
    pub fn new(account: &Account, frames_max: usize, owner_bytes: usize) -> Result<Self> {
        if u32::try_from(frames_max).is_err() {
            return Err(Error::invalid("frames in one pool")
                .expected(format_args!("at most {}", u32::MAX))
                .got(frames_max));
        }
        let charge = account.charge(Self::POOL_BYTES as u64)?;
        Ok(Self(Arc::new(Pool {
            account: account.clone(),
            frames_max: AtomicUsize::new(frames_max),
            owner_bytes,
            free: CachePadded(AtomicU64::new(0)),
            hints: std::array::from_fn(|_| CachePadded::default()),
            tables: (0..TABLES_MAX).map(|_| OnceLock::new()).collect(),
            growth: Mutex::default(),
            evacuating: Mutex::new(()),
            _charge: charge,
        })))
    }

    /// What a chunk of frames takes, bytes.
    pub const CHUNK_BYTES: u64 = CHUNK_BYTES as u64;

    const POOL_BYTES: usize = size_of::<Pool>() + TABLES_MAX * size_of::<OnceLock<Table>>();

    /// The most frames at once.
    #[must_use]
    pub fn frames_max(&self) -> usize {
        self.0.frames_max.load(Relaxed)
    }

    /// Changes the most frames at once. Frames above it stay until their chunks are evacuated.
    pub fn set_frames_max(&self, frames_max: usize) {
        self.0.frames_max.store(frames_max.min(u32::MAX as usize), Relaxed);
    }

    /// Frames that have memory, in use or free.
    #[must_use]
    pub fn frames_grown(&self) -> usize {
        lock(&self.0.growth).frames
    }

    /// What `frames` frames charge when all are in use, bytes: memory and headers, not what is
    /// owner_bytes them.
    #[must_use]
    pub fn cost_bytes(frames: usize) -> u64 {
        let chunks = frames.div_ceil(FRAMES_PER_CHUNK);
        let tables = chunks.div_ceil(TABLE_CHUNKS) * TABLE_CHUNKS;
        let headers = chunks * size_of::<FrameChunk>();
        let table = tables * size_of::<OnceLock<Box<FrameChunk>>>();
        (frames * PAGE_BYTES + headers + table + Self::POOL_BYTES) as u64
    }

    /// A frame nobody uses; its content is arbitrary but initialised. `None` where all frames are
    /// in use and the pool cannot grow, for its limit or for the budget's.
    #[must_use]
    pub fn alloc(&self) -> Option<FrameMut> {
        loop {
            if let Some(frame) = self.pop() {
                return Some(frame);
            }
            if !self.grow(0) {
                // A frame may have come back meanwhile; the last look is after the refusal.
                return self.pop();
            }
            // Free frames were counted that another thread took before they were found.
            yield_now();
        }
    }

    /// As [`FramePool::alloc`], where at least `reserve` frames stay free.
    #[must_use]
    pub fn alloc_with_reserve(&self, reserve: usize) -> Option<FrameMut> {
        let may = reserve == 0 || self.free_frames() > reserve || self.grow(reserve);
        if may { self.alloc() } else { None }
    }

    /// Free frames, about.
    #[must_use]
    pub fn free_frames(&self) -> usize {
        self.0.free_frames()
    }

    /// The frame at `place`, where it has this name now. Takes no lock; `None`, too, where it is being
    /// filled, or thawed to look whether it could be.
    #[inline]
    #[must_use]
    pub fn find(&self, place: FrameId, name: FrameName) -> Option<Frame> {
        let number = place.get() as usize - 1;
        let chunk = self.0.chunk(number / FRAMES_PER_CHUNK)?;
        let slot = number % FRAMES_PER_CHUNK;
        // SAFETY: `slot` is below `FRAMES_PER_CHUNK`: the address is within the chunk's memory.
        let data = unsafe { chunk.memory.start().add(slot * PAGE_BYTES) };
        // While the header is on its way, what pages are read by, at both ends of them.
        line(data);
        line(data.map_addr(|at| at.saturating_add(PAGE_BYTES - LINE_BYTES)));
        let header = chunk.header(slot);
        if !header.share() {
            return None;
        }
        // SAFETY: `share` counted this handle, of a frame that has others.
        let frame = unsafe { Frame::shared(data, NonNull::from(chunk)) };
        // From here on it keeps its name.
        (header.name() == name).then_some(frame)
    }

    /// Asks the processor for what [`FramePool::find`] reads of the frame at `place`, and where its block is
    /// known.
    #[inline]
    pub fn prefetch(&self, place: FrameId) {
        let number = place.get() as usize - 1;
        let Some(chunk) = self.0.chunk(number / FRAMES_PER_CHUNK) else { return };
        let slot = number % FRAMES_PER_CHUNK;
        line(NonNull::from(chunk.header(slot)).cast());
        if let Some(attached) = chunk.attached.get() {
            attached.prefetch(slot);
        }
    }

    fn pop(&self) -> Option<FrameMut> {
        let pool = &*self.0;
        if !pool.is_any_free() {
            return None;
        }
        let hint = pool.hints.get(own_stripe())?;
        let first = hint.0.load(Relaxed);
        let later = (0..).map_while(|number| pool.chunk(number));
        let mut chunks = pool.chunk(first).into_iter().chain(later);
        let (chunk, slot) = chunks.find_map(|chunk| Some((chunk, chunk.free.take()?)))?;
        pool.count_free(-1);
        if chunk.number != first {
            hint.0.store(chunk.number, Relaxed);
        }
        chunk.headers.get(slot)?.take();
        // Handed to the frame; `FrameChunk::give_back` takes it back.
        let _counted: *const Pool = Arc::into_raw(Arc::clone(&self.0));
        // SAFETY: `slot` is below `FRAMES_PER_CHUNK`, and the frame has memory.
        let data = unsafe { chunk.memory.start().add(slot * PAGE_BYTES) };
        // SAFETY: the frame was free, so nobody uses it; both counts were set just now.
        Some(unsafe { FrameMut::new(data, NonNull::from(chunk)) })
    }

    /// Adds a chunk of free frames, unless there are more than `enough` by now. False at the limits.
    fn grow(&self, enough: usize) -> bool {
        let pool = &*self.0;
        // Looked at without the lock: a full pool is asked for every page that misses.
        if !pool.account.has_room(CHUNK_BYTES.min(self.frames_max() * PAGE_BYTES) as u64) {
            return false;
        }
        let mut growth = lock(&pool.growth);
        if pool.free_frames() > enough {
            return true;
        }
        let room = self.frames_max().saturating_sub(growth.frames);
        let grown = match growth.absent.last().and_then(|number| pool.chunk(*number)) {
            Some(chunk) if chunk.frames <= room => pool.restore(chunk, &mut growth),
            _ => pool.add_chunk(Arc::as_ptr(&self.0), room, &mut growth),
        };
        if let (Some(number), Some(hint)) = (grown, pool.hints.get(own_stripe())) {
            hint.0.store(number, Relaxed);
        }
        grown.is_some()
    }
}

impl FrameChunk {
    /// What is known of the frame in `slot`.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a slot is a remainder modulo the chunk's frames")]
    pub(crate) fn header(&self, slot: usize) -> &FrameHeader {
        &self.headers[slot % FRAMES_PER_CHUNK]
    }

    /// The place of the frame in `slot`.
    pub(crate) fn frame_id(&self, slot: usize) -> FrameId {
        FrameId::MIN.saturating_add((self.number * FRAMES_PER_CHUNK + slot) as u32)
    }

    /// Whether no frame has more than one handle now.
    pub(crate) fn is_unshared(&self) -> bool {
        self.headers.iter().all(FrameHeader::is_unshared)
    }

    /// The block on the frame in `slot`.
    ///
    /// # Safety
    /// The caller has a handle of the frame, which stays for as long as the block is used.
    #[inline]
    pub(crate) unsafe fn block(&self, slot: usize) -> Option<&Bytes> {
        let attached = self.attached.get()?;
        // SAFETY: as the caller promises.
        unsafe { attached.get(slot) }
    }

    /// Hangs `block` on the frame in `slot`; false where there is one, or no memory for places.
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
            let _ = self.attached.set(AttachedBlocks::new(charge));
        }
        // SAFETY: as the caller promises.
        self.attached.get().is_some_and(|attached| unsafe { attached.set(slot, block) })
    }

    /// Takes the block from the frame in `slot`.
    ///
    /// # Safety
    /// Nobody else has a handle of the frame, nor can get one meanwhile.
    pub(crate) unsafe fn take_block(&self, slot: usize) -> Option<Bytes> {
        let attached = self.attached.get()?;
        // SAFETY: as the caller promises.
        unsafe { attached.take(slot) }
    }

    /// Makes the frame in `slot` a free one. The pool, and the chunk with it, may be gone
    /// afterwards.
    ///
    /// # Safety
    /// - `chunk` is the chunk of a frame that `FramePool::alloc` handed out.
    /// - The caller had the frame's last handle and does not use it again.
    pub(crate) unsafe fn give_back(chunk: NonNull<Self>, slot: usize) {
        // SAFETY: the frame holds a strong count of the pool, which keeps the chunk.
        let chunk = unsafe { chunk.as_ref() };
        // SAFETY: `FramePool::pop` leaked one strong count of this pool for this frame, which is
        // taken back here, once, and dropped after the frame is free.
        let pool = unsafe { Arc::from_raw(chunk.pool) };
        if let Some(hint) = pool.hints.get(own_stripe()) {
            hint.0.store(chunk.number, Relaxed);
        }
        // SAFETY: the last handle is gone, and a frame without one is shared with nobody.
        drop(unsafe { chunk.take_block(slot) });
        chunk.free.insert(slot);
        pool.count_free(1);
    }

    /// Ends the handle of the frame in `slot` without making the frame a free one.
    ///
    /// # Safety
    /// As [`FrameChunk::give_back`]; and the pool stays, since the caller has a handle of it.
    pub(crate) unsafe fn withhold(&self, slot: usize) {
        // SAFETY: the caller had the only handle, and a frame without one is shared with nobody.
        drop(unsafe { self.take_block(slot) });
        self.header(slot).clear();
        // SAFETY: as in `give_back`: the one count leaked for this frame.
        drop(unsafe { Arc::from_raw(self.pool) });
    }
}

impl Pool {
    pub(crate) fn chunk(&self, number: usize) -> Option<&FrameChunk> {
        let table = self.tables.get(number / TABLE_CHUNKS)?.get()?;
        table.get(number % TABLE_CHUNKS)?.get().map(|chunk| &**chunk)
    }

    pub(crate) fn growth(&self) -> MutexGuard<'_, Growth> {
        lock(&self.growth)
    }

    pub(crate) fn begin_evacuation(&self) -> MutexGuard<'_, ()> {
        lock(&self.evacuating)
    }

    pub(crate) fn count_free(&self, frames: i64) {
        self.free.0.fetch_add(frames as u64, Relaxed);
    }

    /// Free frames, about.
    pub(crate) fn free_frames(&self) -> usize {
        // Below zero where a frame was taken that another thread is about to count.
        (self.free.0.load(Relaxed) as i64).max(0) as usize
    }

    fn is_any_free(&self) -> bool {
        self.free_frames() > 0
    }

    /// Gives a chunk memory again; its number, where there is memory.
    fn restore(&self, chunk: &FrameChunk, growth: &mut Growth) -> Option<usize> {
        let charge = self.account.try_charge((chunk.frames * PAGE_BYTES) as u64)?;
        *growth.chunks.get_mut(chunk.number)? = Some(charge);
        growth.absent.pop();
        self.hand_out(chunk, growth)
    }

    /// Makes the next chunk, of at most `frames` frames; its number, where there is memory.
    fn add_chunk(&self, own: *const Self, frames: usize, growth: &mut Growth) -> Option<usize> {
        let (number, frames) = (growth.chunks.len(), frames.min(FRAMES_PER_CHUNK));
        if frames == 0 {
            return None;
        }
        let mut kept = size_of::<FrameChunk>() + frames * self.owner_bytes;
        let table = self.tables.get(number / TABLE_CHUNKS)?;
        if table.get().is_none() {
            kept += TABLE_CHUNKS * size_of::<OnceLock<Box<FrameChunk>>>();
        }
        let charge = self.account.try_charge((frames * PAGE_BYTES) as u64)?;
        let kept = self.account.try_charge(kept as u64)?;
        let memory = Chunk::map(frames * PAGE_BYTES).ok()?;
        let headers = std::array::from_fn(|_| FrameHeader::free());
        let (free, attached) = (FrameSet::default(), OnceLock::new());
        let chunk = FrameChunk {
            pool: own,
            number,
            frames,
            memory,
            free,
            headers,
            attached,
            _charge: kept,
        };
        let table = table.get_or_init(|| (0..TABLE_CHUNKS).map(|_| OnceLock::new()).collect());
        let place = table.get(number % TABLE_CHUNKS)?;
        place.set(Box::new(chunk)).ok()?;
        growth.chunks.push(Some(charge));
        self.hand_out(place.get()?, growth)
    }

    fn hand_out(&self, chunk: &FrameChunk, growth: &mut Growth) -> Option<usize> {
        growth.frames += chunk.frames;
        chunk.free.fill(chunk.frames);
        self.count_free(chunk.frames as i64);
        Some(chunk.number)
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePool({} of {} frames)", self.frames_grown(), self.frames_max())
    }
}

#[cfg(test)]
mod tests;

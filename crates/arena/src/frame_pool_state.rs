//! The shared state of a [`crate::FramePool`]: its chunks, its counters and the way it grows.
//!
//! A chunk is added or gets memory again under the lock `growth`. Chunks are found without a lock, through
//! tables that are filled in order and never change.

use std::sync::OnceLock;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, broken_invariant, invariant};

use crate::chunk::{Chunk, FRAMES_PER_CHUNK};
use crate::frame_chunk::FrameChunk;
use crate::stripe::STRIPES;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use crate::sync::{CachePadded, Mutex, MutexGuard, lock};

/// The chunks of one table. Few under Miri, for which a reference to a table is one to each of its elements.
pub(crate) const TABLE_CHUNKS: usize = if cfg!(miri) { 4 } else { 512 };

/// The most tables: 2 TiB of frames.
const TABLES_MAX: usize = if cfg!(miri) { 4 } else { 2048 };

// A frame's id has 32 bits.
const _: () = assert!((TABLES_MAX * TABLE_CHUNKS * FRAMES_PER_CHUNK) < u32::MAX as usize);

type Table = Box<[TableEntry]>;

/// One element of a table: a chunk, once it was made.
pub(crate) type TableEntry = OnceLock<Box<FrameChunk>>;

pub(crate) struct FramePoolState {
    pub(crate) account: Account,
    pub(crate) frames_max: AtomicUsize,
    /// Bytes charged with each frame for the data that the pool's owner keeps about it.
    owner_bytes: usize,
    /// Free frames. Temporarily off by the frames that other threads are about to count.
    free: CachePadded<AtomicU64>,
    /// The number of the chunk in which a thread searches first.
    pub(crate) hints: [CachePadded<AtomicUsize>; STRIPES],
    /// Chunk `n` is element `n % TABLE_CHUNKS` of table `n / TABLE_CHUNKS`.
    tables: Box<[OnceLock<Table>]>,
    growth: Mutex<Growth>,
    /// Held during an evacuation: one at a time.
    evacuating: Mutex<()>,
    _charge: Charge,
}

/// The chunks that have memory.
#[derive(Default)]
pub(crate) struct Growth {
    /// The charge of each chunk's memory, by number; `None` after the chunk gave its memory back.
    pub(crate) charges: Vec<Option<Charge>>,
    /// The numbers of the chunks without memory.
    pub(crate) without_memory: Vec<usize>,
    /// Frames with memory.
    pub(crate) frames: usize,
    /// The chunk from which the next evacuation searches.
    pub(crate) evacuation_hand: usize,
}

impl Growth {
    /// Whether chunk `number` has memory.
    pub(crate) fn has_memory(&self, number: usize) -> bool {
        self.charges.get(number).is_some_and(Option::is_some)
    }
}

impl FramePoolState {
    /// The bytes of a pool without chunks.
    pub(crate) const BYTES: usize = size_of::<Self>() + TABLES_MAX * size_of::<OnceLock<Table>>();

    /// A pool without chunks. `charge` covers [`FramePoolState::BYTES`].
    pub(crate) fn new(
        account: &Account,
        frames_max: usize,
        owner_bytes: usize,
        charge: Charge,
    ) -> Self {
        Self {
            account: account.clone(),
            frames_max: AtomicUsize::new(frames_max),
            owner_bytes,
            free: CachePadded(AtomicU64::new(0)),
            hints: std::array::from_fn(|_| CachePadded::default()),
            tables: (0..TABLES_MAX).map(|_| OnceLock::new()).collect(),
            growth: Mutex::default(),
            evacuating: Mutex::new(()),
            _charge: charge,
        }
    }

    /// Chunk `number`, if it was ever made.
    pub(crate) fn chunk(&self, number: usize) -> Option<&FrameChunk> {
        let table = self.tables.get(number / TABLE_CHUNKS)?.get()?;
        table.get(number % TABLE_CHUNKS)?.get().map(|chunk| &**chunk)
    }

    pub(crate) fn growth(&self) -> MutexGuard<'_, Growth> {
        lock(&self.growth)
    }

    /// Waits until no other evacuation runs.
    pub(crate) fn begin_evacuation(&self) -> MutexGuard<'_, ()> {
        lock(&self.evacuating)
    }

    pub(crate) fn count_free(&self, frames: i64) {
        self.free.0.fetch_add(frames as u64, Relaxed);
    }

    /// Free frames, approximately.
    pub(crate) fn free_frames(&self) -> usize {
        // Negative for a moment when a frame is taken that another thread is about to count.
        (self.free.0.load(Relaxed) as i64).max(0) as usize
    }

    /// Gives `chunk` memory again. Returns its number, or `None` if the budget refuses.
    pub(crate) fn restore(&self, chunk: &FrameChunk, growth: &mut Growth) -> Option<usize> {
        let charge = self.account.try_charge((chunk.frames * PAGE_BYTES) as u64)?;
        invariant!(!growth.has_memory(chunk.number), "a chunk without memory has no charge");
        *growth.charges.get_mut(chunk.number)? = Some(charge);
        let restored = growth.without_memory.pop();
        invariant!(
            restored == Some(chunk.number),
            "the last chunk without memory is restored first"
        );
        Some(self.make_available(chunk, growth))
    }

    /// Makes the next chunk, with at most `frames` frames. Returns its number, or `None` if the limit, the
    /// budget or the operating system refuses. `this` is the pool as `Arc::as_ptr` returns it.
    pub(crate) fn add_chunk(
        &self,
        this: *const Self,
        frames: usize,
        growth: &mut Growth,
    ) -> Option<usize> {
        let (number, frames) = (growth.charges.len(), frames.min(FRAMES_PER_CHUNK));
        if frames == 0 {
            return None;
        }
        let table = self.tables.get(number / TABLE_CHUNKS)?;
        let mut overhead = size_of::<FrameChunk>() + frames * self.owner_bytes;
        if table.get().is_none() {
            overhead += TABLE_CHUNKS * size_of::<TableEntry>();
        }
        let charge = self.account.try_charge((frames * PAGE_BYTES) as u64)?;
        let overhead = self.account.try_charge(overhead as u64)?;
        let memory = Chunk::map(frames * PAGE_BYTES).ok()?;
        let chunk = FrameChunk::new(this, number, frames, memory, overhead);
        let table = table.get_or_init(|| (0..TABLE_CHUNKS).map(|_| OnceLock::new()).collect());
        let entry = table.get(number % TABLE_CHUNKS)?;
        if entry.set(Box::new(chunk)).is_err() {
            broken_invariant!("chunks of a pool are made in order, each once");
            return None;
        }
        growth.charges.push(Some(charge));
        Some(self.make_available(entry.get()?, growth))
    }

    /// Makes all frames of a chunk free, which just got its memory. Returns the number of the chunk.
    fn make_available(&self, chunk: &FrameChunk, growth: &mut Growth) -> usize {
        growth.frames += chunk.frames;
        chunk.free.fill(chunk.frames);
        self.count_free(chunk.frames as i64);
        chunk.number
    }
}

//! Frames: fixed 4 KiB buffers, written once, then shared by count.
//!
//! A [`FrameMut`] is alone in using its frame; [`FrameMut::freeze`] makes it a [`Frame`], which is
//! read-only and cheap to clone. The last clone to go gives the frame back to its pool.
//!
//! Invariant: every byte of a frame is initialised from the start (the operating system's zeros,
//! later an earlier page). Concurrency: a clone touches the frame's own count and nothing shared
//! with other frames.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge};

use crate::chunk::CHUNK_BYTES;
use crate::frame_pool::FrameChunk;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU32, fence};

/// The content of a frame.
pub type Page = [u8; PAGE_BYTES];

/// One counted handle of a frame of a pool.
struct Pooled {
    data: NonNull<u8>,
    chunk: NonNull<FrameChunk>,
}

// SAFETY: the handle owns one count of a frame whose bytes are written only while one handle
// exists, through `&mut`; the counts are atomic.
unsafe impl Send for Pooled {}
// SAFETY: as above; `&Pooled` only reads.
unsafe impl Sync for Pooled {}

impl Pooled {
    fn chunk(&self) -> &FrameChunk {
        // SAFETY: this handle holds a strong count of the pool, and a pool never drops a chunk
        // while it lives.
        unsafe { self.chunk.as_ref() }
    }

    fn slot(&self) -> usize {
        self.data.addr().get() % CHUNK_BYTES / PAGE_BYTES
    }

    fn references(&self) -> &AtomicU32 {
        self.chunk().references(self.slot())
    }

    fn page(&self) -> &Page {
        // SAFETY: a frame is `PAGE_BYTES` initialised bytes, and nobody writes it while shared.
        unsafe { self.data.cast::<Page>().as_ref() }
    }
}

impl Clone for Pooled {
    fn clone(&self) -> Self {
        // Relaxed, as `Arc` does: the new handle comes from one that already sees the content.
        let before = self.references().fetch_add(1, Relaxed);
        if before > u32::MAX / 2 {
            // As `Arc`: a count that wraps would free memory in use.
            std::process::abort();
        }
        Self { data: self.data, chunk: self.chunk }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // Release: this handle's reads come before the frame is reused.
        if self.references().fetch_sub(1, Release) != 1 {
            return;
        }
        // Pairs with every other handle's release.
        fence(Acquire);
        // SAFETY: this was the frame's last handle, and it is being dropped.
        unsafe { FrameChunk::give_back(self.chunk, self.slot()) };
    }
}

/// A frame that one owner fills.
pub struct FrameMut(Pooled);

impl FrameMut {
    /// The only handle of a frame.
    ///
    /// # Safety
    /// - `data` is the frame's place in `chunk`; nobody else uses it.
    /// - The frame's count is 1, and a strong count of its pool was set aside for it.
    pub(crate) unsafe fn new(data: NonNull<u8>, chunk: NonNull<FrameChunk>) -> Self {
        Self(Pooled { data, chunk })
    }

    /// Ends the writing: from here on the frame is shared and read-only.
    #[must_use]
    pub fn freeze(self) -> Frame {
        Frame(Place::Pooled(self.0))
    }

    pub(crate) fn chunk(&self) -> &FrameChunk {
        self.0.chunk()
    }

    /// Ends the handle without making the frame a free one; the frame's place in its chunk.
    pub(crate) fn withhold(self) -> usize {
        let pooled = std::mem::ManuallyDrop::new(self.0);
        let slot = pooled.slot();
        // SAFETY: a `FrameMut` is its frame's only handle, and this one is not dropped. Whoever
        // withholds frames has a handle of the pool.
        unsafe { pooled.chunk().withhold(slot) };
        slot
    }
}

impl Deref for FrameMut {
    type Target = Page;

    fn deref(&self) -> &Page {
        self.0.page()
    }
}

impl DerefMut for FrameMut {
    fn deref_mut(&mut self) -> &mut Page {
        // SAFETY: as in `page`, and a `FrameMut` is its frame's only handle.
        unsafe { self.0.data.cast::<Page>().as_mut() }
    }
}

impl fmt::Debug for FrameMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameMut")
    }
}

/// A shared, read-only 4 KiB page. Cheap to clone; gives its memory back with the last clone.
#[derive(Clone)]
pub struct Frame(Place);

#[derive(Clone)]
enum Place {
    Pooled(Pooled),
    Heap(Arc<HeapFrame>),
}

struct HeapFrame {
    page: Page,
    _charge: Option<Charge>,
}

// Caches keep millions of these.
const _: () = assert!(size_of::<Frame>() == 16);

impl Frame {
    /// A copy of `page` outside any pool, for when every frame of a pool is pinned.
    ///
    /// Charged to `account` where its budget has room. The rest is what callers hold at once in
    /// excess of the budget, which the number of their reads in flight bounds.
    #[must_use]
    pub fn heap(account: &Account, page: &Page) -> Self {
        let charge = account.try_charge(size_of::<HeapFrame>() as u64);
        Self(Place::Heap(Arc::new(HeapFrame { page: *page, _charge: charge })))
    }

    pub(crate) fn chunk(&self) -> Option<&FrameChunk> {
        match &self.0 {
            Place::Pooled(pooled) => Some(pooled.chunk()),
            Place::Heap(_) => None,
        }
    }

    /// Marks a pool's frame for whoever empties its chunk; it keeps the mark until it is free.
    pub fn set_tag(&self, tag: u32) {
        if let Place::Pooled(pooled) = &self.0 {
            pooled.chunk().tag(pooled.slot()).store(tag, Relaxed);
        }
    }

    /// Whether nobody else has a clone now. A caller who holds the only clone, and the only way to
    /// it, may rely on the answer; to anybody else it is a hint.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        // Acquire: pairs with the release of the clones that went.
        match &self.0 {
            Place::Pooled(pooled) => pooled.references().load(Acquire) == 1,
            Place::Heap(heap) => Arc::strong_count(heap) == 1,
        }
    }

    /// The frame for writing again, where nobody else has a clone and it belongs to a pool.
    ///
    /// # Errors
    /// The frame itself where it is shared or on the heap.
    pub fn try_thaw(self) -> Result<FrameMut, Self> {
        if !self.is_unique() {
            return Err(self);
        }
        match self.0 {
            Place::Pooled(pooled) => Ok(FrameMut(pooled)),
            heap @ Place::Heap(_) => Err(Self(heap)),
        }
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Pooled(pooled) => pooled.page(),
            Place::Heap(heap) => &heap.page,
        }
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Place::Pooled(_) => "Frame(pooled)",
            Place::Heap(_) => "Frame(heap)",
        })
    }
}

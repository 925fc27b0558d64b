//! Frames: 4 KiB buffers that hold pages. One owner fills a frame, then many readers share it.
//!
//! A [`FrameMut`] is the only handle of its frame. [`FrameMut::freeze`] turns it into a [`Frame`], which is
//! read-only and cheap to clone. Dropping the last clone gives the frame back to its pool.
//!
//! Invariant: every byte of a frame is always initialised, first with zeros by the operating system, later
//! with the content of an earlier page. Concurrency: any thread; a clone changes only the frame's own count.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, broken_invariant};
use bytes::Bytes;

use crate::chunk::CHUNK_BYTES;
use crate::frame_chunk::{FrameChunk, FrameId};
use crate::frame_header::{FrameHeader, FrameName};
use crate::sync::atomic::Ordering::{Acquire, Relaxed};
use crate::sync::atomic::fence;

/// The content of a frame.
pub type Page = [u8; PAGE_BYTES];

/// One counted handle of a frame in a pool.
struct Pooled {
    data: NonNull<u8>,
    chunk: NonNull<FrameChunk>,
}

// SAFETY: the handle owns one count of a frame. The frame's bytes are written only through `&mut` of its only
// handle; the counts are atomic.
unsafe impl Send for Pooled {}
// SAFETY: as above; `&Pooled` only reads.
unsafe impl Sync for Pooled {}

impl Pooled {
    fn chunk(&self) -> &FrameChunk {
        // SAFETY: this handle holds a strong count of the pool, which never drops a chunk before itself.
        unsafe { self.chunk.as_ref() }
    }

    fn slot(&self) -> usize {
        self.data.addr().get() % CHUNK_BYTES / PAGE_BYTES
    }

    #[inline]
    fn header(&self) -> &FrameHeader {
        self.chunk().header(self.slot())
    }

    fn page(&self) -> &Page {
        // SAFETY: a frame is `PAGE_BYTES` initialised bytes, and nobody writes a shared frame.
        unsafe { self.data.cast::<Page>().as_ref() }
    }
}

impl Clone for Pooled {
    fn clone(&self) -> Self {
        self.header().clone_handle();
        Self { data: self.data, chunk: self.chunk }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if !self.header().drop_handle() {
            return;
        }
        // Pairs with the release of every other handle that was dropped.
        fence(Acquire);
        // SAFETY: this was the frame's last handle, and it is being dropped.
        unsafe { FrameChunk::give_back(self.chunk, self.slot()) };
    }
}

/// The only handle of a frame, for filling it.
pub struct FrameMut(Pooled);

impl FrameMut {
    /// The only handle of a frame.
    ///
    /// # Safety
    /// - `data` is the frame's memory in `chunk`; nobody else uses it.
    /// - The frame is exclusive, and the caller leaked one strong count of the pool for it.
    pub(crate) unsafe fn new(data: NonNull<u8>, chunk: NonNull<FrameChunk>) -> Self {
        Self(Pooled { data, chunk })
    }

    /// Makes the frame shared and read-only.
    #[must_use]
    pub fn freeze(self) -> Frame {
        self.0.header().freeze();
        Frame(FrameMemory::Pooled(self.0))
    }

    /// Sets the page that the frame holds. [`crate::FramePool::find`] finds the frozen frame by it.
    pub fn set_name(&mut self, name: FrameName) {
        self.0.header().set_name(name);
    }

    /// Detaches the block from the frame.
    pub fn take_block(&mut self) -> Option<Bytes> {
        // SAFETY: a `FrameMut` is the only handle of an exclusive frame.
        unsafe { self.0.chunk().take_block(self.0.slot()) }
    }

    pub(crate) fn chunk(&self) -> &FrameChunk {
        self.0.chunk()
    }

    /// Ends the handle without making the frame free. Returns the frame's slot in its chunk. The caller has a
    /// handle of the pool.
    pub(crate) fn withhold(self) -> usize {
        let pooled = std::mem::ManuallyDrop::new(self.0);
        let slot = pooled.slot();
        // SAFETY: a `FrameMut` is the only handle of its frame, and this one is not dropped. The caller, an
        // evacuation, has a handle of the pool.
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
        // SAFETY: as in `page`; and a `FrameMut` is the only handle of its frame.
        unsafe { self.0.data.cast::<Page>().as_mut() }
    }
}

impl fmt::Debug for FrameMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameMut")
    }
}

/// A shared, read-only 4 KiB page. Cheap to clone; the last clone frees the memory.
#[derive(Clone)]
pub struct Frame(FrameMemory);

#[derive(Clone)]
enum FrameMemory {
    Pooled(Pooled),
    Heap(Arc<HeapFrame>),
}

struct HeapFrame {
    page: Page,
    _charge: Option<Charge>,
}

// Caches hold millions of frames.
const _: () = assert!(size_of::<Frame>() == 16);

impl Frame {
    /// A copy of `page` on the heap, for a read that finds every frame of the pool pinned.
    ///
    /// It is charged to `account` if the budget has room, and exists uncharged otherwise. The number of reads
    /// in flight bounds the uncharged memory.
    #[must_use]
    pub fn heap(account: &Account, page: &Page) -> Self {
        let charge = account.try_charge(size_of::<HeapFrame>() as u64);
        Self(FrameMemory::Heap(Arc::new(HeapFrame { page: *page, _charge: charge })))
    }

    pub(crate) fn chunk(&self) -> Option<&FrameChunk> {
        match &self.0 {
            FrameMemory::Pooled(pooled) => Some(pooled.chunk()),
            FrameMemory::Heap(_) => None,
        }
    }

    /// Another handle of a frame in a pool.
    ///
    /// # Safety
    /// `data` is the memory of a shared frame in `chunk`, and the frame's header counts this handle.
    #[inline]
    pub(crate) unsafe fn shared(data: NonNull<u8>, chunk: NonNull<FrameChunk>) -> Self {
        Self(FrameMemory::Pooled(Pooled { data, chunk }))
    }

    fn header(&self) -> Option<&FrameHeader> {
        match &self.0 {
            FrameMemory::Pooled(pooled) => Some(pooled.header()),
            FrameMemory::Heap(_) => None,
        }
    }

    /// The frame's id in its pool; `None` on the heap.
    #[must_use]
    pub fn id(&self) -> Option<FrameId> {
        match &self.0 {
            FrameMemory::Pooled(pooled) => Some(pooled.chunk().frame_id(pooled.slot())),
            FrameMemory::Heap(_) => None,
        }
    }

    /// The page that the frame holds; `None` on the heap.
    #[must_use]
    pub fn name(&self) -> Option<FrameName> {
        self.header().map(FrameHeader::name)
    }

    /// The number that [`Frame::set_tag`] set, `u32::MAX` without one; `None` on the heap.
    #[must_use]
    pub fn tag(&self) -> Option<u32> {
        self.header().map(|header| header.tag().load(Relaxed))
    }

    /// The heat of the page; 0 on the heap. Any holder may set it; of concurrent stores, any may win.
    #[inline]
    #[must_use]
    pub fn heat(&self) -> u32 {
        self.header().map_or(0, |header| header.heat().load(Relaxed))
    }

    /// Sets the heat of the page. Does nothing on the heap.
    #[inline]
    pub fn set_heat(&self, heat: u32) {
        if let Some(header) = self.header() {
            header.heat().store(heat, Relaxed);
        }
    }

    /// The block attached to the frame.
    #[inline]
    #[must_use]
    pub fn block(&self) -> Option<&Bytes> {
        match &self.0 {
            // SAFETY: the borrow of the block keeps this handle.
            FrameMemory::Pooled(pooled) => unsafe { pooled.chunk().block(pooled.slot()) },
            FrameMemory::Heap(_) => None,
        }
    }

    /// Turns the frame into a handle of its attached block.
    ///
    /// # Errors
    /// The frame, if no block is attached.
    #[inline]
    pub fn into_block(self) -> Result<FrameBlock, Self> {
        match self.block() {
            Some(block) => {
                let bytes = NonNull::from(&**block);
                Ok(FrameBlock { frame: self, bytes })
            }
            None => Err(self),
        }
    }

    /// Attaches `block` to the frame. It stays until [`FrameMut::take_block`], or until the frame is free.
    /// Returns false, and drops `block`, if the frame is on the heap or has a block, or if the budget has no
    /// room. `block` must not hold a handle of the frame, or the frame would never be free.
    pub fn attach(&self, block: Bytes) -> bool {
        match &self.0 {
            // SAFETY: this handle exists during the call.
            FrameMemory::Pooled(pooled) => unsafe { pooled.chunk().attach(pooled.slot(), block) },
            FrameMemory::Heap(_) => false,
        }
    }

    /// Sets the number by which the frame's owner finds it in an evacuation ([`crate::Evacuation::in_use`]).
    /// The frame keeps it until it is free.
    pub fn set_tag(&self, tag: u32) {
        if let Some(header) = self.header() {
            header.tag().store(tag, Relaxed);
        }
    }

    /// Whether no other clone exists now. Only a hint if the frame has a name, because other threads may find
    /// it by that; exact if the caller holds the only clone and no index leads to the frame.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        match &self.0 {
            FrameMemory::Pooled(pooled) => pooled.header().is_unique(),
            FrameMemory::Heap(heap) => Arc::strong_count(heap) == 1,
        }
    }

    /// Makes the frame writable again, if this is its only clone and it belongs to a pool.
    ///
    /// # Errors
    /// The frame, if it has other clones or is on the heap.
    pub fn try_thaw(self) -> Result<FrameMut, Self> {
        match self.0 {
            FrameMemory::Pooled(pooled) if pooled.header().thaw() => Ok(FrameMut(pooled)),
            memory => Err(Self(memory)),
        }
    }
}

/// A block attached to a frame, used in place. It holds a handle of the frame, which keeps the block; the
/// block's own count does not change.
pub struct FrameBlock {
    frame: Frame,
    bytes: NonNull<[u8]>,
}

// SAFETY: `Frame` and `Bytes` are `Send` and `Sync`, and the bytes are only read.
unsafe impl Send for FrameBlock {}
// SAFETY: as above.
unsafe impl Sync for FrameBlock {}

impl FrameBlock {
    /// A handle of the block that outlives the frame.
    #[must_use]
    pub fn shared(&self) -> Bytes {
        if let Some(block) = self.frame.block() {
            return block.clone();
        }
        broken_invariant!("a block stays on its frame while the frame has a handle");
        Bytes::new()
    }

    /// As [`FrameBlock::shared`], of a part of the block: counts one handle, not two.
    ///
    /// # Panics
    /// If the range does not lie within the block.
    #[inline]
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        if let Some(block) = self.frame.block() {
            return block.slice(range);
        }
        broken_invariant!("a block stays on its frame while the frame has a handle");
        Bytes::new()
    }
}

impl Deref for FrameBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: a block stays attached, and its bytes do not move, while the frame has a handle
        // (`AttachedBlocks`).
        unsafe { self.bytes.as_ref() }
    }
}

impl fmt::Debug for FrameBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameBlock({} bytes)", self.len())
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            FrameMemory::Pooled(pooled) => pooled.page(),
            FrameMemory::Heap(heap) => &heap.page,
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
            FrameMemory::Pooled(_) => "Frame(pooled)",
            FrameMemory::Heap(_) => "Frame(heap)",
        })
    }
}

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
use bytes::Bytes;

use crate::chunk::CHUNK_BYTES;
use crate::frame_header::{FrameHeader, FrameName};
use crate::frame_pool::{FrameChunk, FrameId};
use crate::sync::atomic::Ordering::{Acquire, Relaxed};
use crate::sync::atomic::fence;

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

    #[inline]
    fn header(&self) -> &FrameHeader {
        self.chunk().header(self.slot())
    }

    fn page(&self) -> &Page {
        // SAFETY: a frame is `PAGE_BYTES` initialised bytes, and nobody writes it while shared.
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
    /// - The frame is exclusive, and a strong count of its pool was set aside for it.
    pub(crate) unsafe fn new(data: NonNull<u8>, chunk: NonNull<FrameChunk>) -> Self {
        Self(Pooled { data, chunk })
    }

    /// Ends the writing: from here on the frame is shared and read-only.
    #[must_use]
    pub fn freeze(self) -> Frame {
        self.0.header().freeze();
        Frame(FrameMemory::Pooled(self.0))
    }

    /// Says what the frame holds, by which it is found once it is frozen ([`crate::FramePool::find`]).
    pub fn set_name(&mut self, name: FrameName) {
        self.0.header().set_name(name);
    }

    /// Takes the block that hangs on the frame.
    pub fn take_block(&mut self) -> Option<Bytes> {
        // SAFETY: a `FrameMut` is its frame's only handle, and an exclusive one.
        unsafe { self.0.chunk().take_block(self.0.slot()) }
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
        Self(FrameMemory::Heap(Arc::new(HeapFrame { page: *page, _charge: charge })))
    }

    pub(crate) fn chunk(&self) -> Option<&FrameChunk> {
        match &self.0 {
            FrameMemory::Pooled(pooled) => Some(pooled.chunk()),
            FrameMemory::Heap(_) => None,
        }
    }

    /// One more handle of a pool's frame.
    ///
    /// # Safety
    /// `data` is the place of a frame in use in `chunk`, and the handle was counted for it.
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

    /// Where it lies in its pool, if it is of one.
    #[must_use]
    pub fn id(&self) -> Option<FrameId> {
        match &self.0 {
            FrameMemory::Pooled(pooled) => Some(pooled.chunk().frame_id(pooled.slot())),
            FrameMemory::Heap(_) => None,
        }
    }

    /// What it holds, if it is of a pool and was told.
    #[must_use]
    pub fn name(&self) -> Option<FrameName> {
        self.header().map(FrameHeader::name)
    }

    /// What its owner marked it with, if anything.
    #[must_use]
    pub fn tag(&self) -> Option<u32> {
        self.header().map(|header| header.tag().load(Relaxed))
    }

    /// How warm it is: a number that is anybody's to set. None of threads that set it at once is sure to
    /// have the last word.
    #[inline]
    #[must_use]
    pub fn heat(&self) -> u32 {
        self.header().map_or(0, |header| header.heat().load(Relaxed))
    }

    /// Says how warm it is.
    #[inline]
    pub fn set_heat(&self, heat: u32) {
        if let Some(header) = self.header() {
            header.heat().store(heat, Relaxed);
        }
    }

    /// The block that hangs on it.
    #[inline]
    #[must_use]
    pub fn block(&self) -> Option<&Bytes> {
        match &self.0 {
            // SAFETY: this handle stays for as long as the block is borrowed.
            FrameMemory::Pooled(pooled) => unsafe { pooled.chunk().block(pooled.slot()) },
            FrameMemory::Heap(_) => None,
        }
    }

    /// Itself as the handle by which the block that hangs on it is used in place.
    ///
    /// # Errors
    /// Itself where none hangs on it.
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

    /// Hangs `block` on it, until it is thawed and the block taken, or it is free; false where it is of no
    /// pool, has a block, or there is no memory for places of blocks. `block` must not keep the frame.
    pub fn attach(&self, block: Bytes) -> bool {
        match &self.0 {
            // SAFETY: this handle stays meanwhile.
            FrameMemory::Pooled(pooled) => unsafe { pooled.chunk().attach(pooled.slot(), block) },
            FrameMemory::Heap(_) => false,
        }
    }

    /// Marks a pool's frame for whoever empties its chunk; it keeps the mark until it is free.
    pub fn set_tag(&self, tag: u32) {
        if let Some(header) = self.header() {
            header.tag().store(tag, Relaxed);
        }
    }

    /// Whether nobody else has a clone now: a hint where the frame has a name, by which anybody may find
    /// it. A caller who holds the only clone, and the only way to it, may rely on the answer.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        match &self.0 {
            FrameMemory::Pooled(pooled) => pooled.header().is_unique(),
            FrameMemory::Heap(heap) => Arc::strong_count(heap) == 1,
        }
    }

    /// The frame for writing again, where nobody else has a clone and it belongs to a pool.
    ///
    /// # Errors
    /// The frame itself where it is shared or on the heap.
    pub fn try_thaw(self) -> Result<FrameMut, Self> {
        match self.0 {
            FrameMemory::Pooled(pooled) if pooled.header().thaw() => Ok(FrameMut(pooled)),
            place => Err(Self(place)),
        }
    }
}

/// The block that hangs on a frame, in place: the frame's handle keeps it there, and no other count is
/// touched.
pub struct FrameBlock {
    frame: Frame,
    bytes: NonNull<[u8]>,
}

// SAFETY: as a `Frame` and a shared `Bytes`, which both are; the bytes are only read.
unsafe impl Send for FrameBlock {}
// SAFETY: as above.
unsafe impl Sync for FrameBlock {}

impl FrameBlock {
    /// The block, to keep whatever becomes of the frame.
    #[must_use]
    pub fn shared(&self) -> Bytes {
        self.frame.block().cloned().unwrap_or_default()
    }
}

impl Deref for FrameBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: a block stays on its frame, and its bytes where they are, for as long as there is a
        // handle of the frame (`AttachedBlocks`).
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

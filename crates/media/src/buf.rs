//! Buffers aligned for direct I/O.
//!
//! Buffers of 64 KiB and more are mapped, not allocated: an allocator keeps freed memory in one arena for
//! every few threads, so buffers of long values would leave a multiple of their memory there.

mod mapping;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use base::limits::PAGE_BYTES;
use mapping::Mapping;

/// Owned bytes, aligned to a page, a whole number of pages long. Zeroed on creation.
///
/// The owner charges an account for the memory (I10).
pub struct Buf {
    start: NonNull<u8>,
    len: usize,
    /// The mapping that `start` points into; none if the allocator owns the bytes.
    mapping: Option<Mapping>,
}

/// The least length of a mapped buffer, bytes.
const MAPPED_BYTES_MIN: usize = 64 << 10;

// SAFETY: a `Buf` owns its bytes alone, as a `Box<[u8]>` does.
unsafe impl Send for Buf {}
// SAFETY: shared references only read, as with a `Box<[u8]>`.
unsafe impl Sync for Buf {}

impl Buf {
    /// `pages` zeroed pages (at least one).
    #[must_use]
    pub fn pages(pages: usize) -> Self {
        let len = pages.max(1) * PAGE_BYTES;
        let mapping = (len >= MAPPED_BYTES_MIN).then(|| Mapping::new(len)).flatten();
        let start = mapping.as_ref().map_or_else(|| Self::allocate(len), Mapping::start);
        let is_aligned = start.as_ptr().addr().is_multiple_of(PAGE_BYTES);
        base::invariant!(is_aligned, "a buffer is aligned for direct I/O");
        Self { start, len, mapping }
    }

    fn allocate(len: usize) -> NonNull<u8> {
        let layout = Self::layout(len);
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
    }

    #[expect(clippy::expect_used, reason = "a page's alignment and an owned length are valid")]
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, PAGE_BYTES).expect("a buffer fits the address space")
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes that `self` owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        match self.mapping.take() {
            Some(mapping) => mapping.give_back(),
            // SAFETY: allocated in `pages` with this layout, and dropped once.
            None => unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) },
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_writable_to_their_end() {
        for pages in [0, 1, 15, 16, 17, 33, 2000] {
            let mut buf = Buf::pages(pages);
            assert_eq!(buf.len(), pages.max(1) * PAGE_BYTES);
            assert!(buf.as_ptr().addr().is_multiple_of(PAGE_BYTES));
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(7);
            assert!(buf.iter().all(|byte| *byte == 7));
        }
    }
}

//! Buffers aligned for direct I/O.
//!
//! Long ones are mapped: an allocator keeps what it is given back, in an arena for each few
//! threads, and long values would leave a multiple of their memory there. Mapping and unmapping
//! cost a few microseconds, less than reading as much.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

use base::limits::PAGE_BYTES;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Owned bytes, aligned to a page, a whole number of pages long. Zeroed when made.
///
/// The owner charges an account for it.
pub struct Buf {
    start: NonNull<u8>,
    len: usize,
    is_mapped: bool,
}

/// Buffers of this length and longer are mapped, bytes.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// `len` zeroed bytes from the operating system; `None` where it has none.
fn map(len: usize) -> Option<NonNull<u8>> {
    if cfg!(miri) {
        return None;
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel picks the address, so no existing mapping is replaced.
    let mapped = unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE) };
    NonNull::new(mapped.ok()?.cast())
}

// SAFETY: a `Buf` owns its bytes alone, as a `Box<[u8]>` does.
unsafe impl Send for Buf {}
// SAFETY: shared references only read, as with a `Box<[u8]>`.
unsafe impl Sync for Buf {}

impl Buf {
    /// `pages` zeroed pages (at least one).
    #[must_use]
    pub fn pages(pages: usize) -> Self {
        let len = pages.max(1) * PAGE_BYTES;
        let mapped = (len >= MAPPED_BYTES_MIN).then(|| map(len)).flatten();
        let (start, is_mapped) = match mapped {
            Some(start) => (start, true),
            None => (Self::allocate(len), false),
        };
        Self { start, len, is_mapped }
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
        if self.is_mapped {
            // SAFETY: mapped in `pages` with this very length, and dropped once. A failure leaves
            // it mapped, which is a leak and no more.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        } else {
            // SAFETY: allocated in `pages` with this very layout, and dropped once.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
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
    fn buffers_are_zeroed_aligned_and_writable_to_their_ends() {
        for pages in [0, 1, 31, 32, 33, 2000] {
            let mut buf = Buf::pages(pages);
            assert_eq!(buf.len(), pages.max(1) * PAGE_BYTES);
            assert!(buf.as_ptr().addr().is_multiple_of(PAGE_BYTES));
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(7);
            assert!(buf.iter().all(|byte| *byte == 7));
        }
    }
}

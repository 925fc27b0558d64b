//! Chunks of raw memory from the operating system, with huge pages if it has them.
//!
//! A chunk is zeroed, starts at a multiple of 2 MiB and is unmapped when dropped. The owner charges an
//! account before it maps a chunk (I10). Mapping costs two or three system calls; the first touch of a 2 MiB
//! page costs about 0.1 ms, in which the kernel zeroes it.

use std::ptr::NonNull;

use base::Error;
use base::limits::PAGE_BYTES;

/// The size of a huge page, and of most chunks, bytes. Small under Miri, for which a reference to a chunk of
/// frames is one to every atomic in the headers of its frames.
pub(crate) const CHUNK_BYTES: usize = if cfg!(miri) { 16 * PAGE_BYTES } else { 2 << 20 };

/// The frames of a whole chunk.
pub(crate) const FRAMES_PER_CHUNK: usize = CHUNK_BYTES / PAGE_BYTES;

/// Zeroed memory that the chunk owns alone.
pub(crate) struct Chunk {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a `Chunk` owns its mapping and only returns its address.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// A chunk of 0 bytes, to replace one that is moved out.
    pub(crate) const fn empty() -> Self {
        Self { start: NonNull::dangling(), bytes: 0 }
    }

    /// The first byte, aligned to [`CHUNK_BYTES`]. Valid for the whole chunk until it is dropped.
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn no_memory(bytes: usize, error: impl std::fmt::Display) -> Error {
        Error::retry("memory from the operating system")
            .expected(format_args!("{bytes} B"))
            .got(error)
    }
}

#[cfg(not(miri))]
mod mapped {
    use std::ffi::c_void;
    use std::ptr::{NonNull, null_mut};

    use base::{Result, invariant};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{CHUNK_BYTES, Chunk, PAGE_BYTES};

    impl Chunk {
        /// Maps `bytes`, rounded up to whole 4 KiB pages; at least one page.
        ///
        /// # Errors
        /// `Retry` if the operating system refuses.
        pub(crate) fn map(bytes: usize) -> Result<Self> {
            let chunk = Self::map_with(bytes, MapFlags::PRIVATE)?;
            if chunk.bytes >= CHUNK_BYTES {
                chunk.advise(0);
            }
            Ok(chunk)
        }

        /// Reserves `bytes` of address space. The kernel allocates pages when they are first touched: 4 KiB
        /// pages in the first [`CHUNK_BYTES`], huge pages after.
        ///
        /// # Errors
        /// `Retry` if the process may not have that much address space.
        pub(crate) fn reserve(bytes: usize) -> Result<Self> {
            let chunk = Self::map_with(bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
            chunk.advise(CHUNK_BYTES);
            Ok(chunk)
        }

        fn map_with(bytes: usize, flags: MapFlags) -> Result<Self> {
            let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
            // A mapping may start at any page: map as much more as aligning the start may skip.
            let padded = bytes + CHUNK_BYTES - PAGE_BYTES;
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the kernel picks the address, so no existing mapping is replaced.
            let mapped = unsafe { mmap_anonymous(null_mut(), padded, access, flags) };
            let mapped = mapped.map_err(|error| Self::no_memory(bytes, error))?.cast::<u8>();
            let head = mapped.addr().next_multiple_of(CHUNK_BYTES) - mapped.addr();
            let start = mapped.wrapping_add(head);
            unmap(mapped, head);
            unmap(start.wrapping_add(bytes), padded - head - bytes);
            let start = NonNull::new(start).ok_or_else(|| Self::no_memory(bytes, "address 0"))?;
            invariant!(
                start.addr().get().is_multiple_of(CHUNK_BYTES),
                "a chunk is aligned to its size"
            );
            Ok(Self { start, bytes })
        }

        /// Requests huge pages from offset `from` on.
        fn advise(&self, from: usize) {
            let start = self.start.as_ptr().wrapping_add(from);
            let bytes = self.bytes.saturating_sub(from);
            // SAFETY: the range belongs to this mapping. A refusal is no error: small pages are only slower.
            let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxHugepage) };
        }
    }

    impl Chunk {
        /// Gives the memory back to the operating system. The chunk stays mapped, reads as zeros, and gets
        /// memory again when touched.
        ///
        /// # Safety
        /// No other thread uses the chunk during the call, and nobody relies on its content.
        pub(crate) unsafe fn discard(&self) {
            // SAFETY: the range belongs to this mapping, which is private and anonymous, so discarded pages
            // read as zeros. A refusal leaves memory and content as they were.
            let _ =
                unsafe { madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxDontNeed) };
        }
    }

    impl Chunk {
        /// As [`Chunk::discard`], for the `bytes` from offset `from` on, cut at the end of the chunk. Both
        /// are whole pages. Other threads may use the range if they access it as atomic words only, for which
        /// the kernel stores zeros.
        pub(crate) fn discard_within(&self, from: usize, bytes: usize) {
            let bytes = bytes.min(self.bytes.saturating_sub(from));
            if bytes == 0 {
                return;
            }
            invariant!(from.is_multiple_of(PAGE_BYTES), "whole pages are discarded");
            let start = self.start.as_ptr().wrapping_add(from);
            // SAFETY: the range lies within this mapping, which is private and anonymous and stays mapped and
            // readable. No reference to the range promises that its content does not change.
            let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxDontNeed) };
        }
    }

    impl Chunk {
        /// Makes the kernel allocate the pages of the `bytes` from offset `from` on now, cut at the end of
        /// the chunk. Both are whole pages. The content stays. If the kernel refuses, it allocates the pages
        /// when they are touched.
        pub(crate) fn populate(&self, from: usize, bytes: usize) {
            invariant!(from.is_multiple_of(PAGE_BYTES), "whole pages are populated");
            let bytes = bytes.min(self.bytes.saturating_sub(from));
            let start = self.start.as_ptr().wrapping_add(from);
            // SAFETY: the range lies within this mapping, which is private, anonymous and writable. No byte
            // changes.
            let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxPopulateWrite) };
        }
    }

    impl Drop for Chunk {
        fn drop(&mut self) {
            unmap(self.start.as_ptr(), self.bytes);
        }
    }

    fn unmap(start: *mut u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the callers pass a part of their own mapping that nothing refers to. A failure leaves
            // it mapped, which only leaks it.
            let _ = unsafe { munmap(start.cast::<c_void>(), bytes) };
        }
    }
}

/// The same functions on the Rust allocator, for Miri, which does not support `madvise`.
#[cfg(miri)]
mod allocated {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use base::Result;

    use super::{CHUNK_BYTES, Chunk, PAGE_BYTES};

    impl Chunk {
        pub(crate) fn map(bytes: usize) -> Result<Self> {
            let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
            let layout = Layout::from_size_align(bytes, CHUNK_BYTES)
                .map_err(|error| Self::no_memory(bytes, error))?;
            // SAFETY: the layout's size is greater than 0.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) });
            let start = start.ok_or_else(|| Self::no_memory(bytes, "out of memory"))?;
            Ok(Self { start, bytes })
        }

        pub(crate) fn reserve(bytes: usize) -> Result<Self> {
            Self::map(bytes)
        }

        /// Does nothing: the allocator takes back no part, and [`crate::Words`] stores zeros itself.
        pub(crate) fn discard_within(&self, _from: usize, _bytes: usize) {}

        pub(crate) fn populate(&self, _from: usize, _bytes: usize) {}

        pub(crate) unsafe fn discard(&self) {
            // SAFETY: the chunk has `bytes` bytes, and the caller uses it alone.
            unsafe { self.start.write_bytes(0, self.bytes) };
        }
    }

    impl Drop for Chunk {
        fn drop(&mut self) {
            if self.bytes == 0 {
                return;
            }
            if let Ok(layout) = Layout::from_size_align(self.bytes, CHUNK_BYTES) {
                // SAFETY: `map` allocated it with this layout, and it is dropped once.
                unsafe { dealloc(self.start.as_ptr(), layout) };
            }
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_aligned_zeroed_and_writable_to_its_end() {
        for bytes in [1, 4096, CHUNK_BYTES, CHUNK_BYTES + 1] {
            let chunk = Chunk::map(bytes).unwrap();
            assert_eq!(chunk.start().addr().get() % CHUNK_BYTES, 0);
            // SAFETY: the last requested byte lies within the chunk.
            let last = unsafe { chunk.start().add(bytes - 1) };
            // SAFETY: a mapped chunk is initialised with zeros.
            assert_eq!(unsafe { last.read() }, 0);
            // SAFETY: `chunk` owns the byte.
            unsafe { last.write(7) };
        }
    }
}

//! Chunks of raw memory straight from the operating system, huge pages asked for.
//!
//! A chunk is zeroed, starts at a multiple of 2 MiB and is given back when dropped. The owner
//! charges an account before it maps one (I10). Mapping costs two or three system calls; touching
//! a fresh 2 MiB page costs the kernel about 0.1 ms for zeroing it.

use std::ptr::NonNull;

use base::Error;
use base::limits::PAGE_BYTES;

/// The size of a huge page, and of most chunks, bytes. Few frames under Miri, to which each reference to a
/// chunk is one to every atomic in the headers of its frames.
pub(crate) const CHUNK_BYTES: usize = if cfg!(miri) { 16 * PAGE_BYTES } else { 2 << 20 };

/// Zeroed memory that nobody else has.
pub(crate) struct Chunk {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a `Chunk` owns its mapping; it hands out nothing but the address.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// A chunk of no bytes, in the place of one that was handed on.
    pub(crate) const fn none() -> Self {
        Self { start: NonNull::dangling(), bytes: 0 }
    }

    /// The first byte, aligned to [`CHUNK_BYTES`]. Valid for the whole chunk until it is dropped.
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn refused(bytes: usize, error: impl std::fmt::Display) -> Error {
        Error::retry("memory from the operating system")
            .expected(format_args!("{bytes} B"))
            .got(error)
    }
}

#[cfg(not(miri))]
mod mapped {
    use std::ffi::c_void;
    use std::ptr::{NonNull, null_mut};

    use base::Result;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{CHUNK_BYTES, Chunk, PAGE_BYTES};

    impl Chunk {
        /// Maps `bytes`, rounded up to whole 4 KiB pages; at least one.
        ///
        /// # Errors
        /// `Retry` where the operating system has none to give.
        pub(crate) fn map(bytes: usize) -> Result<Self> {
            let chunk = Self::map_with(bytes, MapFlags::PRIVATE)?;
            if chunk.bytes >= CHUNK_BYTES {
                chunk.advise(0);
            }
            Ok(chunk)
        }

        /// Takes `bytes` of address space. Pages become memory when first touched: small ones in
        /// the first [`CHUNK_BYTES`], huge ones after.
        ///
        /// # Errors
        /// `Retry` where the process may not have that much.
        pub(crate) fn reserve(bytes: usize) -> Result<Self> {
            let chunk = Self::map_with(bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
            chunk.advise(CHUNK_BYTES);
            Ok(chunk)
        }

        fn map_with(bytes: usize, flags: MapFlags) -> Result<Self> {
            let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
            // A mapping starts at any page: take as much more as aligning the start can cost.
            let padded = bytes + CHUNK_BYTES - PAGE_BYTES;
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the kernel picks the address, so no existing mapping is replaced.
            let mapped = unsafe { mmap_anonymous(null_mut(), padded, access, flags) };
            let mapped = mapped.map_err(|error| Self::refused(bytes, error))?.cast::<u8>();
            let head = mapped.addr().next_multiple_of(CHUNK_BYTES) - mapped.addr();
            let start = mapped.wrapping_add(head);
            unmap(mapped, head);
            unmap(start.wrapping_add(bytes), padded - head - bytes);
            let start = NonNull::new(start).ok_or_else(|| Self::refused(bytes, "address 0"))?;
            Ok(Self { start, bytes })
        }

        /// Asks for huge pages from offset `from` on.
        fn advise(&self, from: usize) {
            let start = self.start.as_ptr().wrapping_add(from);
            let bytes = self.bytes.saturating_sub(from);
            // SAFETY: the range is this mapping's own. Only advice: without huge pages all is
            // slower and nothing is wrong, so a refusal is no error.
            let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxHugepage) };
        }
    }

    impl Chunk {
        /// Gives the memory back to the operating system. The chunk stays, zeroed, and takes memory
        /// again as it is touched.
        ///
        /// # Safety
        /// Nobody else uses any of it meanwhile, and nobody relies on its content.
        pub(crate) unsafe fn discard(&self) {
            // SAFETY: the range is this mapping's own, private and anonymous: pages that are gone
            // read as zeros. A refusal leaves the memory taken, and the content as it was.
            let _ =
                unsafe { madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxDontNeed) };
        }
    }

    impl Chunk {
        /// As [`Chunk::discard`], of `bytes` from the offset `from` on, both whole pages, as far as
        /// they lie within. For atomic words, to whose users the kernel stores zeros, and for what
        /// nobody was given yet.
        pub(crate) fn discard_within(&self, from: usize, bytes: usize) {
            let bytes = bytes.min(self.bytes.saturating_sub(from));
            if bytes == 0 {
                return;
            }
            let start = self.start.as_ptr().wrapping_add(from);
            // SAFETY: the range lies within this mapping, private and anonymous, which stays mapped
            // and readable; no reference to any of it promises that it does not change.
            let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxDontNeed) };
        }
    }

    impl Chunk {
        /// Takes the memory of `bytes` from the offset `from` on now, both whole pages, as far as
        /// they lie within. The content stays. Where the kernel cannot, it is taken when touched.
        pub(crate) fn populate(&self, from: usize, bytes: usize) {
            let bytes = bytes.min(self.bytes.saturating_sub(from));
            let start = self.start.as_ptr().wrapping_add(from);
            // SAFETY: the range lies within this mapping, private, anonymous and writable, and no
            // byte of it changes.
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
            // SAFETY: both callers pass a part of their own mapping that nothing refers to. A
            // failure leaves it mapped, which is a leak and no more.
            let _ = unsafe { munmap(start.cast::<c_void>(), bytes) };
        }
    }
}

/// Miri knows no `mmap` with advice: the allocator stands in.
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
                .map_err(|error| Self::refused(bytes, error))?;
            // SAFETY: the layout's size is above zero.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) });
            let start = start.ok_or_else(|| Self::refused(bytes, "none left"))?;
            Ok(Self { start, bytes })
        }

        pub(crate) fn reserve(bytes: usize) -> Result<Self> {
            Self::map(bytes)
        }

        /// The allocator takes nothing back, and users of words store their zeros themselves.
        pub(crate) fn discard_within(&self, _from: usize, _bytes: usize) {}

        pub(crate) fn populate(&self, _from: usize, _bytes: usize) {}

        pub(crate) unsafe fn discard(&self) {
            // SAFETY: the chunk is this long, and the caller has all of it.
            unsafe { self.start.write_bytes(0, self.bytes) };
        }
    }

    impl Drop for Chunk {
        fn drop(&mut self) {
            if self.bytes == 0 {
                return;
            }
            if let Ok(layout) = Layout::from_size_align(self.bytes, CHUNK_BYTES) {
                // SAFETY: allocated in `map` with this very layout, and dropped once.
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
            // SAFETY: the last byte asked for lies within the chunk.
            let last = unsafe { chunk.start().add(bytes - 1) };
            // SAFETY: zeroed when mapped.
            assert_eq!(unsafe { last.read() }, 0);
            // SAFETY: owned by `chunk`.
            unsafe { last.write(7) };
        }
    }
}

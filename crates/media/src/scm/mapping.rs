//! Mapped memory that a region owns, and the system calls on it.
//!
//! A mapping hands out nothing but its address; who dereferences it says why that is sound.

use std::fs;
use std::io;
use std::ptr::NonNull;

#[cfg(not(miri))]
use super::watch::Watch;

/// Bytes mapped for as long as it lives.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    #[cfg(not(miri))]
    watch: Watch,
}

// SAFETY: a `Mapping` owns its address range; it hands out nothing but the address.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first byte, page-aligned; valid for [`Mapping::len`] bytes until this is dropped.
    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes are mapped.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The address of the bytes from `at` on, and how many of `len` lie within.
    #[cfg(not(miri))]
    fn part(&self, at: usize, len: usize) -> (*mut u8, usize) {
        let at = at.min(self.len);
        (self.start.as_ptr().wrapping_add(at), len.min(self.len - at))
    }
}

#[cfg(not(miri))]
mod mapped {
    use super::{Mapping, NonNull, Watch, fs, io};

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};
    use std::ptr::null_mut;

    impl Mapping {
        /// Maps the first `len` bytes of `file`, which must be allocated, or a device's own. With
        /// `is_synchronous` only if what is stored and flushed needs no sync of the file: real DAX.
        pub(in crate::scm) fn shared(
            file: &fs::File,
            len: usize,
            is_synchronous: bool,
        ) -> io::Result<Self> {
            let flags = match is_synchronous {
                true => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
                false => MapFlags::SHARED,
            };
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let watch = Watch::new()?;
            // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
            let start = unsafe { mmap(null_mut(), len, access, flags, file, 0) }?;
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
            let mapping = Self { start, len, watch };
            mapping.watch.begin(start, len)?;
            Ok(mapping)
        }

        /// `len` zeroed bytes that belong to no file system. Shared memory, so that the system
        /// counts it apart from a process's own (`RssShmem`). It is taken as it is touched.
        pub(in crate::scm) fn anonymous(len: usize) -> io::Result<Self> {
            let file = fs::File::from(memfd_create("terrace-scm", MemfdFlags::CLOEXEC)?);
            file.set_len(len as u64)?;
            Self::shared(&file, len, false)
        }

        /// Whether bytes of it went away since it was mapped, so that nothing that was read there counts.
        pub(in crate::scm) fn is_lost(&self) -> bool {
            self.watch.is_lost()
        }

        /// Takes the memory of all of it now, so that a shortage is an error here and no signal later.
        pub(in crate::scm) fn populate(&self) -> io::Result<()> {
            // SAFETY: the range is this mapping's own, shared and writable; no byte of it changes.
            unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxPopulateWrite) }?;
            Ok(())
        }

        /// Has every page that is touched from now on come from NUMA node `node`, and no other.
        pub(in crate::scm) fn bind(&self, node: u32) -> io::Result<()> {
            let bits = libc::c_ulong::BITS;
            let mut mask: [libc::c_ulong; 16] = [0; 16];
            let word = mask.get_mut((node / bits) as usize).ok_or(io::ErrorKind::InvalidInput)?;
            *word = 1 << (node % bits);
            // The kernel reads one bit less than it is told.
            let mask_bits = mask.len() * bits as usize + 1;
            // SAFETY: the range is this mapping's own, and `mask` is live and as long as said.
            let outcome = unsafe {
                libc::syscall(
                    libc::SYS_mbind,
                    self.start.as_ptr(),
                    self.len,
                    libc::MPOL_BIND,
                    mask.as_ptr(),
                    mask_bits,
                    0,
                )
            };
            if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        }

        /// Writes `len` bytes at `at`, whole pages, to the file and waits for it.
        pub(in crate::scm) fn sync(&self, at: usize, len: usize) -> io::Result<()> {
            let (start, len) = self.part(at, len);
            // SAFETY: the range lies within this mapping; no byte of it changes.
            unsafe { msync(start.cast(), len, MsyncFlags::SYNC) }?;
            Ok(())
        }

        /// Has `len` bytes at `at` leave the processor's caches for the medium.
        pub(in crate::scm) fn flush(&self, at: usize, len: usize) {
            let (start, len) = self.part(at, len);
            // SAFETY: the range lies within this mapping.
            unsafe { crate::scm::flush::flush(start, len) };
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            self.watch.end();
            // SAFETY: mapped with this very length, dropped once, and nothing that was lent outlives
            // the owner. A failure leaves it mapped, which is a leak and no more.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// Miri knows neither files that are mapped nor policies: the allocator stands in.
#[cfg(miri)]
mod allocated {
    use super::{Mapping, NonNull, fs, io};

    use base::limits::PAGE_BYTES;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, PAGE_BYTES).unwrap_or(Layout::new::<u8>())
    }

    impl Mapping {
        pub(in crate::scm) fn shared(_: &fs::File, _: usize, _: bool) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in crate::scm) fn anonymous(len: usize) -> io::Result<Self> {
            // SAFETY: callers ask for at least a page.
            let start = NonNull::new(unsafe { alloc_zeroed(layout(len)) });
            Ok(Self { start: start.ok_or(io::ErrorKind::OutOfMemory)?, len })
        }

        pub(in crate::scm) fn is_lost(&self) -> bool {
            false
        }

        pub(in crate::scm) fn populate(&self) -> io::Result<()> {
            Ok(())
        }

        pub(in crate::scm) fn bind(&self, _node: u32) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in crate::scm) fn sync(&self, _at: usize, _len: usize) -> io::Result<()> {
            Ok(())
        }

        pub(in crate::scm) fn flush(&self, _at: usize, _len: usize) {}
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: allocated with this very layout, and dropped once.
            unsafe { dealloc(self.start.as_ptr(), layout(self.len)) }
        }
    }
}

//! A file mapped into memory, shared with the page cache of the operating system.
//!
//! Bytes stored through the mapping are in the page cache at once: they survive the death of the process,
//! and every later read of the file sees them. The next `fdatasync` makes them durable without an `msync`:
//! Linux marks a page of a shared mapping dirty in the file's page cache at the first store, and `fdatasync`
//! writes the dirty pages of that cache.
//!
//! The whole file is mapped once, and only `madvise` changes which of its pages are present: mapping and
//! unmapping lock the address space of the process, and wait for every thread with a page fault in it.
//!
//! Mapped space must be allocated and must not be cut off during a store, because a store that the file
//! system cannot back raises a signal and not an error.

use std::fs;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// The only writer of a mapped file.
#[derive(Debug)]
pub(super) struct Mapped {
    pages: Arc<MappedPages>,
}

/// The address range of a mapped file, without access to its bytes.
#[derive(Debug)]
pub(super) struct MappedPages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the `MappedPages` alone, and a raw pointer has no tie to a thread.
unsafe impl Send for MappedPages {}
// SAFETY: shared references only give advice about the mapping and touch no byte.
unsafe impl Sync for MappedPages {}

impl Mapped {
    /// Maps the first `len` bytes of `file`.
    pub(super) fn map(file: &fs::File, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let start = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self { pages: Arc::new(MappedPages { start, len }) }),
            None => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Number of mapped bytes.
    pub(super) fn len(&self) -> u64 {
        self.pages.len as u64
    }

    /// The address range, for advice while a thread stores.
    pub(super) fn pages(&self) -> Arc<MappedPages> {
        Arc::clone(&self.pages)
    }

    /// Stores `bytes` at offset `at` of the file.
    ///
    /// # Panics
    /// If the bytes do not lie within the mapping.
    pub(super) fn store(&mut self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.pages.len), "a store lies within the mapping");
        // SAFETY: `at` is at most the mapping's length, as was just checked.
        let target = unsafe { self.pages.start.add(at) };
        // SAFETY: the target is `bytes.len()` mapped bytes that only `self`, borrowed alone, writes; `bytes`
        // is a live borrow, which cannot lie in a mapping that nobody else can name.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr(), bytes.len()) }
    }
}

impl MappedPages {
    /// Makes the pages of `range` present and writable, so that stores take no page fault. A fault takes a
    /// microsecond, and tens of milliseconds while the file system's journal is written, because the first
    /// store to a page changes the file's time stamp.
    pub(super) fn populate(&self, range: Range<u64>) {
        // Kernels before 5.14 refuse it.
        self.advise(range, Advice::LinuxPopulateWrite);
    }

    /// Removes the pages of `range` from the memory of the process. Their content stays in the page cache; a
    /// later store takes a page fault.
    pub(super) fn release(&self, range: Range<u64>) {
        self.advise(range, Advice::LinuxDontNeed);
    }

    fn advise(&self, range: Range<u64>, advice: Advice) {
        let within = |at: u64| usize::try_from(at).map_or(self.len, |at| at.min(self.len));
        let (from, end) = (within(range.start) / PAGE_BYTES * PAGE_BYTES, within(range.end));
        if from >= end {
            return;
        }
        // SAFETY: `from` is less than the mapping's length.
        let start = unsafe { self.start.add(from) };
        // SAFETY: the range is mapped, from a page's start and at most to the end. Neither advice changes a
        // byte of a file that is mapped shared; if the kernel refuses it, or the file was cut, the result is
        // an error and no signal, and the mapping is unchanged.
        let _ = unsafe { madvise(start.as_ptr().cast(), end - from, advice) };
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, unmapped once, and no borrow outlives `self`.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "an owned mapping can be unmapped");
    }
}

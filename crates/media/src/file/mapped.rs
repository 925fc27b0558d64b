//! A file mapped into memory, shared with the operating system's cache.
//!
//! Bytes stored through it are in the cache at once: they survive the death of the process, and
//! every later read of the file sees them. The next `fdatasync` of the file makes them durable
//! without an `msync`: Linux notes a page of a shared mapping as dirty in the file's own page
//! cache when it is first written, which is what `fdatasync` walks.
//!
//! All of the file is mapped at once, and which of its pages are there is changed by advice alone:
//! mapping and unmapping want the process's address space for themselves, and wait for every thread
//! that has a page fault in it, some of which wait for a processor.
//!
//! What is mapped must be allocated and not cut off while it is stored to, because a store that the
//! file system cannot back raises a signal, not an error.

use std::fs;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// The right to store to a mapped file.
#[derive(Debug)]
pub(super) struct Mapped {
    pages: Arc<Pages>,
}

/// The memory of a mapped file, apart from what it holds.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the `Pages` alone, and a raw pointer has no tie to a thread.
unsafe impl Send for Pages {}
// SAFETY: what is done through a shared reference gives advice about the mapping and touches no byte.
unsafe impl Sync for Pages {}

impl Mapped {
    /// Maps the first `len` bytes of `file`.
    pub(super) fn map(file: &fs::File, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let start = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self { pages: Arc::new(Pages { start, len }) }),
            None => Err(io::ErrorKind::Other.into()),
        }
    }

    /// For advice while others store.
    pub(super) fn pages(&self) -> Arc<Pages> {
        Arc::clone(&self.pages)
    }

    /// Stores `bytes` from offset `at` of the file on.
    ///
    /// # Panics
    /// Where they do not lie within what is mapped.
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

impl Pages {
    /// Has the pages of `range` of the file there and writable, so that stores meet no page fault. A
    /// fault takes a microsecond, and tens of milliseconds where the file system's journal is being
    /// written: the first store to a page changes the file's time.
    pub(super) fn populate(&self, range: Range<u64>) {
        // Kernels before 5.14 refuse it.
        self.advise(range, Advice::LinuxPopulateWrite);
    }

    /// Has the pages of `range` count in the process's memory no more. What they hold stays in the
    /// operating system's cache; a later store takes a page fault.
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
        // SAFETY: the range is mapped, from a page's start on and at most to the end. Neither advice
        // changes a byte of a file that is mapped shared; where one is refused, or the file was cut, it
        // is an error and no signal, and all is as it was.
        let _ = unsafe { madvise(start.as_ptr().cast(), end - from, advice) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, unmapped once, and no borrow outlives `self`.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "an owned mapping can be unmapped");
    }
}

//! A piece of a file mapped into memory, shared with the operating system's cache.
//!
//! Bytes stored through it are in the cache at once: they survive the death of the process, and
//! every later read of the file sees them. The next `fdatasync` of the file makes them durable
//! without an `msync`: Linux notes a page of a shared mapping as dirty in the file's own page
//! cache when it is first written, which is what `fdatasync` walks.
//!
//! A window must lie in space that is allocated and not cut off while it lives, because a store
//! that the file system cannot back raises a signal, not an error.

use std::fs;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// The length of a window, bytes: some milliseconds of writing, in which the next one is made ahead,
/// and small enough that a handful of windows of dirty pages do not count in a process's memory.
pub(super) const WINDOW_BYTES: usize = 1 << 20;

/// One mapped piece.
#[derive(Debug)]
pub(super) struct Window {
    start: NonNull<u8>,
    at: u64,
    is_populated: bool,
}

// SAFETY: the mapping belongs to the `Window` alone; a raw pointer has no tie to a thread.
unsafe impl Send for Window {}

impl Window {
    /// Maps the [`WINDOW_BYTES`] that hold offset `at`.
    pub(super) fn map(file: &fs::File, at: u64) -> io::Result<Self> {
        let at = at - at % WINDOW_BYTES as u64;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let start =
            unsafe { mmap(ptr::null_mut(), WINDOW_BYTES, access, MapFlags::SHARED, file, at) }?;
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self { start, at, is_populated: false }),
            None => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Where in the file it begins.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Whether offset `at` of the file lies in it.
    pub(super) fn holds(&self, at: u64) -> bool {
        at.checked_sub(self.at).is_some_and(|from| from < WINDOW_BYTES as u64)
    }

    /// Has its pages below offset `end` of the file there and writable, so that stores meet no page
    /// fault. A fault takes a microsecond, and tens of milliseconds where the file system's journal is
    /// being written: the first store to a page changes the file's time.
    pub(super) fn populate(&mut self, end: u64) {
        if std::mem::replace(&mut self.is_populated, true) {
            return;
        }
        let len = usize::try_from(end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        // SAFETY: the range is mapped, from its start and at most to its end, and the advice changes
        // no byte of it. Kernels before 5.14 refuse it.
        let _ = unsafe {
            madvise(self.start.as_ptr().cast(), len.min(WINDOW_BYTES), Advice::LinuxPopulateWrite)
        };
    }

    /// Stores the front of `bytes` that lies in the window, from offset `at` of the file on; how
    /// many bytes that was. 0 where `at` lies outside.
    pub(super) fn store(&mut self, at: u64, bytes: &[u8]) -> usize {
        let Some(from) = at.checked_sub(self.at).and_then(|from| usize::try_from(from).ok()) else {
            return 0;
        };
        let len = bytes.len().min(WINDOW_BYTES.saturating_sub(from));
        if len > 0 {
            // SAFETY: `from + len` is at most the mapping's length, as `len` is over 0.
            let target = unsafe { self.start.add(from) };
            // SAFETY: the target is `len` mapped bytes that only `self`, borrowed alone, writes;
            // `bytes` is a live borrow, which cannot lie in a mapping that nobody else can name.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr(), len) }
        }
        len
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, unmapped once, and no borrow outlives `self`.
        let result = unsafe { munmap(self.start.as_ptr().cast(), WINDOW_BYTES) };
        debug_assert!(result.is_ok(), "an owned mapping can be unmapped");
    }
}

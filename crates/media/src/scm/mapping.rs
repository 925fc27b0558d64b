//! Mapped memory that a region owns, and the system calls on it.
//!
//! A mapping exposes only its address; code that dereferences it states why that is sound.

#[cfg(miri)]
mod allocated;
#[cfg(not(miri))]
mod mapped;

use std::ptr::NonNull;

#[cfg(not(miri))]
use super::watch::Watch;

/// Bytes that are mapped until the mapping is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    #[cfg(not(miri))]
    watch: Watch,
}

// SAFETY: a `Mapping` owns its address range and exposes only the address.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The address of the first byte, page-aligned; valid for [`Mapping::len`] bytes until this is dropped.
    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Number of mapped bytes.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Copies `bytes` to offset `at`. Only for a mapping that its owner reads by other means.
    ///
    /// # Panics
    /// If the bytes do not lie within the mapping.
    pub(super) fn store(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "a store lies within the mapping");
        // SAFETY: `at` is at most the mapping's length, as was just checked.
        let target = unsafe { self.start.add(at) };
        // SAFETY: the target is `bytes.len()` mapped bytes that only `self`, borrowed alone, writes; `bytes`
        // is a live borrow, which cannot lie in a mapping whose address nobody else has.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr(), bytes.len()) }
    }

    /// The address of offset `at`, and how many of `len` bytes from there are mapped.
    #[cfg(not(miri))]
    fn part(&self, at: usize, len: usize) -> (*mut u8, usize) {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.len);
        base::invariant!(is_within, "persisted bytes lie within the mapping");
        let at = at.min(self.len);
        (self.start.as_ptr().wrapping_add(at), len.min(self.len - at))
    }
}

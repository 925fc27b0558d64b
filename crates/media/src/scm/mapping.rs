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

/// Bytes that one instruction reads.
const WORD_BYTES: usize = size_of::<u64>();

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

    /// Copies the bytes from offset `at` on to `bytes`. Others may store to the file meanwhile: each word is
    /// then the old or the new one.
    ///
    /// # Panics
    /// If the bytes do not lie within the mapping.
    pub(super) fn load(&self, at: usize, bytes: &mut [u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "a load lies within the mapping");
        let before = at % WORD_BYTES;
        let first = if before == 0 { 0 } else { bytes.len().min(WORD_BYTES - before) };
        let (first, rest) = bytes.split_at_mut(first);
        let mut from = at - before;
        if !first.is_empty() {
            let word = self.word(from);
            first.iter_mut().zip(word.iter().skip(before)).for_each(|(to, byte)| *to = *byte);
            from += WORD_BYTES;
        }
        let (words, last) = rest.as_chunks_mut();
        for to in words {
            *to = self.word(from);
            from += WORD_BYTES;
        }
        if !last.is_empty() {
            let word = self.word(from);
            last.iter_mut().zip(word).for_each(|(to, byte)| *to = byte);
        }
    }

    /// The aligned word at offset `at` of the mapping.
    fn word(&self, at: usize) -> [u8; WORD_BYTES] {
        debug_assert!(at < self.len && at.is_multiple_of(WORD_BYTES), "a word of the mapping");
        // SAFETY: the word begins in the mapping.
        let start = unsafe { self.start.add(at) }.cast::<u64>().as_ptr();
        // SAFETY: the word is aligned, and ends in the mapping because whole pages are mapped. A volatile
        // read, because other mappings may store to it.
        let word = unsafe { start.read_volatile() };
        #[expect(clippy::host_endian_bytes, reason = "the bytes of memory, in their order")]
        word.to_ne_bytes()
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

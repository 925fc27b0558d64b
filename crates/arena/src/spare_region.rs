//! A spare region: address space, the first bytes of which have memory, for the next region.

use base::{Charge, Result, invariant};

use crate::chunk::{CHUNK_BYTES, Chunk};

/// The size of a region, bytes of address space: the reach of 31-bit offsets, far above the size of any
/// memtable, so that no region fills up in normal use.
const REGION_BYTES: usize = if cfg!(miri) { 2 << 20 } else { 16 << 30 };

// A stored offset has 31 bits and counts units of 8 bytes.
const _: () = assert!(REGION_BYTES / 8 <= 1 << 31);

/// The smallest region, bytes. If the process may not even reserve this much, its address space is full.
const REGION_BYTES_MIN: usize = 1 << 20;

/// Memory of a dropped region, or memory prefaulted for the next one.
pub(crate) struct SpareRegion {
    pub(crate) chunk: Chunk,
    /// The size of the chunk, bytes.
    pub(crate) capacity: u64,
    /// Covers the memory at the start of the chunk.
    pub(crate) prefaulted: Charge,
}

impl SpareRegion {
    /// Reserves address space for a region. `prefaulted` covers the memory that the caller is going to
    /// prefault at its start; it is empty if there is none.
    ///
    /// # Errors
    /// `Retry` if the process may not reserve it.
    pub(crate) fn reserve(prefaulted: Charge) -> Result<Self> {
        let mut capacity = REGION_BYTES;
        // An operating system that limits address space may refuse the full size.
        loop {
            match Chunk::reserve(capacity) {
                Ok(chunk) => return Ok(Self { chunk, capacity: capacity as u64, prefaulted }),
                Err(error) if capacity <= REGION_BYTES_MIN => return Err(error),
                Err(_) => capacity /= 2,
            }
        }
    }

    /// Bytes of memory at the start of the region.
    pub(crate) fn bytes(&self) -> u64 {
        self.prefaulted.bytes()
    }

    /// Gives back the memory after the first `bytes`, rounded up to whole chunks.
    pub(crate) fn trim(&mut self, bytes: u64) {
        invariant!(
            self.bytes() <= self.capacity,
            "a region's memory lies within its address space"
        );
        let Some(keep) = bytes.checked_next_multiple_of(CHUNK_BYTES as u64) else { return };
        if let Some(excess @ 1..) = self.bytes().checked_sub(keep) {
            self.chunk.discard_within(keep as usize, excess as usize);
            self.prefaulted.shrink_to(keep);
        }
    }
}

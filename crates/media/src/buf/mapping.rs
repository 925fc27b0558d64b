//! A pool of anonymous mappings for buffers: a returned mapping keeps its addresses and loses its pages.
//!
//! Creating or removing a mapping takes the lock of the whole address space exclusively: it waits for every
//! thread with a page fault, and later faults wait for it. Merges use some hundred buffers a second, and a
//! writer that touched new memory waited up to 17 ms (docs/decisions/013-device-access.md). Releasing pages
//! takes that lock shared. The pool holds addresses only and no memory, so nothing is charged.

use std::collections::VecDeque;
use std::ptr::{NonNull, null_mut};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Mappings up to this length are pooled, bytes. Their lengths are rounded up to a power of two, so that a
/// returned mapping fits other buffers.
const POOLED_LEN_MAX: usize = 4 << 20;

/// The most addresses pooled, bytes.
const POOL_BYTES_MAX: usize = 64 << 20;

static MAPPING_POOL: Mutex<MappingPool> = Mutex::new(MappingPool::new());

/// The returned mappings, oldest first: all without pages, so that they read as zeros.
struct MappingPool {
    mappings: VecDeque<Mapping>,
    bytes: usize,
}

/// Zeroed bytes mapped from the operating system.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is owned alone, as a `Box<[u8]>` is.
unsafe impl Send for Mapping {}

impl Mapping {
    /// At least `len` zeroed bytes; `None` if the system has none.
    pub(super) fn new(len: usize) -> Option<Self> {
        if cfg!(miri) {
            return None;
        }
        Self::of(&MAPPING_POOL, len)
    }

    fn of(pool: &Mutex<MappingPool>, len: usize) -> Option<Self> {
        let len = if len <= POOLED_LEN_MAX { len.next_power_of_two() } else { len };
        if let Some(mapping) = pool.lock().take(len) {
            return Some(mapping);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks the address, so no existing mapping is replaced.
        let start = unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE) };
        Some(Self { start: NonNull::new(start.ok()?.cast())?, len })
    }

    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the bytes to the pool. No pointer to them may be used any more.
    pub(super) fn give_back(self) {
        self.return_to(&MAPPING_POOL);
    }

    fn return_to(self, pool: &Mutex<MappingPool>) {
        if self.len > POOLED_LEN_MAX {
            return self.unmap();
        }
        // SAFETY: the caller guarantees that no other code uses these bytes; they are zeros afterwards.
        let released =
            unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontNeed) };
        if released.is_err() {
            return self.unmap();
        }
        let mut excess = pool.lock().add(self);
        while let Some(oldest) = excess {
            oldest.unmap();
            excess = pool.lock().excess();
        }
    }

    fn unmap(self) {
        // SAFETY: mapped in `of` with this length, and owned alone. If unmapping fails, the mapping leaks.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl MappingPool {
    const fn new() -> Self {
        Self { mappings: VecDeque::new(), bytes: 0 }
    }

    fn take(&mut self, len: usize) -> Option<Mapping> {
        let at = self.mappings.iter().rposition(|mapping| mapping.len == len)?;
        base::invariant!(self.bytes >= len, "the pool counts the bytes of its mappings");
        self.bytes -= len;
        self.mappings.remove(at)
    }

    /// Adds `mapping`. Returns a mapping to remove in exchange, if the pool is full.
    fn add(&mut self, mapping: Mapping) -> Option<Mapping> {
        self.bytes += mapping.len;
        self.mappings.push_back(mapping);
        self.excess()
    }

    /// The oldest mapping, if the pool exceeds its bound.
    fn excess(&mut self) -> Option<Mapping> {
        if self.bytes <= POOL_BYTES_MAX {
            return None;
        }
        let oldest = self.mappings.pop_front();
        base::invariant!(oldest.is_some(), "pooled bytes belong to mappings");
        self.bytes -= oldest.as_ref().map_or(0, |mapping| mapping.len);
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a mapping.
    fn bytes(mapping: &mut Mapping) -> &mut [u8] {
        // SAFETY: mapped with this length, initialised by the system, borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(mapping.start.as_ptr(), mapping.len) }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn a_returned_mapping_is_reused_and_zeroed() {
        let (pool, len) = (Mutex::new(MappingPool::new()), 256 << 10);
        let mut first = Mapping::of(&pool, len - 5).unwrap();
        assert_eq!(first.len, len);
        bytes(&mut first).fill(7);
        let start = first.start;
        first.return_to(&pool);
        let other = Mapping::of(&pool, 2 * len).unwrap();
        assert_ne!(other.start, start);
        let mut again = Mapping::of(&pool, len).unwrap();
        assert_eq!(again.start, start);
        assert!(bytes(&mut again).iter().all(|byte| *byte == 0));
        assert_eq!(pool.lock().bytes, 0);
        [other, again].into_iter().for_each(Mapping::unmap);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn the_pool_stays_within_its_bounds() {
        let (pool, len) = (Mutex::new(MappingPool::new()), POOLED_LEN_MAX);
        let many: Vec<_> =
            (0..2 * POOL_BYTES_MAX / len).map(|_| Mapping::of(&pool, len).unwrap()).collect();
        many.into_iter().for_each(|mapping| mapping.return_to(&pool));
        assert_eq!(pool.lock().bytes, POOL_BYTES_MAX);
        assert_eq!(pool.lock().mappings.len(), POOL_BYTES_MAX / len);
        // A new mapping replaces the oldest.
        Mapping::of(&pool, len / 2).unwrap().return_to(&pool);
        assert_eq!(pool.lock().bytes, POOL_BYTES_MAX - len / 2);
        assert!(pool.lock().take(len / 2).map(Mapping::unmap).is_some());
        std::mem::take(&mut pool.lock().mappings).into_iter().for_each(Mapping::unmap);
        // A longer mapping is not pooled.
        let (pool, long) = (Mutex::new(MappingPool::new()), POOLED_LEN_MAX + 1);
        let mapping = Mapping::of(&pool, long).unwrap();
        assert_eq!(mapping.len, long);
        mapping.return_to(&pool);
        assert_eq!(pool.lock().bytes, 0);
    }
}

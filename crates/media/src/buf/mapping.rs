//! Anonymous mappings that outlive their buffers: given back they keep their addresses, and lose their pages.
//!
//! A mapping that comes or goes takes the lock of the whole address space, which waits for every thread
//! with a page fault, and every fault after it waits for that. Merges have some hundred buffers a second,
//! so a writer that touched new memory waited up to 17 ms (docs/performance.md). Giving pages back takes
//! that lock shared. What is kept is addresses only: no memory, and so no charge.

use std::collections::VecDeque;
use std::ptr::{NonNull, null_mut};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Lengths are rounded up to a power of two, so that what one buffer gave back does for another.
const KEPT_LEN_MAX: usize = 4 << 20;

/// Addresses kept in all, bytes.
const KEPT_BYTES_MAX: usize = 64 << 20;

static MAPPING_POOL: Mutex<MappingPool> = Mutex::new(MappingPool::new());

/// What was given back, oldest first: all of it without pages, so that it reads as zeros.
struct MappingPool {
    mappings: VecDeque<Mapping>,
    bytes: usize,
}

/// Zeroed bytes of the operating system's.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is owned alone, as a `Box<[u8]>` is.
unsafe impl Send for Mapping {}

impl Mapping {
    /// At least `len` zeroed bytes; `None` where the system has none.
    pub(super) fn new(len: usize) -> Option<Self> {
        if cfg!(miri) {
            return None;
        }
        Self::of(&MAPPING_POOL, len)
    }

    fn of(kept: &Mutex<MappingPool>, len: usize) -> Option<Self> {
        let len = if len <= KEPT_LEN_MAX { len.next_power_of_two() } else { len };
        if let Some(mapping) = kept.lock().take(len) {
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

    /// Gives the bytes back. Nothing may point to them any more.
    pub(super) fn give_back(self) {
        self.give_back_to(&MAPPING_POOL);
    }

    fn give_back_to(self, kept: &Mutex<MappingPool>) {
        if self.len > KEPT_LEN_MAX {
            return self.unmap();
        }
        // SAFETY: nobody else has these bytes, as the caller says; they are zeros afterwards.
        let gone = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontNeed) };
        if gone.is_err() {
            return self.unmap();
        }
        let mut out = kept.lock().add(self);
        while let Some(oldest) = out {
            oldest.unmap();
            out = kept.lock().excess();
        }
    }

    fn unmap(self) {
        // SAFETY: mapped in `of` with this very length, and owned alone. A failure leaves it mapped,
        // which is a leak and no more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl MappingPool {
    const fn new() -> Self {
        Self { mappings: VecDeque::new(), bytes: 0 }
    }

    fn take(&mut self, len: usize) -> Option<Mapping> {
        let at = self.mappings.iter().rposition(|mapping| mapping.len == len)?;
        self.bytes -= len;
        self.mappings.remove(at)
    }

    /// Keeps `mapping`; the one to unmap for it, if any.
    fn add(&mut self, mapping: Mapping) -> Option<Mapping> {
        self.bytes += mapping.len;
        self.mappings.push_back(mapping);
        self.excess()
    }

    /// The oldest, while more is kept than may be.
    fn excess(&mut self) -> Option<Mapping> {
        if self.bytes <= KEPT_BYTES_MAX {
            return None;
        }
        let oldest = self.mappings.pop_front()?;
        self.bytes -= oldest.len;
        Some(oldest)
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
    fn one_that_was_given_back_is_used_again_and_zeroed() {
        let (kept, len) = (Mutex::new(MappingPool::new()), 256 << 10);
        let mut first = Mapping::of(&kept, len - 5).unwrap();
        assert_eq!(first.len, len);
        bytes(&mut first).fill(7);
        let start = first.start;
        first.give_back_to(&kept);
        let other = Mapping::of(&kept, 2 * len).unwrap();
        assert_ne!(other.start, start);
        let mut again = Mapping::of(&kept, len).unwrap();
        assert_eq!(again.start, start);
        assert!(bytes(&mut again).iter().all(|byte| *byte == 0));
        assert_eq!(kept.lock().bytes, 0);
        [other, again].into_iter().for_each(Mapping::unmap);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn no_more_is_kept_than_the_bounds() {
        let (kept, len) = (Mutex::new(MappingPool::new()), KEPT_LEN_MAX);
        let many: Vec<_> =
            (0..2 * KEPT_BYTES_MAX / len).map(|_| Mapping::of(&kept, len).unwrap()).collect();
        many.into_iter().for_each(|mapping| mapping.give_back_to(&kept));
        assert_eq!(kept.lock().bytes, KEPT_BYTES_MAX);
        assert_eq!(kept.lock().mappings.len(), KEPT_BYTES_MAX / len);
        // What is asked for now pushes out what is not.
        Mapping::of(&kept, len / 2).unwrap().give_back_to(&kept);
        assert_eq!(kept.lock().bytes, KEPT_BYTES_MAX - len / 2);
        assert!(kept.lock().take(len / 2).map(Mapping::unmap).is_some());
        std::mem::take(&mut kept.lock().mappings).into_iter().for_each(Mapping::unmap);
        // A longer one goes for good.
        let (kept, long) = (Mutex::new(MappingPool::new()), KEPT_LEN_MAX + 1);
        let mapping = Mapping::of(&kept, long).unwrap();
        assert_eq!(mapping.len, long);
        mapping.give_back_to(&kept);
        assert_eq!(kept.lock().bytes, 0);
    }
}

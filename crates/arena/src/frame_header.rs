//! The header of a frame: its count of handles, the page that it holds, its tag and its heat.
//!
//! The count of handles is also the frame's lock; no thread waits for it. A frame is in one of three states:
//! - *free*: no handle; the count is 0, or [`EXCLUSIVE`] if the last handle was its owner's.
//! - *exclusive*: one handle, and its owner fills the frame and sets its name. No other handle can be made.
//! - *shared*: one handle or more; content and name do not change.
//!
//! [`FrameHeader::share`] adds a handle only to a shared frame. The new handle sees all that the owner wrote
//! before it shared the frame. So a reader that finds a frame through an index, which may be out of date,
//! first takes a handle and then compares the name.
//!
//! Cost: half a cache line a frame.

use base::invariant;

use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU32, AtomicU64};

/// The tag of a frame that has none.
const NO_TAG: u32 = u32::MAX;

/// The page number of a frame without a name.
const NO_PAGE: u32 = u32::MAX;

/// The bit of the count that marks a frame as exclusive.
const EXCLUSIVE: u32 = 1 << 31;

/// The page that a frame holds. A name with page `u32::MAX` means no page and is never found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameName {
    /// The number of the file.
    pub file: u64,
    /// The number of the page in the file.
    pub page: u32,
}

#[repr(align(32))]
pub(crate) struct FrameHeader {
    /// The count of handles, with [`EXCLUSIVE`] as a flag.
    handles: AtomicU32,
    /// A number that the owner of the page sets, by which it finds the frame in an evacuation.
    tag: AtomicU32,
    file: AtomicU64,
    page: AtomicU32,
    heat: AtomicU32,
}

// Two headers fill a cache line.
#[cfg(not(all(test, feature = "shuttle")))]
const _: () = assert!(size_of::<FrameHeader>() == 32);

impl FrameHeader {
    /// The header of a free frame.
    pub(crate) fn free() -> Self {
        Self {
            handles: AtomicU32::new(0),
            tag: AtomicU32::new(NO_TAG),
            file: AtomicU64::new(0),
            page: AtomicU32::new(NO_PAGE),
            heat: AtomicU32::new(0),
        }
    }

    /// Makes a free frame exclusive, without name, tag and heat.
    pub(crate) fn take(&self) {
        invariant!(self.handles.load(Relaxed) & !EXCLUSIVE == 0, "a free frame has no handle");
        self.handles.store(EXCLUSIVE | 1, Relaxed);
        self.tag.store(NO_TAG, Relaxed);
        self.set_name(FrameName { file: 0, page: NO_PAGE });
        self.heat.store(0, Relaxed);
    }

    /// Ends the only handle of an exclusive frame.
    pub(crate) fn clear(&self) {
        invariant!(self.is_exclusive(), "only an exclusive frame is withheld");
        self.handles.store(0, Relaxed);
    }

    /// Makes an exclusive frame shared.
    pub(crate) fn freeze(&self) {
        invariant!(self.is_exclusive(), "only the owner of a frame freezes it");
        // Release pairs with `share`: a new handle sees content and name.
        self.handles.store(1, Release);
    }

    /// Makes a shared frame exclusive, for the caller, who has a handle. False if there are other handles.
    pub(crate) fn thaw(&self) -> bool {
        // Acquire pairs with the release of the handles that were dropped.
        self.handles.compare_exchange(1, EXCLUSIVE | 1, Acquire, Relaxed).is_ok()
    }

    /// Adds a handle to a shared frame. False if the frame is free or exclusive.
    #[inline]
    pub(crate) fn share(&self) -> bool {
        let mut seen = self.handles.load(Relaxed);
        // The upper bound keeps the count from wrapping, which would free memory in use (as in `Arc`).
        while seen != 0 && seen < EXCLUSIVE / 2 {
            match self.handles.compare_exchange_weak(seen, seen + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(other) => seen = other,
            }
        }
        false
    }

    /// Adds a handle; the caller has one.
    #[inline]
    pub(crate) fn clone_handle(&self) {
        // Relaxed, as in `Arc`: the caller's handle sees the content already.
        if self.handles.fetch_add(1, Relaxed) > EXCLUSIVE / 2 {
            // As in `Arc`: a count that wraps would free memory in use.
            std::process::abort();
        }
    }

    /// Removes a handle. Returns whether it was the last one.
    #[inline]
    pub(crate) fn drop_handle(&self) -> bool {
        // Release: this handle's reads happen before the frame is reused.
        let before = self.handles.fetch_sub(1, Release) & !EXCLUSIVE;
        debug_assert!(before > 0, "a dropped handle was counted");
        before == 1
    }

    /// Whether the caller's handle is the only one and the frame is shared.
    pub(crate) fn is_unique(&self) -> bool {
        // Acquire pairs with the release of the handles that were dropped.
        self.handles.load(Acquire) == 1
    }

    /// Whether the frame has an owner; exact if the caller is the owner.
    fn is_exclusive(&self) -> bool {
        self.handles.load(Relaxed) == EXCLUSIVE | 1
    }

    /// Whether the frame has at most one handle now.
    pub(crate) fn is_unshared(&self) -> bool {
        self.handles.load(Relaxed) & !EXCLUSIVE <= 1
    }

    /// The page that the frame holds. Stable for a caller with a handle.
    #[inline]
    pub(crate) fn name(&self) -> FrameName {
        FrameName { file: self.file.load(Relaxed), page: self.page.load(Relaxed) }
    }

    /// Sets the page that the frame holds; only for the owner of an exclusive frame.
    pub(crate) fn set_name(&self, name: FrameName) {
        invariant!(self.is_exclusive(), "a shared frame keeps its name");
        self.file.store(name.file, Relaxed);
        self.page.store(name.page, Relaxed);
    }

    pub(crate) const fn tag(&self) -> &AtomicU32 {
        &self.tag
    }

    /// The heat, which every thread with a handle may change.
    pub(crate) const fn heat(&self) -> &AtomicU32 {
        &self.heat
    }
}

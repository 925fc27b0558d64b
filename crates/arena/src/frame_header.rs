//! What is known of a frame beside its content: its handles, its name, its mark, how warm it is.
//!
//! The count of handles is also the lock of the frame, without waiting. While it is *exclusive* one
//! owner fills the frame and may change its name; nobody else gets a handle then, nor while there is
//! none. A handle that was counted by [`FrameHeader::share`] keeps content and name as they are, and sees
//! what the owner wrote before the frame was shared: so who finds a frame by an index that may be out of
//! date counts itself first and compares the name then.
//!
//! Cost: half a cache line a frame.

use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU32, AtomicU64};

/// The tag of a frame that nobody tagged.
const NO_TAG: u32 = u32::MAX;

/// The page of a frame without a name.
const NO_PAGE: u32 = u32::MAX;

/// Among the count of handles: the only one is its owner's, who writes.
const EXCLUSIVE: u32 = 1 << 31;

/// What a frame holds: a page of a file. Page `u32::MAX` is none, and never found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameName {
    /// What stands for the file.
    pub file: u64,
    /// The page's number in it.
    pub page: u32,
}

#[repr(align(32))]
pub(crate) struct FrameHeader {
    /// Handles of the frame; none while it is free.
    references: AtomicU32,
    /// What the owner marked the frame with.
    tag: AtomicU32,
    file: AtomicU64,
    page: AtomicU32,
    heat: AtomicU32,
}

impl FrameHeader {
    pub(crate) fn free() -> Self {
        Self {
            references: AtomicU32::new(0),
            tag: AtomicU32::new(NO_TAG),
            file: AtomicU64::new(0),
            page: AtomicU32::new(NO_PAGE),
            heat: AtomicU32::new(0),
        }
    }

    /// Makes a free frame one with an owner.
    pub(crate) fn take(&self) {
        self.references.store(EXCLUSIVE | 1, Relaxed);
        self.tag.store(NO_TAG, Relaxed);
        self.set_name(FrameName { file: 0, page: NO_PAGE });
        self.heat.store(0, Relaxed);
    }

    /// Ends the owner's handle.
    pub(crate) fn clear(&self) {
        self.references.store(0, Relaxed);
    }

    /// The owner has written all it wants to.
    pub(crate) fn freeze(&self) {
        // Pairs with `share`: who has a handle sees content and name.
        self.references.store(1, Release);
    }

    /// Makes whoever has the only handle its owner; false where there are others.
    pub(crate) fn thaw(&self) -> bool {
        // Acquire: pairs with the release of the handles that went.
        self.references.compare_exchange(1, EXCLUSIVE | 1, Acquire, Relaxed).is_ok()
    }

    /// Counts another handle, where there is one and that is not its owner's.
    #[inline]
    pub(crate) fn share(&self) -> bool {
        let mut seen = self.references.load(Relaxed);
        // As `Arc`: a count that wraps would free memory in use. So many handles there are not.
        while seen != 0 && seen < EXCLUSIVE / 2 {
            match self.references.compare_exchange_weak(seen, seen + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(other) => seen = other,
            }
        }
        false
    }

    /// Counts a clone of a handle.
    #[inline]
    pub(crate) fn clone_handle(&self) {
        // Relaxed, as `Arc` does: the new handle comes from one that already sees the content.
        if self.references.fetch_add(1, Relaxed) > EXCLUSIVE / 2 {
            // As `Arc`: a count that wraps would free memory in use.
            std::process::abort();
        }
    }

    /// Counts a handle that goes; whether it was the last.
    #[inline]
    pub(crate) fn drop_handle(&self) -> bool {
        // Release: this handle's reads come before the frame is reused.
        self.references.fetch_sub(1, Release) & !EXCLUSIVE == 1
    }

    /// Whether there is one handle; for whoever has it.
    pub(crate) fn is_unique(&self) -> bool {
        // Acquire: pairs with the release of the handles that went.
        self.references.load(Acquire) == 1
    }

    /// Whether there is no more than one handle now.
    pub(crate) fn is_unshared(&self) -> bool {
        self.references.load(Relaxed) & !EXCLUSIVE <= 1
    }

    /// What it holds; for whoever has a handle.
    #[inline]
    pub(crate) fn name(&self) -> FrameName {
        FrameName { file: self.file.load(Relaxed), page: self.page.load(Relaxed) }
    }

    /// Says what it holds; for its owner.
    pub(crate) fn set_name(&self, name: FrameName) {
        self.file.store(name.file, Relaxed);
        self.page.store(name.page, Relaxed);
    }

    pub(crate) const fn tag(&self) -> &AtomicU32 {
        &self.tag
    }

    /// How warm it is: a number that anyone with a handle may change.
    pub(crate) const fn heat(&self) -> &AtomicU32 {
        &self.heat
    }
}

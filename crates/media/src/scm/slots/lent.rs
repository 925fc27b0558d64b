//! A slot as words that any number of threads read and write at once, each word by itself.
//!
//! What words mean together, and who may change them, is for those who use them to agree on.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use base::limits::PAGE_BYTES;

use super::{FILLING, FREE, LENT, Slots};
use crate::scm::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The words of a slot.
pub const SLOT_WORDS: usize = PAGE_BYTES / size_of::<u64>();

impl Slots {
    /// Lends `slot`, with whatever it holds, until it is taken back; false while it is pinned, being
    /// written or lent already, or where it does not exist.
    #[must_use]
    pub fn lend(&self, slot: usize) -> bool {
        let state = self.0.states.get(slot);
        // Acquire: pairs with the releases of the pins that read the page.
        state.is_some_and(|state| state.compare_exchange(FREE, LENT, Acquire, Relaxed).is_ok())
    }

    /// Makes a slot that is lent one as the others are; false while somebody uses it, or where it is not
    /// lent.
    #[must_use]
    pub fn take_back(&self, slot: usize) -> bool {
        let state = self.0.states.get(slot);
        // Acquire: pairs with the releases of those who used its words; release: with who takes it next.
        state.is_some_and(|state| state.compare_exchange(LENT, FREE, AcqRel, Relaxed).is_ok())
    }

    /// The words of a slot that is lent. `None` where it is not, or 126 use it.
    #[must_use]
    pub fn words(&self, slot: usize) -> Option<Lent<'_>> {
        let state = self.0.states.get(slot)?;
        let words = self.0.region.page(slot)?.cast::<[AtomicU64; SLOT_WORDS]>();
        let more = |state| (LENT..FILLING - 1).contains(&state).then(|| state + 1);
        state.fetch_update(Acquire, Relaxed, more).ok()?;
        Some(Lent { slots: self, slot, words })
    }
}

/// The words of a slot that is lent, for as long as this is held.
pub struct Lent<'a> {
    slots: &'a Slots,
    slot: usize,
    words: NonNull<[AtomicU64; SLOT_WORDS]>,
}

impl Lent<'_> {
    /// Waits as long as an emulated region takes for the first `bytes` more than memory does.
    pub fn delay(&self, is_read: bool, bytes: usize) {
        self.slots.0.region.delay(is_read, self.slot, bytes);
    }

    /// Whether the medium took slots away, as [`super::Pinned::is_lost`] says.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.slots.0.region.is_lost()
    }
}

impl Deref for Lent<'_> {
    type Target = [AtomicU64; SLOT_WORDS];

    fn deref(&self) -> &Self::Target {
        // SAFETY: a whole page of the region, mapped as long as `slots`, aligned to a page, of which any
        // bytes are words; while this use is counted nobody reads or writes it but as atomic words.
        unsafe { self.words.as_ref() }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.slots.0.states.get(self.slot) {
            // Release: this use comes before the slot is a page again.
            state.fetch_sub(1, Release);
        }
    }
}

impl fmt::Debug for Lent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({})", self.slot)
    }
}

//! A slot as atomic words that any number of threads read and write at once, each word by itself.
//!
//! The users of the words agree on their meaning and on which thread may change them.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use base::limits::PAGE_BYTES;

use super::{FILLING, FREE, SHARED, Slots};
use crate::scm::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Number of words in a slot.
pub const SLOT_WORDS: usize = PAGE_BYTES / size_of::<u64>();

impl Slots {
    /// Shares `slot` as words, with its content, until it is taken back. False if it is pinned, being written
    /// or shared already, or does not exist.
    #[must_use]
    pub fn lend(&self, slot: usize) -> bool {
        let state = self.0.states.get(slot);
        // Acquire: pairs with the releases of the pins that read the page.
        state.is_some_and(|state| state.compare_exchange(FREE, SHARED, Acquire, Relaxed).is_ok())
    }

    /// Ends the sharing of a slot, which can be pinned and written again. False if its words are in use, or
    /// if it is not shared.
    #[must_use]
    pub fn take_back(&self, slot: usize) -> bool {
        let state = self.0.states.get(slot);
        // Acquire pairs with the releases of the words' users, release with the slot's next user.
        state.is_some_and(|state| state.compare_exchange(SHARED, FREE, AcqRel, Relaxed).is_ok())
    }

    /// The words of a shared slot. `None` if it is not shared, or has 126 users.
    #[must_use]
    pub fn words(&self, slot: usize) -> Option<SlotWords<'_>> {
        let state = self.0.states.get(slot)?;
        let words = self.page(slot)?.cast::<[AtomicU64; SLOT_WORDS]>();
        let add_user = |state| (SHARED..FILLING - 1).contains(&state).then(|| state + 1);
        state.fetch_update(Acquire, Relaxed, add_user).ok()?;
        Some(SlotWords { slots: self, slot, words })
    }
}

/// The words of a shared slot. The slot stays shared while this exists.
pub struct SlotWords<'a> {
    slots: &'a Slots,
    slot: usize,
    words: NonNull<[AtomicU64; SLOT_WORDS]>,
}

impl SlotWords<'_> {
    /// Waits for the difference between an emulated region and DRAM in an access to the first `bytes`.
    pub fn delay(&self, is_read: bool, bytes: usize) {
        self.slots.0.region.delay(is_read, self.slot, bytes);
    }

    /// Whether the medium took away slots, as [`super::Pinned::is_lost`].
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.slots.0.region.is_lost()
    }
}

impl Deref for SlotWords<'_> {
    type Target = [AtomicU64; SLOT_WORDS];

    fn deref(&self) -> &Self::Target {
        // SAFETY: a whole page of the region, mapped as long as `slots`, aligned to a page, and any bytes are
        // valid words; while this user is counted the page is accessed only as atomic words.
        unsafe { self.words.as_ref() }
    }
}

impl Drop for SlotWords<'_> {
    fn drop(&mut self) {
        let state = self.slots.0.states.get(self.slot);
        base::invariant!(state.is_some(), "a shared slot exists");
        if let Some(state) = state {
            // Release: this use comes before the slot is a page again.
            let users = state.fetch_sub(1, Release);
            base::invariant!((SHARED + 1..FILLING).contains(&users), "a used slot stays shared");
        }
    }
}

impl fmt::Debug for SlotWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotWords({})", self.slot)
    }
}

//! Slots: the pages of a region, read in place by many threads, or written by one.
//!
//! Each slot has one byte of state: free, pinned by up to 127 readers, being written, or shared as words. A
//! [`Pinned`] reads the page in place and keeps the region alive, so it may live as long as needed. A
//! [`Filling`] is exclusive. A shared slot is accessed as [`SlotWords`], which any number of threads read and
//! write at once. No call waits: if the slot is in another state the answer is `None`, and the caller goes
//! on without it.
//!
//! Invariant: a shared reference to a slot's bytes exists only under a pin, a mutable one only under the one
//! filling, one to atomic words only while the slot is shared, and a slot is in one state at a time. So safe
//! code of this process reads and writes no byte of the region at once except as atomic words. The lock on
//! the region's file excludes other processes; checksums detect bytes that the medium changes (I8). If the
//! medium takes bytes away, they read as zeros: [`Pinned::is_lost`] must be checked before a read counts.
//!
//! Concurrency: lock-free, one compare-exchange for a pin and one decrement for its end. Cost: 1 B of DRAM a
//! slot, charged (I10). In an emulated region a pin waits for the extra latency of reading the whole page, a
//! filling for that of writing it.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, Result};

use super::facts::Facts;
use super::region::Region;
use super::sync::atomic::AtomicU8;
use super::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::emulated::Emulation;

/// The content of a slot.
pub type Page = [u8; PAGE_BYTES];

/// State of an unused slot.
const FREE: u8 = 0;
/// The most pins of a slot at once; the state of a pinned slot is its number of pins.
const PINS_MAX: u8 = SHARED - 1;
/// State of a shared slot without users; states above it count the users.
const SHARED: u8 = 1 << 7;
/// State of a slot that is being written.
const FILLING: u8 = u8::MAX;

/// The slots of a region. Cheap to clone; clones share the slots.
#[derive(Clone)]
pub struct Slots(Arc<Inner>);

struct Inner {
    region: Region,
    states: Box<[AtomicU8]>,
    _charge: Charge,
}

impl Slots {
    /// Takes all pages of `region` as slots, with their content.
    ///
    /// # Errors
    /// `Retry` if the account has no room for a byte for each slot.
    pub fn new(region: Region, account: &Account) -> Result<Self> {
        let slots = usize::try_from(region.len()).unwrap_or(usize::MAX) / PAGE_BYTES;
        let charge = account.charge(slots as u64)?;
        let states = (0..slots).map(|_| AtomicU8::new(FREE)).collect();
        Ok(Self(Arc::new(Inner { region, states, _charge: charge })))
    }

    /// Number of slots.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region has at least a page")]
    pub fn len(&self) -> usize {
        self.0.states.len()
    }

    /// The properties of the region.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.0.region.facts()
    }

    /// Counters of the region's emulation so far; none for a real device.
    #[must_use]
    pub fn emulation(&self) -> Option<Emulation> {
        self.0.region.emulation()
    }

    /// The content of `slot`, until the pin is dropped. `None` if the slot is being written, has 127 pins, is
    /// shared, or does not exist.
    #[must_use]
    pub fn pin(&self, slot: usize) -> Option<Pinned> {
        let state = self.0.states.get(slot)?;
        let data = self.page(slot)?;
        // Acquire: pairs with the release of the filling that wrote the page.
        let add_pin = |pins| (pins < PINS_MAX).then(|| pins + 1);
        state.fetch_update(Acquire, Relaxed, add_pin).ok()?;
        self.0.region.delay(true, slot, PAGE_BYTES);
        Some(Pinned { slots: self.clone(), slot, data })
    }

    /// Exclusive access to write `slot`. Its content stays until it is overwritten. `None` if the slot is
    /// pinned, being written or shared, or does not exist.
    #[must_use]
    pub fn fill(&self, slot: usize) -> Option<Filling> {
        let state = self.0.states.get(slot)?;
        let data = self.page(slot)?;
        // Acquire: pairs with the releases of the pins that read the page.
        state.compare_exchange(FREE, FILLING, Acquire, Relaxed).ok()?;
        self.0.region.delay(false, slot, PAGE_BYTES);
        Some(Filling { slots: self.clone(), slot, data })
    }

    /// The address of an existing slot.
    fn page(&self, slot: usize) -> Option<NonNull<Page>> {
        let page = self.0.region.page(slot);
        base::invariant!(page.is_some(), "each slot is a page of the region");
        page.map(NonNull::cast)
    }

    /// Checks that the medium has not taken the memory away.
    ///
    /// # Errors
    /// `Corrupt` if it has: no earlier read is valid, and all writes are lost.
    pub fn check(&self) -> Result<()> {
        if !self.0.region.is_lost() {
            return Ok(());
        }
        Err(Error::corrupt("mapped memory")
            .at(self.facts().backend)
            .expected("memory that is present")
            .got("lost memory: its file was cut, or its device failed"))
    }

    /// Makes the writes to `slots` survive the event that the region's [`Persistence`] names.
    ///
    /// [`Persistence`]: super::Persistence
    ///
    /// # Errors
    /// Errors of the device.
    pub fn persist(&self, slots: Range<usize>) -> Result<()> {
        base::invariant!(slots.end <= self.len(), "persisted slots exist");
        self.0.region.persist(slots.start, slots.len())
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slots({} of {:?})", self.len(), self.0.region)
    }
}

/// A slot's content in place. The slot is not written while the pin exists.
pub struct Pinned {
    slots: Slots,
    slot: usize,
    data: NonNull<Page>,
}

// SAFETY: `data` points into the region that `slots` keeps mapped, which is bound to no thread; a pin only
// reads, and nothing writes while it exists.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// The number of the slot.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// Whether the medium took away slots, this one or another. Bytes read here may be zeros: a read is valid
    /// only if this is false afterwards.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.slots.0.region.is_lost()
    }
}

impl Deref for Pinned {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: a whole page of the region, mapped as long as `slots`, initialised (mapped memory holds
        // some bytes from the start), and not written while this pin is counted. If the medium takes the page
        // away, other bytes are mapped at its address, as if the medium had changed them.
        unsafe { self.data.as_ref() }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        &**self
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let state = self.slots.0.states.get(self.slot);
        base::invariant!(state.is_some(), "a pinned slot exists");
        if let Some(state) = state {
            // Release: this pin's reads come before the next write.
            let pins = state.fetch_sub(1, Release);
            base::invariant!((1..=PINS_MAX).contains(&pins), "a pinned slot stays pinned");
        }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({})", self.slot)
    }
}

/// Exclusive access to a slot. The slot can be pinned once this is dropped.
pub struct Filling {
    slots: Slots,
    slot: usize,
    data: NonNull<Page>,
}

// SAFETY: as for `Pinned`; while a filling exists no other code accesses the slot.
unsafe impl Send for Filling {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Filling {}

impl Filling {
    /// The number of the slot.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot
    }
}

impl Deref for Filling {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: as for a pin: mapped, initialised, and written only through `&mut self`.
        unsafe { self.data.as_ref() }
    }
}

impl DerefMut for Filling {
    fn deref_mut(&mut self) -> &mut Page {
        // SAFETY: as above; the state is `FILLING`, so this is the only handle, borrowed alone.
        unsafe { self.data.as_mut() }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let state = self.slots.0.states.get(self.slot);
        base::invariant!(state.is_some(), "a slot that is written exists");
        if let Some(state) = state {
            base::invariant!(state.load(Relaxed) == FILLING, "a slot has one writer");
            // Release: the writes come before the next pin.
            state.store(FREE, Release);
        }
    }
}

impl fmt::Debug for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filling({})", self.slot)
    }
}

mod words;
pub use words::{SLOT_WORDS, SlotWords};

#[cfg(test)]
mod tests;

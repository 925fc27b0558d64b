//! Slots: the pages of a region, read in place by many, written by one while nobody reads.
//!
//! Each slot has one byte of state: free, pinned by up to 127 readers, being written, or lent. A
//! [`Pinned`] reads the page where it lies and owns what it needs, so it may live as long as it likes. A
//! [`Filling`] is alone. A slot that is lent is [`Lent`] words, which any number of threads read and write
//! at once. None of them waits: where the slot is not to be had the answer is `None`, and the caller goes
//! elsewhere.
//!
//! Invariant: a shared reference to a slot's bytes exists only under a pin, a mutable one only under
//! the one filling, one to atomic words only while it is lent, and a state is never two of these. So no
//! byte of the region is read and written at once by safe code of this process but as atomic words; what
//! other processes do is ruled out by the lock on the region's file, and bytes that the medium changes by
//! itself are what checksums are for (I8). Where it takes them away zeros are read: [`Pinned::is_lost`] is
//! to be asked before what was read counts.
//!
//! Concurrency: lock-free, one compare-exchange for a pin and one decrement for its end. Cost: 1 B of
//! DRAM a slot, charged (I10). Where the region is emulated, a pin waits as long as reading all of the
//! page would take more than from DRAM, a filling as writing it would.

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

/// A slot that nobody uses.
const FREE: u8 = 0;
/// The most pins of a slot at once: as many are its state.
const PINS_MAX: u8 = LENT - 1;
/// A slot that is lent; states above it count those who use it.
const LENT: u8 = 1 << 7;
/// A slot that is being written.
const FILLING: u8 = u8::MAX;

/// The slots of a region. Shared; cheap to clone.
#[derive(Clone)]
pub struct Slots(Arc<Inner>);

struct Inner {
    region: Region,
    states: Box<[AtomicU8]>,
    _charge: Charge,
}

impl Slots {
    /// Takes all pages of `region` as slots, with whatever they hold.
    ///
    /// # Errors
    /// `Retry` where the account has no byte for each.
    pub fn new(region: Region, account: &Account) -> Result<Self> {
        let slots = usize::try_from(region.len()).unwrap_or(usize::MAX) / PAGE_BYTES;
        let charge = account.charge(slots as u64)?;
        let states = (0..slots).map(|_| AtomicU8::new(FREE)).collect();
        Ok(Self(Arc::new(Inner { region, states, _charge: charge })))
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region has at least a page")]
    pub fn len(&self) -> usize {
        self.0.states.len()
    }

    /// What the region is.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.0.region.facts()
    }

    /// What the region's emulation did so far; none of a real one.
    #[must_use]
    pub fn emulation(&self) -> Option<Emulation> {
        self.0.region.emulation()
    }

    /// The content of `slot`, for as long as the pin is held. `None` where it is being written, has
    /// 127 pins, is lent, or does not exist.
    #[must_use]
    pub fn pin(&self, slot: usize) -> Option<Pinned> {
        let state = self.0.states.get(slot)?;
        let data = self.0.region.page(slot)?.cast::<Page>();
        // Acquire: pairs with the release of the filling that wrote the page.
        let more = |pins| (pins < PINS_MAX).then(|| pins + 1);
        state.fetch_update(Acquire, Relaxed, more).ok()?;
        self.0.region.delay(true, slot, PAGE_BYTES);
        Some(Pinned { slots: self.clone(), slot, data })
    }

    /// The right to write `slot`, which keeps its content until it is written. `None` while it is
    /// pinned, being written or lent, or where it does not exist.
    #[must_use]
    pub fn fill(&self, slot: usize) -> Option<Filling> {
        let state = self.0.states.get(slot)?;
        let data = self.0.region.page(slot)?.cast::<Page>();
        // Acquire: pairs with the releases of the pins that read the page.
        state.compare_exchange(FREE, FILLING, Acquire, Relaxed).ok()?;
        self.0.region.delay(false, slot, PAGE_BYTES);
        Some(Filling { slots: self.clone(), slot, data })
    }

    /// Whether the slots are still there.
    ///
    /// # Errors
    /// Where the medium took them away: nothing that was read counts, and nothing that was written is there.
    pub fn check(&self) -> Result<()> {
        if !self.0.region.is_lost() {
            return Ok(());
        }
        Err(Error::corrupt("mapped memory")
            .at(self.facts().backend)
            .expected("to be there")
            .got("nothing: its file was cut, or its device failed"))
    }

    /// Makes what was written into `slots` survive what the region's [`Persistence`] says.
    ///
    /// [`Persistence`]: super::Persistence
    ///
    /// # Errors
    /// As the device's.
    pub fn persist(&self, slots: Range<usize>) -> Result<()> {
        self.0.region.persist(slots.start, slots.len())
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slots({} of {:?})", self.len(), self.0.region)
    }
}

/// A slot's content, where it lies. Nobody writes it meanwhile.
pub struct Pinned {
    slots: Slots,
    slot: usize,
    data: NonNull<Page>,
}

// SAFETY: `data` points into the region that `slots` keeps, which no thread is tied to; a pin only
// reads, and while it exists nobody writes.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Which slot it is.
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// Whether the medium took slots away, this one or another: what was read here may be zeros, and
    /// counts only where this is asked afterwards and is not so.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.slots.0.region.is_lost()
    }
}

impl Deref for Pinned {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: a whole page of the region, mapped as long as `slots`, initialised (mapped memory
        // holds some bytes from the start), and not written while this pin is counted. Where the medium takes
        // it away other bytes are mapped there, as if it had changed them.
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
        if let Some(state) = self.slots.0.states.get(self.slot) {
            // Release: this pin's reads come before the next writing.
            state.fetch_sub(1, Release);
        }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({})", self.slot)
    }
}

/// A slot in the hands of its one writer. Others can pin it once this is dropped.
pub struct Filling {
    slots: Slots,
    slot: usize,
    data: NonNull<Page>,
}

// SAFETY: as for `Pinned`; while it exists nobody else reads or writes the slot.
unsafe impl Send for Filling {}
// SAFETY: shared, it only reads.
unsafe impl Sync for Filling {}

impl Filling {
    /// Which slot it is.
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
        if let Some(state) = self.slots.0.states.get(self.slot) {
            // Release: what was written comes before the next pin.
            state.store(FREE, Release);
        }
    }
}

impl fmt::Debug for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filling({})", self.slot)
    }
}

mod lent;
pub use lent::{Lent, SLOT_WORDS};

#[cfg(test)]
mod tests;

//! A region: address space that fills up with memory from its start, and is given back whole.
//!
//! Memory is charged when it is committed (I10), in steps of 64 KiB up to 2 MiB and of 2 MiB after,
//! and taken when allocations touch it; the region never allocates past what is committed unless a
//! caller broke its word. Places are numbers of 8-byte units, so that four bytes name any of them.
//!
//! A region of a [`RegionPool`] begins in the memory of one that is gone, and may be told to take
//! memory ahead: that part is *prefaulted*, charged too, and can be given back.
//!
//! Concurrency: committing and allocating are one atomic addition each. Nothing is ever freed
//! before the whole region.

use std::ptr::NonNull;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, Result};

use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::region_pool::{RegionPool, SpareRegion};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{CachePadded, Mutex, lock};

/// The unit of places, bytes; allocations are aligned to it.
pub(crate) const UNIT_BYTES: usize = 8;

/// The size of a region, bytes of address space: what 31 bits of places reach, far above any
/// memtable, so that filling one up is not a normal event.
const REGION_BYTES: usize = if cfg!(miri) { 2 << 20 } else { 16 << 30 };

/// The size below which reserving is not tried again: the address space is as good as full.
const REGION_BYTES_MIN: usize = 1 << 20;

/// The step in which a small region is charged, bytes.
const SMALL_STEP_BYTES: u64 = if cfg!(miri) { 4 << 10 } else { 64 << 10 };

/// A place in a region, in units from its start. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionOffset(u32);

impl RegionOffset {
    /// The number that is stored; 0 stands for no place.
    pub(crate) const fn number(this: Option<Self>) -> u32 {
        match this {
            Some(place) => place.0,
            None => 0,
        }
    }

    /// The place of a stored number.
    pub(crate) const fn of(number: u32) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }
}

pub(crate) struct Region {
    chunk: Chunk,
    capacity: u64,
    /// Units allocated. Changed by every allocation, so it has a line of its own.
    used: CachePadded<AtomicU64>,
    /// Bytes that allocations may reach.
    committed: CachePadded<AtomicU64>,
    /// Bytes charged: `committed` rounded up to whole steps.
    charged: AtomicU64,
    charges: Mutex<Charges>,
    /// Held while memory is taken ahead or that is given back, which writers need not wait for.
    prefaulting: Mutex<()>,
    /// Who has the memory next.
    pool: Option<Arc<RegionPool>>,
}

/// What a region charges: the bytes up to `charged`, and behind them those that are prefaulted.
#[derive(Debug)]
struct Charges {
    charge: Charge,
    /// Memory taken before it is needed, charged to the pool's account.
    prefaulted: Option<Charge>,
}

impl Charges {
    fn prefaulted_bytes(&self) -> u64 {
        self.prefaulted.as_ref().map_or(0, Charge::bytes)
    }

    /// Where memory ends that was taken.
    fn end(&self) -> u64 {
        self.charge.bytes() + self.prefaulted_bytes()
    }
}

impl Region {
    /// An empty region with `bytes` committed.
    ///
    /// # Errors
    /// `Retry` where the budget or the address space does not hold it.
    pub(crate) fn new(account: &Account, bytes: u64) -> Result<Self> {
        let (chunk, capacity) = Self::reserve()?;
        Self::of(chunk, capacity, account, None, None, bytes)
    }

    /// The address space of a region, and how many bytes it is.
    ///
    /// # Errors
    /// `Retry` where there is none.
    pub(crate) fn reserve() -> Result<(Chunk, u64)> {
        let mut capacity = REGION_BYTES;
        // An operating system that counts address space may refuse the full size.
        loop {
            match Chunk::reserve(capacity) {
                Ok(chunk) => return Ok((chunk, capacity as u64)),
                Err(error) if capacity <= REGION_BYTES_MIN => return Err(error),
                Err(_) => capacity /= 2,
            }
        }
    }

    /// As [`Region::new`], in memory that another region had, if there is some, and to be given back
    /// to `pool`. `likely` is how many bytes it will probably take.
    pub(crate) fn pooled(
        pool: &Arc<RegionPool>,
        account: &Account,
        likely: u64,
        bytes: u64,
    ) -> Result<Self> {
        let Some(SpareRegion { chunk, capacity, prefaulted }) = pool.take(likely) else {
            let mut region = Self::new(account, bytes)?;
            lock(&region.charges).prefaulted = Some(pool.account().empty_charge());
            region.pool = Some(Arc::clone(pool));
            return Ok(region);
        };
        Self::of(chunk, capacity, account, Some(prefaulted), Some(Arc::clone(pool)), bytes)
    }

    fn of(
        chunk: Chunk,
        capacity: u64,
        account: &Account,
        prefaulted: Option<Charge>,
        pool: Option<Arc<RegionPool>>,
        bytes: u64,
    ) -> Result<Self> {
        let region = Self {
            chunk,
            capacity,
            // RegionOffset 0 is no place.
            used: CachePadded(AtomicU64::new(1)),
            committed: CachePadded(AtomicU64::new(UNIT_BYTES as u64)),
            charged: AtomicU64::new(0),
            charges: Mutex::new(Charges { charge: account.empty_charge(), prefaulted }),
            prefaulting: Mutex::new(()),
            pool,
        };
        region.commit(bytes)?;
        Ok(region)
    }

    /// Bytes charged for what was committed.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Relaxed)
    }

    /// Charges for `bytes` more, so that allocating them cannot fail.
    ///
    /// # Errors
    /// `Retry` where the budget or the region does not hold them; nothing is committed.
    pub(crate) fn commit(&self, bytes: u64) -> Result<()> {
        let committed = self.committed.0.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if committed <= self.charged() {
            return Ok(());
        }
        self.charge_to(committed).inspect_err(|_| {
            self.committed.0.fetch_sub(bytes, Relaxed);
        })
    }

    #[cold]
    fn charge_to(&self, bytes: u64) -> Result<()> {
        let step = if bytes > CHUNK_BYTES as u64 { CHUNK_BYTES as u64 } else { SMALL_STEP_BYTES };
        if bytes > self.capacity {
            return Err(Error::retry("room in one memtable")
                .expected(format_args!("at most {} B", self.capacity))
                .got(bytes));
        }
        let rounded = bytes.next_multiple_of(step);
        let mut charges = lock(&self.charges);
        if let Some(more @ 1..) = rounded.checked_sub(charges.charge.bytes()) {
            // What is prefaulted changes from one account to the other.
            let (end, prefaulted) = (charges.end(), charges.prefaulted_bytes());
            if let Some(charge) = &mut charges.prefaulted {
                charge.shrink_to(prefaulted.saturating_sub(more));
            }
            if let Err(error) = charges.charge.grow(more) {
                self.discard_prefaulted(&mut charges, end);
                return Err(error);
            }
            self.charged.store(rounded, Relaxed);
        }
        Ok(())
    }

    /// Takes memory before it is needed, up to `ahead` bytes in front of what is charged and up to
    /// `most` bytes in all, as far as the budget holds it. For a task in the background: taking a
    /// huge page is 0.1 ms of a good day, and tens of milliseconds where the kernel, or the host of
    /// a virtual machine, has to find one.
    pub(crate) fn prefault(&self, ahead: u64, most: u64) {
        let Ok(_warming) = self.prefaulting.try_lock() else { return };
        let step = CHUNK_BYTES as u64;
        loop {
            let from = {
                let mut charges = lock(&self.charges);
                let (charged, from) = (charges.charge.bytes(), charges.end());
                // The first pages are small ones; what is small may stay so.
                let to = charged.saturating_add(ahead).min(most).min(self.capacity);
                if charged < step || from.saturating_add(step) > to {
                    return;
                }
                if !charges.prefaulted.as_mut().is_some_and(|prefaulted| prefaulted.try_grow(step))
                {
                    return;
                }
                from
            };
            // Without the lock: a writer that gets there meanwhile takes the page itself.
            self.chunk.populate(from as usize, CHUNK_BYTES);
            let mut charges = lock(&self.charges);
            if charges.end() < from + step {
                // Given up meanwhile, before it was there (I10).
                self.discard_prefaulted(&mut charges, from + step);
                return;
            }
        }
    }

    /// Gives memory back that was taken before it was needed.
    pub(crate) fn release_prefaulted(&self) {
        let Ok(_warming) = self.prefaulting.try_lock() else { return };
        let mut charges = lock(&self.charges);
        let end = charges.end();
        if charges.prefaulted_bytes() > 0 {
            self.discard_prefaulted(&mut charges, end);
        }
    }

    /// Gives back what is behind the charged bytes, up to `end`, and charges it no more.
    fn discard_prefaulted(&self, charges: &mut Charges, end: u64) {
        // Where a caller committed too little, allocations reach farther than the charge. One that is
        // under way waits for the charges before it uses its place.
        let used = self.used.0.load(Relaxed) * UNIT_BYTES as u64;
        let from = charges.charge.bytes().max(used.next_multiple_of(PAGE_BYTES as u64));
        self.chunk.discard_within(from as usize, end.saturating_sub(from) as usize);
        if let Some(prefaulted) = &mut charges.prefaulted {
            prefaulted.shrink_to(0);
        }
    }

    /// Allocates `bytes`, aligned to a unit. The memory is the caller's alone, and holds anything.
    ///
    /// # Panics
    /// Where nothing was committed for it and the region is full.
    pub(crate) fn alloc(&self, bytes: usize) -> RegionOffset {
        let units = bytes.div_ceil(UNIT_BYTES) as u64;
        let place = self.used.0.fetch_add(units, Relaxed);
        let end = (place + units) * UNIT_BYTES as u64;
        if end > self.charged() {
            assert!(end <= self.capacity, "memory is committed before it is allocated");
            // The caller committed too little. The memory is there, so only the charges are wrong:
            // they are put right where the budget has room.
            let _ = self.charge_to(end);
        }
        RegionOffset(place as u32)
    }

    /// Allocates `bytes` at a multiple of `align`; commit `align` more bytes for it.
    pub(crate) fn alloc_aligned(&self, bytes: usize, align: usize) -> RegionOffset {
        let RegionOffset(place) = self.alloc(bytes + align - UNIT_BYTES);
        RegionOffset(place.next_multiple_of((align / UNIT_BYTES) as u32))
    }

    /// The address of an allocated place, valid as long as the region.
    #[inline]
    pub(crate) fn address(&self, RegionOffset(place): RegionOffset) -> NonNull<u8> {
        // SAFETY: a place is only made by `alloc`, which keeps it within the chunk.
        unsafe { self.chunk.start().add(place as usize * UNIT_BYTES) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        let chunk = std::mem::replace(&mut self.chunk, Chunk::empty());
        let mut charges = lock(&self.charges);
        let Some(mut prefaulted) = charges.prefaulted.take() else { return };
        // From one account to the other; where another takes it first, the memory goes.
        let charged = charges.charge.bytes();
        charges.charge.shrink_to(0);
        if prefaulted.try_grow(charged) {
            pool.keep(SpareRegion { chunk, capacity: self.capacity, prefaulted });
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

//! A region: the memory of one ordered map. Allocations fill it from its start; it is freed as a whole.
//!
//! A region is 16 GiB of address space, and charges nothing before its first use. [`Region::commit`] charges
//! memory (I10): in steps of 4 KiB up to 64 KiB, of 64 KiB up to 2 MiB, and of 2 MiB after that;
//! [`Region::alloc`] takes it. Allocations stay within the committed bytes
//! unless a caller commits too little. Offsets count units of 8 bytes, so that four bytes name any place.
//!
//! A region of a [`RegionPool`] starts with the memory of an earlier one. A background task may *prefault*
//! memory behind the charged bytes, so that writers do not wait for the kernel; prefaulted memory is charged
//! to the pool's account and may be given back.
//!
//! Concurrency: any thread may commit and allocate; each is one atomic addition. Lock order: `prefaulting`,
//! then `charges`.

use std::ptr::NonNull;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, Result, invariant};

use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::region_pool::RegionPool;
use crate::spare_region::SpareRegion;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{CachePadded, Mutex, lock};

/// The unit of offsets, bytes; allocations are aligned to it.
pub(crate) const UNIT_BYTES: usize = 8;

/// The step in which the first 2 MiB of a region are charged, bytes.
const SMALL_STEP_BYTES: u64 = if cfg!(miri) { 4 << 10 } else { 64 << 10 };

/// The step in which the first [`SMALL_STEP_BYTES`] are charged, bytes: a store may have a thousand memtables
/// with few writes each.
pub(crate) const FIRST_STEP_BYTES: u64 = PAGE_BYTES as u64;

/// The offset of an allocation from the start of its region, in units. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionOffset(u32);

impl RegionOffset {
    /// The number to store for an offset; 0 for none.
    pub(crate) const fn number(this: Option<Self>) -> u32 {
        match this {
            Some(offset) => offset.0,
            None => 0,
        }
    }

    /// The offset of a stored number.
    pub(crate) const fn of(number: u32) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }
}

pub(crate) struct Region {
    chunk: Chunk,
    capacity: u64,
    /// Units allocated. Every allocation changes it, so it has its own cache line.
    used: CachePadded<AtomicU64>,
    /// Bytes that allocations may use.
    committed: CachePadded<AtomicU64>,
    /// Bytes charged: `committed` rounded up to whole steps. Equals `charges.charge`; readable without the
    /// lock.
    charged: AtomicU64,
    charges: Mutex<Charges>,
    /// Held while memory is prefaulted or given back, which takes long; writers do not wait for it.
    prefaulting: Mutex<()>,
    /// Gets the memory when the region is dropped.
    pool: Option<Arc<RegionPool>>,
}

/// The memory of a region: first the bytes of `charge`, then those of `prefaulted`.
#[derive(Debug)]
struct Charges {
    charge: Charge,
    /// Memory allocated before it is needed, charged to the pool's account. Empty without a pool.
    prefaulted: Charge,
}

impl Charges {
    /// The end of the allocated memory.
    fn end(&self) -> u64 {
        self.charge.bytes() + self.prefaulted.bytes()
    }
}

impl Region {
    /// An empty region. The first commit charges `bytes` besides its own.
    ///
    /// # Errors
    /// `Retry` if the address space has no room.
    pub(crate) fn new(account: &Account, bytes: u64) -> Result<Self> {
        Ok(Self::of(SpareRegion::reserve(account.empty_charge())?, account, None, bytes))
    }

    /// As [`Region::new`], with memory from `pool` if that has some, and given back to `pool` on drop.
    /// `likely` is the number of bytes that the region will probably charge.
    pub(crate) fn pooled(
        pool: &Arc<RegionPool>,
        account: &Account,
        likely: u64,
        bytes: u64,
    ) -> Result<Self> {
        let spare = match pool.take(likely) {
            Some(spare) => spare,
            None => SpareRegion::reserve(pool.account().empty_charge())?,
        };
        Ok(Self::of(spare, account, Some(Arc::clone(pool)), bytes))
    }

    fn of(
        spare: SpareRegion,
        account: &Account,
        pool: Option<Arc<RegionPool>>,
        bytes: u64,
    ) -> Self {
        let SpareRegion { chunk, capacity, prefaulted } = spare;
        Self {
            chunk,
            capacity,
            // Offset 0 means none.
            used: CachePadded(AtomicU64::new(1)),
            committed: CachePadded(AtomicU64::new(UNIT_BYTES as u64 + bytes)),
            charged: AtomicU64::new(0),
            charges: Mutex::new(Charges { charge: account.empty_charge(), prefaulted }),
            prefaulting: Mutex::new(()),
            pool,
        }
    }

    /// Bytes charged for committed bytes.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Relaxed)
    }

    /// Charges for `bytes` more, so that allocating them cannot fail.
    ///
    /// # Errors
    /// `Retry` if the budget or the region has no room; nothing is committed.
    pub(crate) fn commit(&self, bytes: u64) -> Result<()> {
        let committed = self.committed.0.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if committed <= self.charged() {
            return Ok(());
        }
        self.charge_to(committed).inspect_err(|_| {
            self.committed.0.fetch_sub(bytes, Relaxed);
        })
    }

    /// Charges at least the first `bytes` of the region.
    #[cold]
    fn charge_to(&self, bytes: u64) -> Result<()> {
        let step = match bytes {
            ..=SMALL_STEP_BYTES => FIRST_STEP_BYTES,
            _ if bytes <= CHUNK_BYTES as u64 => SMALL_STEP_BYTES,
            _ => CHUNK_BYTES as u64,
        };
        if bytes > self.capacity {
            return Err(Error::retry("room in one memtable")
                .expected(format_args!("at most {} B", self.capacity))
                .got(bytes));
        }
        let rounded = bytes.next_multiple_of(step);
        let mut charges = lock(&self.charges);
        let charged = charges.charge.bytes();
        invariant!(charged == self.charged(), "a region's charge changes under its lock");
        if let Some(more @ 1..) = rounded.checked_sub(charged) {
            // Prefaulted bytes move from the pool's account to the region's.
            let (end, prefaulted) = (charges.end(), charges.prefaulted.bytes());
            charges.prefaulted.shrink_to(prefaulted.saturating_sub(more));
            if let Err(error) = charges.charge.grow(more) {
                self.discard_prefaulted(&mut charges, end);
                return Err(error);
            }
            self.charged.store(rounded, Relaxed);
        }
        Ok(())
    }

    /// Allocates memory before it is needed: up to `ahead` bytes behind the charged bytes and up to `most`
    /// bytes in all, as far as the budget has room. Does nothing without a pool, or before the first 2 MiB
    /// are charged.
    ///
    /// For a background task: a huge page usually takes 0.1 ms, and tens of milliseconds if the kernel or the
    /// host of a virtual machine must find one first.
    pub(crate) fn prefault(&self, ahead: u64, most: u64) {
        let Ok(_prefaulting) = self.prefaulting.try_lock() else { return };
        while let Some(from) = self.charge_prefaulted(ahead, most) {
            // Without `charges`: a writer that reaches this memory meanwhile makes the kernel allocate it.
            self.chunk.populate(from as usize, CHUNK_BYTES);
            let end = from + CHUNK_BYTES as u64;
            let mut charges = lock(&self.charges);
            if charges.end() < end {
                // `charge_to` gave the charge up before the memory was there (I10).
                self.discard_prefaulted(&mut charges, end);
                return;
            }
        }
    }

    /// Charges the next chunk to prefault to the pool's account. Returns its offset, or `None` if there is
    /// none.
    fn charge_prefaulted(&self, ahead: u64, most: u64) -> Option<u64> {
        self.pool.as_ref()?;
        let step = CHUNK_BYTES as u64;
        let mut charges = lock(&self.charges);
        let (charged, from) = (charges.charge.bytes(), charges.end());
        let to = charged.saturating_add(ahead).min(most).min(self.capacity);
        // Not the first 2 MiB: most regions never grow past them, and they consist of small pages.
        let fits = charged >= step && from.saturating_add(step) <= to;
        (fits && charges.prefaulted.try_grow(step)).then_some(from)
    }

    /// Gives back the prefaulted memory.
    pub(crate) fn release_prefaulted(&self) {
        let Ok(_prefaulting) = self.prefaulting.try_lock() else { return };
        let mut charges = lock(&self.charges);
        let end = charges.end();
        if charges.prefaulted.bytes() > 0 {
            self.discard_prefaulted(&mut charges, end);
        }
    }

    /// Gives back the memory from the end of the charged bytes up to `end`, and its charge.
    fn discard_prefaulted(&self, charges: &mut Charges, end: u64) {
        invariant!(end <= self.capacity, "a region's memory lies within its address space");
        // If a caller committed too little, allocations go beyond the charge. A concurrent allocation of that
        // kind waits for `charges` before it uses its memory.
        let used = self.used.0.load(Relaxed) * UNIT_BYTES as u64;
        let from = charges.charge.bytes().max(used.next_multiple_of(PAGE_BYTES as u64));
        self.chunk.discard_within(from as usize, end.saturating_sub(from) as usize);
        charges.prefaulted.shrink_to(0);
    }

    /// Allocates `bytes`, aligned to a unit. The memory belongs to the caller alone; its content is
    /// arbitrary.
    ///
    /// # Panics
    /// If nothing was committed for it and the region is full.
    pub(crate) fn alloc(&self, bytes: usize) -> RegionOffset {
        let units = bytes.div_ceil(UNIT_BYTES) as u64;
        let offset = self.used.0.fetch_add(units, Relaxed);
        let end = (offset + units) * UNIT_BYTES as u64;
        if end > self.charged() {
            assert!(end <= self.capacity, "memory is committed before it is allocated");
            // The caller committed too little. The memory exists, only its charge is missing: charge it now
            // if the budget has room.
            let _ = self.charge_to(end);
        }
        RegionOffset(offset as u32)
    }

    /// Allocates `bytes` at a multiple of `align`, a power of two of at least a unit. Commit `align` bytes
    /// more for it.
    pub(crate) fn alloc_aligned(&self, bytes: usize, align: usize) -> RegionOffset {
        debug_assert!(align.is_power_of_two() && align >= UNIT_BYTES, "units divide alignments");
        let RegionOffset(offset) = self.alloc(bytes + align - UNIT_BYTES);
        RegionOffset(offset.next_multiple_of((align / UNIT_BYTES) as u32))
    }

    /// The address of an allocation, valid as long as the region.
    #[inline]
    pub(crate) fn address(&self, RegionOffset(offset): RegionOffset) -> NonNull<u8> {
        debug_assert!(
            (offset as usize * UNIT_BYTES) < self.capacity as usize,
            "an offset belongs to the region that allocated it"
        );
        // SAFETY: only `alloc` makes offsets, and keeps them within the chunk.
        unsafe { self.chunk.start().add(offset as usize * UNIT_BYTES) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        let chunk = std::mem::replace(&mut self.chunk, Chunk::empty());
        let mut charges = lock(&self.charges);
        let mut prefaulted =
            std::mem::replace(&mut charges.prefaulted, pool.account().empty_charge());
        // The bytes move to the pool's account. If another thread charges them in between, the memory is
        // freed.
        let charged = charges.charge.bytes();
        charges.charge.shrink_to(0);
        if prefaulted.try_grow(charged) {
            pool.keep(SpareRegion { chunk, capacity: self.capacity, prefaulted });
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

//! A region: address space that fills up with memory from its start, and is given back whole.
//!
//! Memory is charged when it is committed (I10), in steps of 64 KiB up to 2 MiB and of 2 MiB after,
//! and taken when allocations touch it; the region never allocates past what is committed unless a
//! caller broke its word. Places are numbers of 8-byte units, so that four bytes name any of them.
//!
//! Concurrency: committing and allocating are one atomic addition each. Nothing is ever freed
//! before the whole region.

use std::ptr::NonNull;

use base::{Account, Charge, Error, Result};

use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, Padded, lock};

/// The unit of places, bytes; allocations are aligned to it.
pub(crate) const UNIT_BYTES: usize = 8;

/// The size of a region, bytes of address space: what 31 bits of places reach, far above any
/// memtable, so that filling one up is not a normal event.
const REGION_BYTES: usize = if cfg!(miri) { 1 << 20 } else { 16 << 30 };

/// The size below which reserving is not tried again: the address space is as good as full.
const REGION_BYTES_MIN: usize = 1 << 20;

/// The step in which a small region is charged, bytes.
const SMALL_STEP_BYTES: u64 = 64 << 10;

/// A place in a region, in units from its start. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

impl Place {
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
    used: Padded<AtomicU64>,
    /// Bytes that allocations may reach.
    committed: Padded<AtomicU64>,
    /// Bytes charged: `committed` rounded up to whole steps.
    charged: AtomicU64,
    charge: Mutex<Charge>,
}

impl Region {
    /// An empty region with `bytes` committed.
    ///
    /// # Errors
    /// `Retry` where the budget or the address space does not hold it.
    pub(crate) fn new(account: &Account, bytes: u64) -> Result<Self> {
        let charge = account.charge(0)?;
        let mut capacity = REGION_BYTES;
        // An operating system that counts address space may refuse the full size.
        let chunk = loop {
            match Chunk::reserve(capacity) {
                Ok(chunk) => break chunk,
                Err(error) if capacity <= REGION_BYTES_MIN => return Err(error),
                Err(_) => capacity /= 2,
            }
        };
        let region = Self {
            chunk,
            capacity: capacity as u64,
            // Place 0 is no place.
            used: Padded(AtomicU64::new(1)),
            committed: Padded(AtomicU64::new(UNIT_BYTES as u64)),
            charged: AtomicU64::new(0),
            charge: Mutex::new(charge),
        };
        region.commit(bytes)?;
        Ok(region)
    }

    /// Bytes charged.
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
        let mut charge = lock(&self.charge);
        if let Some(more @ 1..) = rounded.checked_sub(charge.bytes()) {
            charge.grow(more)?;
            self.charged.store(rounded, Relaxed);
        }
        Ok(())
    }

    /// Allocates `bytes`, aligned to a unit. The memory is zero and the caller's alone.
    ///
    /// # Panics
    /// Where nothing was committed for it and the region is full.
    pub(crate) fn alloc(&self, bytes: usize) -> Place {
        let units = bytes.div_ceil(UNIT_BYTES) as u64;
        let place = self.used.0.fetch_add(units, Relaxed);
        let end = (place + units) * UNIT_BYTES as u64;
        if end > self.charged() {
            assert!(end <= self.capacity, "memory is committed before it is allocated");
            // The caller committed too little. The memory is there, so only the books are wrong:
            // they are put right where the budget has room.
            let _ = self.charge_to(end);
        }
        Place(place as u32)
    }

    /// Allocates `bytes` at a multiple of `align`; commit `align` more bytes for it.
    pub(crate) fn alloc_aligned(&self, bytes: usize, align: usize) -> Place {
        let Place(place) = self.alloc(bytes + align - UNIT_BYTES);
        Place(place.next_multiple_of((align / UNIT_BYTES) as u32))
    }

    /// The address of an allocated place, valid as long as the region.
    #[inline]
    pub(crate) fn address(&self, Place(place): Place) -> NonNull<u8> {
        // SAFETY: a place is only made by `alloc`, which keeps it within the chunk.
        unsafe { self.chunk.start().add(place as usize * UNIT_BYTES) }
    }
}

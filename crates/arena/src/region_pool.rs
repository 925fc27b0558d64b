//! The region pool: keeps the memory of dropped regions for the next ones.
//!
//! A store seals a memtable, flushes it and fills the next one, so it needs the same memory again and again.
//! If the memory went back to the operating system in between, the kernel would zero each huge page anew (0.1
//! ms). If the kernel then picks another page, the host of a virtual machine may have to find that first:
//! pages that the guest had never used took 5 ms, at worst 45 ms (docs/ledger.md). Writers would wait.
//!
//! Invariants: kept memory is charged (I10) and is at most `bytes_max`, rounded up to 2 MiB. It is given back
//! when others need it, and when no region asks for it during [`IDLE_CHECKS_MAX`] idle checks. A region from
//! the pool contains the bytes of the last one: no code reads an offset of a region before it writes there.
//!
//! Concurrency: any thread; one short lock. Cost: keeping a region sorts the kept ones, which are few.

use std::sync::Arc;

use base::{Account, Reclaim, invariant};

use crate::chunk::CHUNK_BYTES;
use crate::spare_region::SpareRegion;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, lock};

/// Consecutive idle checks without a request after which the pool gives back everything.
const IDLE_CHECKS_MAX: u32 = 50;

/// Keeps memory for future regions. The memtables of all stores of a process share it.
pub struct RegionPool {
    account: Account,
    /// Spare regions, the largest last.
    spares: Mutex<Vec<SpareRegion>>,
    bytes_max: AtomicU64,
    /// Whether the last request left no spare region. Only a hint, so `Relaxed`.
    was_emptied: AtomicBool,
    /// Idle checks since the last request. Only a counter, so `Relaxed`.
    idle_checks: AtomicU32,
}

impl RegionPool {
    /// An empty pool that keeps at most `bytes_max` bytes and charges them to `account`.
    #[must_use]
    pub fn new(account: Account, bytes_max: u64) -> Arc<Self> {
        let (bytes_max, idle_checks) = (AtomicU64::new(bytes_max), AtomicU32::new(0));
        let was_emptied = AtomicBool::new(false);
        Arc::new(Self {
            account,
            spares: Mutex::new(Vec::new()),
            bytes_max,
            was_emptied,
            idle_checks,
        })
    }

    /// Bytes kept, and bytes that regions of this pool have prefaulted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.account.used()
    }

    /// Changes the most bytes kept, and gives back the excess.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Relaxed);
        self.fit(&mut lock(&self.spares));
    }

    /// An idle check, to be called from time to time while there are no writes. Gives back all kept memory if
    /// no region asked for memory during the last 50 checks. Returns whether it did.
    pub fn release_when_idle(&self) -> bool {
        let idle_checks = self.idle_checks.fetch_add(1, Relaxed).saturating_add(1);
        if idle_checks < IDLE_CHECKS_MAX {
            return false;
        }
        lock(&self.spares).clear();
        true
    }

    /// Gives back all kept memory: no store is left that could use it.
    pub fn release(&self) {
        lock(&self.spares).clear();
    }

    pub(crate) const fn account(&self) -> &Account {
        &self.account
    }

    /// The largest spare region, cut to the `likely` size of the new region; `None` if there is none, or if
    /// `likely` is less than a chunk.
    pub(crate) fn take(&self, likely: u64) -> Option<SpareRegion> {
        self.idle_checks.store(0, Relaxed);
        if likely < CHUNK_BYTES as u64 {
            return None;
        }
        let mut spares = lock(&self.spares);
        let spare = spares.pop();
        self.was_emptied.store(spares.is_empty(), Relaxed);
        drop(spares);
        spare.map(|mut spare| {
            spare.trim(likely);
            spare
        })
    }

    /// Makes a spare region with its first chunk prefaulted, if the last request left none and the budget has
    /// room. For a background task: reserving address space waits for all threads of the process that are in
    /// a page fault.
    pub fn prepare(&self) {
        const BYTES: u64 = CHUNK_BYTES as u64;
        if !self.was_emptied.swap(false, Relaxed)
            || self.bytes_max.load(Relaxed) < BYTES
            || !lock(&self.spares).is_empty()
        {
            return;
        }
        let Some(charge) = self.account.try_charge(BYTES) else { return };
        // Without address space there is no spare region: the next region reports the error.
        let Ok(spare) = SpareRegion::reserve(charge) else { return };
        spare.chunk.populate(0, CHUNK_BYTES);
        self.keep(spare);
    }

    /// Keeps a spare region, if it has a whole chunk of memory.
    pub(crate) fn keep(&self, spare: SpareRegion) {
        if spare.bytes() < CHUNK_BYTES as u64 {
            return;
        }
        let mut spares = lock(&self.spares);
        spares.push(spare);
        spares.sort_by_key(SpareRegion::bytes);
        self.fit(&mut spares);
    }

    /// Frees the smallest spare regions until the rest fits into `bytes_max`; trims the last one if that
    /// alone is too large.
    fn fit(&self, spares: &mut Vec<SpareRegion>) {
        let most = self.bytes_max.load(Relaxed);
        invariant!(
            spares.is_sorted_by_key(SpareRegion::bytes),
            "the smallest spare region is first"
        );
        let bytes = |spares: &[SpareRegion]| spares.iter().map(SpareRegion::bytes).sum::<u64>();
        while spares.len() > 1 && bytes(spares) > most {
            spares.remove(0);
        }
        spares.retain_mut(|spare| {
            spare.trim(most);
            most > 0
        });
        let rounded = most.checked_next_multiple_of(CHUNK_BYTES as u64).unwrap_or(u64::MAX);
        invariant!(bytes(spares) <= rounded, "a pool keeps at most bytes_max");
    }
}

impl Reclaim for RegionPool {
    fn reclaim(&self, bytes: u64) -> u64 {
        // The charging thread itself may hold the lock.
        let Ok(mut spares) = self.spares.try_lock() else { return 0 };
        let mut came_back = 0;
        while came_back < bytes
            && let Some(spare) = spares.pop()
        {
            came_back += spare.bytes();
        }
        came_back
    }
}

impl std::fmt::Debug for RegionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RegionPool({} B)", self.bytes())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

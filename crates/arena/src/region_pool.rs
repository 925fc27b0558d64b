//! Memory of regions that are gone, kept for the next ones.
//!
//! A store seals a memtable, flushes it and fills the next: the same memory, again and again. Given
//! back and taken anew, every huge page of it is zeroed by the kernel (0.1 ms), and where the kernel
//! takes another one than it was given, a virtual machine's host may have to find it first: 5 ms, at
//! worst 45 ms, were measured for pages that the guest had never used (docs/performance.md). Writers
//! would wait for that.
//!
//! Invariants: what is kept is charged (I10), is at most `bytes_max`, and goes when others need the
//! memory, or when it was not asked for during [`IDLE_CHECKS_MAX`] idle_checks. What a region is given holds
//! what the last one wrote: nobody reads a place of a region before writing it.

use std::sync::Arc;

use base::{Account, Charge, Reclaim};

use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::region::Region;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, lock};

/// Looks between which nothing is asked for, after which nothing is kept.
const IDLE_CHECKS_MAX: u32 = 50;

/// Memory of a region that is gone: the first `prefaulted` bytes of the chunk were taken.
pub(crate) struct SpareRegion {
    pub(crate) chunk: Chunk,
    pub(crate) capacity: u64,
    pub(crate) prefaulted: Charge,
}

impl SpareRegion {
    /// Gives back what is behind the first `bytes`, whole chunks.
    fn trim(&mut self, bytes: u64) {
        let (keep, end) = (bytes.next_multiple_of(CHUNK_BYTES as u64), self.prefaulted.bytes());
        if let Some(less @ 1..) = end.checked_sub(keep) {
            self.chunk.discard_within(keep as usize, less as usize);
            self.prefaulted.shrink_to(keep);
        }
    }
}

/// Keeps memory for the regions to come. Shared by the memtables of all stores of a process.
pub struct RegionPool {
    account: Account,
    spares: Mutex<Vec<SpareRegion>>,
    bytes_max: AtomicU64,
    /// Whether nothing was left when something was asked for last. Only a hint: `Relaxed`.
    is_wanting: AtomicBool,
    /// Looks since something was asked for. Only a number: `Relaxed`.
    idle_checks: AtomicU32,
}

impl RegionPool {
    /// An empty pool, which charges what it keeps to `account` and keeps at most `bytes_max`.
    #[must_use]
    pub fn new(account: Account, bytes_max: u64) -> Arc<Self> {
        let (bytes_max, idle_checks) = (AtomicU64::new(bytes_max), AtomicU32::new(0));
        let is_wanting = AtomicBool::new(false);
        Arc::new(Self {
            account,
            spares: Mutex::new(Vec::new()),
            bytes_max,
            is_wanting,
            idle_checks,
        })
    }

    /// Bytes kept, and those that living regions took ahead.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.account.used()
    }

    /// Keeps at most `bytes` from now on.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Relaxed);
        self.fit(&mut lock(&self.spares));
    }

    /// To be called now and then while nobody writes: what was not asked for in a while is given
    /// back. Whether there is none left.
    pub fn release_when_idle(&self) -> bool {
        let idle_checks = self.idle_checks.fetch_add(1, Relaxed).saturating_add(1);
        if idle_checks < IDLE_CHECKS_MAX {
            return false;
        }
        lock(&self.spares).clear();
        true
    }

    pub(crate) const fn account(&self) -> &Account {
        &self.account
    }

    /// Memory for a region that will take `likely` bytes: no more of it than that.
    pub(crate) fn take(&self, likely: u64) -> Option<SpareRegion> {
        self.idle_checks.store(0, Relaxed);
        if likely < CHUNK_BYTES as u64 {
            return None;
        }
        let mut spares = lock(&self.spares);
        let spare = spares.pop();
        self.is_wanting.store(spares.is_empty(), Relaxed);
        drop(spares);
        spare.map(|mut spare| {
            spare.trim(likely);
            spare
        })
    }

    /// Has the beginning of a region there where the last one was taken, as far as the budget holds it.
    /// For a task in the background: taking address space waits for every thread of the process that
    /// has a page fault.
    pub fn prepare(&self) {
        const BYTES: u64 = CHUNK_BYTES as u64;
        if !self.is_wanting.swap(false, Relaxed)
            || self.bytes_max.load(Relaxed) < BYTES
            || !lock(&self.spares).is_empty()
        {
            return;
        }
        let mut prefaulted = self.account.empty_charge();
        if !prefaulted.try_grow(BYTES) {
            return;
        }
        let Ok((chunk, capacity)) = Region::reserve() else { return };
        chunk.populate(0, CHUNK_BYTES);
        self.keep(SpareRegion { chunk, capacity, prefaulted });
    }

    pub(crate) fn keep(&self, spare: SpareRegion) {
        if spare.prefaulted.bytes() < CHUNK_BYTES as u64 {
            return;
        }
        let mut spares = lock(&self.spares);
        spares.push(spare);
        // The largest is asked for first.
        spares.sort_by_key(|spare| spare.prefaulted.bytes());
        self.fit(&mut spares);
    }

    /// Has the smallest go until the rest is few enough, and one fewer if that is too much.
    fn fit(&self, spares: &mut Vec<SpareRegion>) {
        let most = self.bytes_max.load(Relaxed);
        let bytes = |spares: &[SpareRegion]| {
            spares.iter().map(|spare| spare.prefaulted.bytes()).sum::<u64>()
        };
        while spares.len() > 1 && bytes(spares) > most {
            spares.remove(0);
        }
        spares.retain_mut(|spare| {
            spare.trim(most);
            most > 0
        });
    }
}

impl Reclaim for RegionPool {
    fn reclaim(&self, bytes: u64) -> u64 {
        // Whoever holds the lock may be the one who asks.
        let Ok(mut spares) = self.spares.try_lock() else { return 0 };
        let mut came_back = 0;
        while came_back < bytes
            && let Some(spare) = spares.pop()
        {
            came_back += spare.prefaulted.bytes();
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

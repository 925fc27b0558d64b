//! The cache: shards by hash over one pool of frames.
//!
//! Concurrency: one mutex a shard, held for a lookup or an insertion and never over I/O. A hit
//! clones a frame's handle: one atomic addition. Cost: [`SLOT_BYTES`] of DRAM a page beside its
//! frame, charged together (I10).

use std::fmt;

use arena::{Frame, FramePool, Page};
use base::limits::PAGE_BYTES;
use base::{Account, Charge, Result, TableId};
use parking_lot::Mutex;

use crate::shard::{SLOT_BYTES, Shard};
use crate::{CacheStatistics, PageKey, PageKind};

/// A cache of 4 KiB pages, shared by any number of threads and stores.
///
/// A page that was got or inserted stays readable for as long as its frame is held, whatever
/// becomes of it in the cache.
pub struct PageCache {
    account: Account,
    pool: FramePool,
    shards: Box<[Padded]>,
    capacity: usize,
    _charge: Charge,
}

/// Shards' locks do not share cache lines.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// Few enough pages in a shard make the clock a poor one; few shards make threads wait.
const SHARD_PAGES_MIN: usize = 1024;
const SHARDS_MAX: usize = 64;

impl PageCache {
    /// A cache that takes at most `capacity_bytes`, all of its own memory included. Frames are
    /// charged as they are first used, 2 MiB at a time.
    ///
    /// # Errors
    /// `Retry` where the budget does not hold the slots.
    pub fn new(account: &Account, capacity_bytes: u64) -> Result<Self> {
        let most =
            usize::try_from(capacity_bytes).unwrap_or(usize::MAX) / (PAGE_BYTES + SLOT_BYTES);
        let mut frames = most;
        while frames > 0 && over(frames, capacity_bytes) {
            frames -= frames.div_ceil(256);
        }
        let shards = (frames / SHARD_PAGES_MIN).clamp(1, SHARDS_MAX).next_power_of_two();
        let slots = frames / shards;
        let charge = account.charge((slots * shards * SLOT_BYTES) as u64)?;
        Ok(Self {
            account: account.clone(),
            pool: FramePool::new(account, slots * shards)?,
            shards: (0..shards).map(|_| Padded(Mutex::new(Shard::new(slots)))).collect(),
            capacity: slots * shards,
            _charge: charge,
        })
    }

    fn shard(&self, hash: u64) -> Option<&Mutex<Shard>> {
        let number = (hash >> 40) as usize & (self.shards.len() - 1);
        self.shards.get(number).map(|padded| &padded.0)
    }

    /// The page, if it is cached; a hit or a miss of `kind`.
    #[must_use]
    pub fn get(&self, key: PageKey, kind: PageKind) -> Option<Frame> {
        let hash = key.hash();
        self.shard(hash)?.lock().get(key, hash, kind)
    }

    /// Caches a copy of `page`, which the caller verified (I8), and returns it. Where the page is
    /// cached already, that one; where every frame it could take is pinned, a frame of its own.
    ///
    /// Bytes past the first 4 KiB are left out; fewer are filled up with zeros.
    #[must_use]
    pub fn insert(&self, key: PageKey, kind: PageKind, page: &[u8]) -> Frame {
        match page.first_chunk::<PAGE_BYTES>() {
            Some(page) => self.insert_page(key, kind, page),
            None => {
                let mut filled = [0; PAGE_BYTES];
                for (to, from) in filled.iter_mut().zip(page) {
                    *to = *from;
                }
                self.insert_page(key, kind, &filled)
            }
        }
    }

    fn insert_page(&self, key: PageKey, kind: PageKind, page: &Page) -> Frame {
        let hash = key.hash();
        let cached = self
            .shard(hash)
            .and_then(|shard| shard.lock().insert(key, hash, kind, page, &self.pool));
        cached.unwrap_or_else(|| self.uncached(page))
    }

    /// A frame with a copy of `page` that is not in the cache, charged to the cache's account.
    #[must_use]
    pub fn uncached(&self, page: &Page) -> Frame {
        Frame::heap(&self.account, page)
    }

    /// Removes every page of a table that is gone. Walks the whole cache.
    pub fn remove_table(&self, space: u32, table: TableId) {
        for shard in &self.shards {
            shard.0.lock().remove(|key| key.space == space && key.table == table);
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn statistics(&self) -> CacheStatistics {
        let mut statistics =
            CacheStatistics { capacity_pages: self.capacity as u64, ..CacheStatistics::default() };
        for shard in &self.shards {
            shard.0.lock().add_to(&mut statistics);
        }
        statistics
    }
}

/// Whether this many pages cost more than `bytes` in all.
fn over(frames: usize, bytes: u64) -> bool {
    FramePool::cost_bytes(frames) + (frames * SLOT_BYTES) as u64 > bytes
}

impl fmt::Debug for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageCache({} pages in {} shards)", self.capacity, self.shards.len())
    }
}

#[cfg(test)]
mod tests;

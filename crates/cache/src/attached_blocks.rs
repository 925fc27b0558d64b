//! Memory of decompressed blocks that are attached to cached pages, so that pages that are read often are not
//! decompressed each time.
//!
//! Blocks use memory that nobody else needs, up to a part of the cache's capacity. A block is freed with its
//! page, and before any page is evicted for memory. A block that a reader got stays readable while the reader
//! holds it. The shards know which pages have blocks; this module charges their memory. Called under a
//! shard's mutex; its own mutex is a leaf.
//!
//! Cost: the block's bytes and [`OVERHEAD_BYTES`]. They are charged to the cache's own account, which
//! reclaims from nobody, before the block is attached to its frame (I10).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arena::Frame;
use base::{Account, Charge, invariant};
use bytes::Bytes;
use parking_lot::Mutex;

/// Blocks may use the cache's capacity divided by this.
const CAPACITY_PART: u64 = 8;

/// A block is attached only while the account has room for this many times the most that blocks may use,
/// because freed memory does not return to the operating system at once.
const HEADROOM: u64 = 2;

/// Memory per block beside its bytes: its owner, and the allocator's overhead.
const OVERHEAD_BYTES: u64 = 96;

/// The memory of all blocks of a cache, and its limits.
pub(crate) struct AttachedBlocks {
    account: Account,
    charge: Mutex<Charge>,
    count: AtomicU64,
    bytes: AtomicU64,
    /// Most memory that blocks may use, and the room that the account must have; bytes.
    bytes_max: AtomicU64,
    room: AtomicU64,
}

/// Memory that a block is charged, bytes.
pub(crate) const fn cost(block: &Bytes) -> u64 {
    block.len() as u64 + OVERHEAD_BYTES
}

impl AttachedBlocks {
    /// For a cache of `capacity_bytes`.
    pub(crate) fn new(account: &Account, capacity_bytes: u64) -> Self {
        let blocks = Self {
            account: account.clone(),
            charge: Mutex::new(account.empty_charge()),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(0),
            room: AtomicU64::new(0),
        };
        blocks.set_capacity(capacity_bytes);
        blocks
    }

    /// Changes the limits for another capacity. Blocks above the new limit stay until memory is needed.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        self.bytes_max.store(capacity_bytes / CAPACITY_PART, Relaxed);
        self.room.store(capacity_bytes / CAPACITY_PART * HEADROOM, Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Whether another block would be attached now.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes() < self.bytes_max.load(Relaxed)
            && self.account.has_room(self.room.load(Relaxed))
    }

    /// Attaches `block` to `frame` if there is memory and the frame has no block; returns whether it did. The
    /// caller holds the mutex of the frame's shard.
    pub(crate) fn attach(&self, frame: &Frame, block: &Bytes) -> bool {
        let mut charge = self.charge.lock();
        if !self.has_room() || !charge.try_grow(cost(block)) {
            return false;
        }
        let is_attached = frame.attach(block.clone());
        if is_attached {
            self.count.fetch_add(1, Relaxed);
        } else {
            let left = charge.bytes() - cost(block);
            charge.shrink_to(left);
        }
        invariant!(
            charge.bytes() >= self.count() * OVERHEAD_BYTES,
            "every attached block is charged (I10)"
        );
        self.bytes.store(charge.bytes(), Relaxed);
        is_attached
    }

    /// Uncharges a block that was detached, or whose frame now belongs to a reader alone. `bytes` is its
    /// [`cost`].
    pub(crate) fn detached(&self, bytes: u64) {
        let mut charge = self.charge.lock();
        invariant!(charge.bytes() >= bytes, "the charge of attached blocks covers each of them");
        let left = charge.bytes().saturating_sub(bytes);
        charge.shrink_to(left);
        self.bytes.store(left, Relaxed);
        let before = self.count.fetch_sub(1, Relaxed);
        invariant!(before > 0, "attached blocks are counted");
        invariant!(before > 1 || left == 0, "without an attached block nothing is charged");
    }
}

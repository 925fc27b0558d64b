//! Decompressed blocks that attach on the frames of pages: what is read again and again is not
//! decompressed again and again.
//!
//! They take memory that nobody has another use for, up to a part of the cache's capacity, and are the
//! first to go: with their page, where pages need memory, and where anybody does. A block that was got
//! stays readable for as long as it is held. Which there are, shards know; here is what they may take.
//!
//! Cost: a block's bytes and [`OVERHEAD_BYTES`]; charged before (I10) to the cache's own account, which
//! asks nobody.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arena::Frame;
use base::{Account, Charge};
use bytes::Bytes;
use parking_lot::Mutex;

/// The part of the cache's capacity that blocks may take.
const CAPACITY_PART: u64 = 8;

/// AttachedBlocks are hung where this many times what they may take has room: what is freed is not at once the
/// operating system's again.
const HEADROOM: u64 = 2;

/// What a block takes beside its bytes: its owner, and the allocator's share.
const OVERHEAD_BYTES: u64 = 96;

/// What the blocks of a cache may take, and do.
pub(crate) struct AttachedBlocks {
    account: Account,
    charge: Mutex<Charge>,
    count: AtomicU64,
    bytes: AtomicU64,
    /// The most they may take, and the room there must be; bytes.
    bytes_max: AtomicU64,
    room: AtomicU64,
}

/// What a block takes, bytes.
pub(crate) const fn cost(block: &Bytes) -> u64 {
    block.len() as u64 + OVERHEAD_BYTES
}

impl AttachedBlocks {
    /// Of a cache of `capacity_bytes`.
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

    /// Changes what they may take. What is above it stays until it is asked for.
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

    /// Whether another block would be hung.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes() < self.bytes_max.load(Relaxed)
            && self.account.has_room(self.room.load(Relaxed))
    }

    /// Hangs `block` on `frame`, where there is memory and no block; whether it did. Under the lock of the
    /// shard that the frame is of.
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
        self.bytes.store(charge.bytes(), Relaxed);
        is_attached
    }

    /// A block that cost `bytes` is gone, or goes with whoever reads it.
    pub(crate) fn detached(&self, bytes: u64) {
        let mut charge = self.charge.lock();
        let left = charge.bytes().saturating_sub(bytes);
        charge.shrink_to(left);
        self.bytes.store(left, Relaxed);
        self.count.fetch_sub(1, Relaxed);
    }
}

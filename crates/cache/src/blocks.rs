//! Decompressed blocks that hang on the pages of one shard: what is read again and again is not
//! decompressed again and again.
//!
//! They take memory that nobody has another use for, up to a part of the cache's capacity, and are the
//! first to go: with their page, where pages need memory, and where anybody does. A block that was got
//! stays readable for as long as it is held.
//!
//! Cost: a block's bytes, and 32 B for every slot up to the last that had one; charged before (I10) to
//! the cache's own account, which asks nobody.

use base::{Account, Charge};
use bytes::Bytes;

/// The part of the cache's capacity that blocks may take.
const PART: u64 = 8;

/// Blocks are hung where this many times what they may take has room: what is freed is not at once the
/// operating system's again.
const ROOM: u64 = 2;

/// What a block takes beside its bytes: its owner, and the allocator's share.
const OVERHEAD_BYTES: u64 = 96;

/// Slots for which there are places at a time.
const STEP: usize = 1024;

pub(crate) struct Blocks {
    account: Account,
    charge: Charge,
    by_slot: Vec<Option<Bytes>>,
    count: u64,
    /// The most they may take, and the room there must be; bytes.
    bytes_max: u64,
    room: u64,
}

const fn cost(block: &Bytes) -> u64 {
    block.len() as u64 + OVERHEAD_BYTES
}

impl Blocks {
    /// Of one of `shards` shards of a cache of `capacity_bytes`.
    pub(crate) fn new(account: &Account, capacity_bytes: u64, shards: usize) -> Self {
        let (account, charge) = (account.clone(), account.empty_charge());
        let (by_slot, count) = (Vec::new(), 0);
        let mut blocks = Self { account, charge, by_slot, count, bytes_max: 0, room: 0 };
        blocks.set_capacity(capacity_bytes, shards);
        blocks
    }

    /// Changes what they may take. What is above it stays until it is asked for.
    pub(crate) fn set_capacity(&mut self, capacity_bytes: u64, shards: usize) {
        self.bytes_max = capacity_bytes / PART / shards as u64;
        self.room = capacity_bytes / PART * ROOM;
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// The block of slot `slot`.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Bytes> {
        self.by_slot.get(slot as usize)?.as_ref()
    }

    /// Whether another block would be hung.
    pub(crate) fn has_room(&self) -> bool {
        self.charge.bytes() < self.bytes_max && self.account.has_room(self.room)
    }

    /// Hangs `block` on slot `slot`, where there is memory.
    pub(crate) fn hang(&mut self, slot: u32, block: &Bytes) {
        let missing = (slot as usize + 1).saturating_sub(self.by_slot.len());
        let places = missing.next_multiple_of(STEP);
        let bytes = cost(block) + (places * size_of::<Option<Bytes>>()) as u64;
        if !self.has_room() || !self.charge.try_grow(bytes) {
            return;
        }
        self.by_slot.reserve_exact(places);
        self.by_slot.extend((0..places).map(|_| None));
        if let Some(place) = self.by_slot.get_mut(slot as usize) {
            let old = place.replace(block.clone());
            self.count += 1;
            self.gone(old);
        }
    }

    /// Gives up the block of slot `slot`, if it has one.
    pub(crate) fn remove(&mut self, slot: u32) {
        let block = self.by_slot.get_mut(slot as usize).and_then(Option::take);
        self.gone(block);
    }

    fn gone(&mut self, block: Option<Bytes>) {
        let Some(block) = block else { return };
        self.count -= 1;
        let left = self.charge.bytes().saturating_sub(cost(&block));
        drop(block);
        self.charge.shrink_to(left);
    }

    /// Gives up all of them; the bytes that were charged for them.
    pub(crate) fn clear(&mut self) -> u64 {
        let bytes = self.charge.bytes();
        (self.by_slot, self.count) = (Vec::new(), 0);
        self.charge.shrink_to(0);
        bytes
    }
}

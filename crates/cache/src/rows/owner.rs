//! The owner of rows: an ordered keyspace of an open store.
//!
//! Each owner of a cache has a number that is never used again, so rows of a dropped keyspace belong to
//! nobody. An owner's floor is the sequence number of the last write to many keys, such as a range delete. A
//! row counts only if it was known to be the newest version of its key as of the floor or later. The floor is
//! raised before that write becomes visible, so every reader that sees the write also sees the floor.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Seqno;

/// An owner of rows.
#[derive(Debug)]
pub struct RowOwner {
    pub(super) number: u32,
    floor: AtomicU64,
}

impl RowOwner {
    pub(super) const fn new(number: u32) -> Self {
        Self { number, floor: AtomicU64::new(0) }
    }

    /// The number: no other owner of this cache ever has it.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The hash of a row, given the hash of its key. All its bits are usable.
    #[must_use]
    pub const fn hash(&self, key_hash: u64) -> u64 {
        hash_of(self.number, key_hash)
    }

    /// Invalidates every row that was filled as of a seqno below `seqno`, which is that of a write to many
    /// keys. The write is not visible yet.
    pub fn raise_floor(&self, seqno: Seqno) {
        self.floor.fetch_max(seqno.get(), Ordering::Release);
    }

    /// Rows filled as of a lower seqno are invalid.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }
}

/// See [`RowOwner::hash`].
pub(super) const fn hash_of(owner: u32, key_hash: u64) -> u64 {
    key_hash ^ (owner as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

//! Whose rows they are: an ordered keyspace of an open store.
//!
//! An owner has a number no other owner of the cache ever has, so that the rows of a keyspace that
//! was dropped are nobody's. Its floor is the sequence number of the last write that is not to one
//! key: a row is as good as gone where it was last known to be the newest before the floor. The
//! floor is raised before that write becomes visible: whoever reads at its number or later finds
//! it.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Seqno;

/// The owner of rows.
#[derive(Debug)]
pub struct RowOwner {
    pub(super) number: u32,
    floor: AtomicU64,
}

impl RowOwner {
    pub(super) const fn new(number: u32) -> Self {
        Self { number, floor: AtomicU64::new(0) }
    }

    /// The hash of a row, from that of its key: all its bits are usable.
    #[must_use]
    pub const fn hash(&self, key_hash: u64) -> u64 {
        hash_of(self.number, key_hash)
    }

    /// Has every row go by that was filled at a number before `seqno`: of a write to many keys, which
    /// is not visible yet.
    pub fn raise_floor(&self, seqno: Seqno) {
        self.floor.fetch_max(seqno.get(), Ordering::Release);
    }

    /// Rows filled before it are gone.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }
}

/// As [`RowOwner::hash`].
pub(super) const fn hash_of(owner: u32, key_hash: u64) -> u64 {
    key_hash ^ (owner as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

//! The memory that writes need in a memtable, counted while a batch is built.

use crate::{EntryKind, Write};

/// The entries and range deletes of writes, and their bytes, for which a memtable must have room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteSize {
    /// Entries of the memtable's map.
    pub entries: usize,
    /// Bytes of the keys and values of `entries`, as stored.
    pub bytes: usize,
    /// Range deletes.
    pub ranges: usize,
    /// Bytes of the bounds of `ranges`.
    pub range_bytes: usize,
}

impl WriteSize {
    /// The size of one write to `key`.
    #[must_use]
    pub fn of(key: &[u8], write: Write<'_>) -> Self {
        Self::of_op(write.kind(), key.len() + write.stored_bytes())
    }

    /// The size of one operation of `kind`. Its key and stored value, or its bounds, take `bytes`.
    #[must_use]
    pub(crate) fn of_op(kind: EntryKind, bytes: usize) -> Self {
        match kind {
            EntryKind::DeleteRange => Self { ranges: 1, range_bytes: bytes, ..Self::default() },
            _ => Self { entries: 1, bytes, ..Self::default() },
        }
    }

    /// Adds `other`.
    pub fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes += other.bytes;
        self.ranges += other.ranges;
        self.range_bytes += other.range_bytes;
    }

    /// User bytes: keys, values and the bounds of range deletes.
    #[must_use]
    pub fn user_bytes(self) -> usize {
        self.bytes + self.range_bytes
    }
}

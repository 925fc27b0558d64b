//! A memtable: the writes of one keyspace in a contiguous range of sequence numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arena::OrderedMap;
use base::{Account, EntryKind, Result, Seqno, Trailer, WriteSize, invariant};
use compact::Horizon;

use crate::DeletedRanges;
use crate::resident::Places;

/// Memory of a tombstone beside its key, about: its entry's header, and its part of a node.
const TOMBSTONE_BYTES: u64 = 56;

/// A memtable is full once tombstones take this part of the bytes of a full one. A walk crosses each of
/// them, and only a flush, and the merge after it, can drop them together with the versions that they hide.
const TOMBSTONE_PART: u64 = 4;

/// The writes at seqno `first` and later, up to the first seqno of the next memtable. Any number of threads
/// may read and write.
#[derive(Debug)]
pub struct Memtable {
    map: Arc<OrderedMap>,
    /// The range deletes. The map has no entry for them.
    deleted: DeletedRanges,
    /// Memory of the tombstones in the map, bytes, about.
    tombstones: AtomicU64,
    first: Seqno,
    /// Where the log has its writes, in a resident keyspace.
    places: Places,
    /// Whether a write to it may be unlogged: then only a flush keeps it. `Relaxed`: set before the write is
    /// acknowledged, which orders it before whoever waits for the acknowledgement.
    has_unlogged: AtomicBool,
}

impl Memtable {
    /// A memtable in `map`, which is empty, for writes at `first` and later.
    pub fn with(map: Arc<OrderedMap>, account: &Account, first: Seqno) -> Arc<Self> {
        invariant!(map.is_empty(), "a new memtable is empty");
        let (deleted, has_unlogged) = (DeletedRanges::new(account), AtomicBool::new(false));
        let (places, tombstones) = (Places::new(account), AtomicU64::new(0));
        Arc::new(Self { map, deleted, tombstones, first, places, has_unlogged })
    }

    /// An empty memtable for writes at `first` and later. It charges nothing before the first reservation, so
    /// that sealing the memtable before it needs no memory.
    ///
    /// # Errors
    /// `Retry` if the process has no address space for it.
    pub fn new(account: &Account, first: Seqno) -> Result<Arc<Self>> {
        Ok(Self::with(OrderedMap::new(account)?, account, first))
    }

    /// Charges the memory for writes of `size`, so that applying them cannot fail (I10).
    ///
    /// # Errors
    /// `Retry` if there is no memory.
    pub fn reserve(&self, size: WriteSize) -> Result<()> {
        self.deleted.reserve(size.ranges, size.range_bytes)?;
        if size.entries == 0 {
            return Ok(());
        }
        self.places.reserve(size.entries)?;
        self.map.reserve(size.entries, size.bytes)
    }

    /// The memory that an empty memtable charges for writes of `size`, bytes.
    pub const fn reserved_bytes(size: WriteSize) -> u64 {
        let ranges = DeletedRanges::reserved_bytes(size.ranges, size.range_bytes);
        match size.entries {
            0 => ranges,
            entries => OrderedMap::first_reserved_bytes(entries, size.bytes) + ranges,
        }
    }

    /// Memory that the memtable charges, bytes: a flush gives it back.
    pub fn bytes(&self) -> u64 {
        self.map.bytes() + self.deleted.bytes() + self.places.bytes()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty() && self.deleted.is_empty()
    }

    /// Applies a write for which memory was reserved. No other write has its seqno. `readers` returns the
    /// seqnos that readers are at; the last is the newest visible one.
    pub fn insert(
        &self,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        readers: impl FnOnce() -> Horizon,
    ) {
        debug_assert!(trailer.seqno() >= self.first, "a write goes to the memtable of its seqno");
        if matches!(trailer.kind(), Ok(EntryKind::DeleteRange)) {
            return self.deleted.add(key, value, trailer.seqno(), &readers());
        }
        debug_assert!(!key.is_empty(), "an entry has a key");
        if matches!(trailer.kind(), Ok(EntryKind::Delete)) {
            self.tombstones.fetch_add(TOMBSTONE_BYTES + key.len() as u64, Ordering::Relaxed);
        }
        self.map.insert(key, trailer, value);
    }

    /// Notes that a write to it is unlogged.
    pub fn note_unlogged(&self) {
        if !self.has_unlogged() {
            self.has_unlogged.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a write to it may be unlogged.
    pub fn has_unlogged(&self) -> bool {
        self.has_unlogged.load(Ordering::Relaxed)
    }

    /// Where the log has its writes, in a resident keyspace.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// The range deletes.
    pub fn deleted(&self) -> &DeletedRanges {
        &self.deleted
    }

    /// The entries of all other kinds.
    pub fn map(&self) -> &Arc<OrderedMap> {
        &self.map
    }

    /// Whether to seal it, if a full memtable has `bytes`. Tombstones and range deletes have bounds of
    /// their own.
    pub fn is_full(&self, bytes: u64) -> bool {
        self.bytes() >= bytes
            || self.tombstones.load(Ordering::Relaxed) >= bytes / TOMBSTONE_PART
            || self.deleted.bytes() >= DeletedRanges::BYTES_MAX
    }

    /// Whether sealing it would free nothing: it has no entries, and no memory that was reserved for writes
    /// that then failed.
    pub fn is_blank(&self) -> bool {
        self.is_empty() && self.bytes() == 0
    }

    /// Whether it has a version of `key`, or a range delete that covers it, with a seqno above `seqno`,
    /// visible or not.
    pub fn holds_newer(&self, key: &[u8], seqno: Seqno) -> bool {
        let newest = self.map.get(key, Trailer::seek(Seqno::MAX));
        newest.is_some_and(|(trailer, _)| trailer.seqno() > seqno)
            || self.deleted.newest_covering(key, Seqno::MAX).is_some_and(|delete| delete > seqno)
    }

    /// Whether it has a version or a tombstone of a key at or after `first` and before `end`.
    pub fn holds_any(&self, first: &[u8], end: Option<&[u8]>) -> bool {
        if self.deleted.find(first, end, |_| true).is_some() {
            return true;
        }
        let mut cursor = self.map.cursor();
        cursor.seek(first, Trailer::seek(Seqno::MAX));
        cursor.valid() && end.is_none_or(|end| cursor.key() < end)
    }

    /// No write below this seqno is in the memtable.
    pub fn first(&self) -> Seqno {
        self.first
    }
}

#[cfg(test)]
mod tests {
    use base::Write;

    use super::*;

    #[test]
    fn a_memtable_is_full_once_a_quarter_of_its_bytes_are_tombstones() {
        const FULL: u64 = 1 << 20;
        let filled = |deletes_of: u64| {
            let memtable = Memtable::new(&Account::unlimited("test"), Seqno::new(1)).unwrap();
            let (mut number, mut deletes) = (1u64, 0);
            while !memtable.is_full(FULL) {
                let is_delete = number % deletes_of == 0;
                let (key, value) = (number.to_be_bytes(), [7; 100]);
                let write = if is_delete { Write::Delete } else { Write::Put(&value) };
                memtable.reserve(WriteSize::of(&key, write)).unwrap();
                let trailer = Trailer::new(Seqno::new(number), write.kind());
                let value = if is_delete { &[][..] } else { &value[..] };
                memtable.insert(&key, trailer, value, Horizon::default);
                (number, deletes) = (number + 1, deletes + u64::from(is_delete));
            }
            (memtable.bytes(), deletes * (TOMBSTONE_BYTES + 8))
        };
        let (all, tombstones) = filled(1);
        assert!(all < FULL / 2 && (FULL / 4..FULL / 4 + 100).contains(&tombstones), "{all} bytes");
        // Every tenth write is a delete: it is as long as ever.
        let (all, tombstones) = filled(10);
        assert!(all >= FULL && tombstones < FULL / 4, "{all} bytes, {tombstones} of tombstones");
    }

    #[test]
    fn holds_newer_considers_versions_and_range_deletes() {
        let memtable = Memtable::new(&Account::unlimited("test"), Seqno::new(1)).unwrap();
        let put = |seqno: u64, key: &[u8], write: Write<'_>| {
            memtable.reserve(WriteSize::of(key, write)).unwrap();
            let (Write::Put(value) | Write::DeleteRange { end: value }) = write else { return };
            let trailer = Trailer::new(Seqno::new(seqno), write.kind());
            memtable.insert(key, trailer, value, Horizon::default);
        };
        let holds_newer = |key: &[u8], seqno: u64| memtable.holds_newer(key, Seqno::new(seqno));
        put(1, b"b", Write::Put(b"old"));
        assert!(!holds_newer(b"b", 1) && holds_newer(b"b", 0) && !holds_newer(b"a", 0));
        put(2, b"b", Write::Put(b"new"));
        assert!(holds_newer(b"b", 1) && !holds_newer(b"b", 2));
        put(3, b"a", Write::DeleteRange { end: b"c" });
        assert!(holds_newer(b"b", 2) && !holds_newer(b"b", 3) && !holds_newer(b"c", 0));
    }
}

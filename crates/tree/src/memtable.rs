//! A memtable: the writes of one keyspace in a contiguous range of the store's sequence numbers.

use std::sync::Arc;

use arena::OrderedMap;
use base::{Account, EntryKind, Result, Seqno, Trailer};
use compact::Horizon;

use crate::DeletedRanges;
use base::WriteSize;

/// Writes from `first` on, up to where the next memtable begins.
#[derive(Debug)]
pub struct Memtable {
    map: Arc<OrderedMap>,
    /// The range deletes, which are in no entry of the map.
    deleted: DeletedRanges,
    first: Seqno,
    /// What the map charges while it is empty and nothing was reserved, bytes.
    empty_bytes: u64,
}

impl Memtable {
    /// A memtable of `map`, which is empty, for writes from `first` on.
    pub fn with(map: Arc<OrderedMap>, account: &Account, first: Seqno) -> Arc<Self> {
        let empty_bytes = map.bytes();
        Arc::new(Self { map, deleted: DeletedRanges::new(account), first, empty_bytes })
    }

    /// An empty memtable for writes from `first` on.
    pub fn new(account: &Account, first: Seqno) -> Result<Arc<Self>> {
        Ok(Self::with(OrderedMap::new(account)?, account, first))
    }

    /// Charges for writes of `size`: after it, they cannot fail for want of memory (I10).
    pub fn reserve(&self, size: WriteSize) -> Result<()> {
        self.deleted.reserve(size.ranges, size.range_bytes)?;
        if size.entries == 0 {
            return Ok(());
        }
        self.map.reserve(size.entries, size.bytes)
    }

    /// The memory that [`Memtable::reserve`] charges for writes of `size`, bytes.
    pub const fn reserved_bytes(size: WriteSize) -> u64 {
        let ranges = DeletedRanges::reserved_bytes(size.ranges, size.range_bytes);
        OrderedMap::reserved_bytes(size.entries, size.bytes) + ranges
    }

    /// Memory it charges, bytes.
    pub fn bytes(&self) -> u64 {
        self.map.bytes() + self.deleted.bytes()
    }

    /// Whether nothing was written to it.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty() && self.deleted.is_empty()
    }

    /// Applies a write, reserved before, which no other has the sequence number of. `readers` says
    /// who reads, and last what is visible.
    pub fn insert(
        &self,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        readers: impl FnOnce() -> Horizon,
    ) {
        if matches!(trailer.kind(), Ok(EntryKind::DeleteRange)) {
            return self.deleted.add(key, value, trailer.seqno(), &readers());
        }
        self.map.insert(key, trailer, value);
    }

    /// The range deletes.
    pub fn deleted(&self) -> &DeletedRanges {
        &self.deleted
    }

    pub fn map(&self) -> &Arc<OrderedMap> {
        &self.map
    }

    /// Memory it charges beyond that of an empty one, bytes: what flushing it gives back.
    pub fn filled_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.empty_bytes)
    }

    /// Whether it is to be sealed, where so many bytes fill one.
    pub fn is_full(&self, bytes: u64) -> bool {
        self.filled_bytes() >= bytes || self.deleted.bytes() >= DeletedRanges::BYTES_MAX
    }

    /// True where sealing it would free nothing: no entry, and no memory that was reserved for
    /// writes which then failed.
    pub fn is_blank(&self) -> bool {
        self.is_empty() && self.filled_bytes() == 0
    }

    /// Whether it has a version of `key`, or a range delete over it, above `seqno`, visible or not.
    pub fn holds_newer(&self, key: &[u8], seqno: Seqno) -> bool {
        let newest = self.map.get(key, Trailer::seek(Seqno::MAX));
        newest.is_some_and(|(trailer, _)| trailer.seqno() > seqno)
            || self.deleted.newest_covering(key, Seqno::MAX).is_some_and(|delete| delete > seqno)
    }

    /// Whether it holds a version or a delete of a key from `first` on and before `end`.
    pub fn holds_any(&self, first: &[u8], end: Option<&[u8]>) -> bool {
        if self.deleted.find(first, end, |_| true).is_some() {
            return true;
        }
        let mut cursor = self.map.cursor();
        cursor.seek(first, Trailer::seek(Seqno::MAX));
        cursor.valid() && end.is_none_or(|end| cursor.key() < end)
    }

    /// No write below this sequence number is in it.
    pub fn first(&self) -> Seqno {
        self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Write;

    #[test]
    fn what_is_newer_is_a_version_or_a_range_delete() {
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

//! A memtable: the writes of one keyspace in a contiguous range of the store's sequence numbers.

use std::sync::Arc;

use arena::OrderedMap;
use base::{Account, Result, Seqno};

/// Writes from `first` on, up to where the next memtable begins.
#[derive(Debug)]
pub(crate) struct Memtable {
    map: Arc<OrderedMap>,
    first: Seqno,
    /// What the map charges while it is empty and nothing was reserved, bytes.
    empty_bytes: u64,
}

impl Memtable {
    /// A memtable of `map`, which is empty, for writes from `first` on.
    pub(crate) fn with(map: Arc<OrderedMap>, first: Seqno) -> Arc<Self> {
        let empty_bytes = map.bytes();
        Arc::new(Self { map, first, empty_bytes })
    }

    /// An empty memtable for writes from `first` on.
    pub(crate) fn new(account: &Account, first: Seqno) -> Result<Arc<Self>> {
        Ok(Self::with(OrderedMap::new(account)?, first))
    }

    pub(crate) fn map(&self) -> &Arc<OrderedMap> {
        &self.map
    }

    /// Memory it charges beyond that of an empty one, bytes: what flushing it gives back.
    pub(crate) fn filled_bytes(&self) -> u64 {
        self.map.bytes().saturating_sub(self.empty_bytes)
    }

    /// True where sealing it would free nothing: no entry, and no memory that was reserved for
    /// writes which then failed.
    pub(crate) fn is_blank(&self) -> bool {
        self.map.is_empty() && self.filled_bytes() == 0
    }

    /// No write below this sequence number is in it.
    pub(crate) fn first(&self) -> Seqno {
        self.first
    }
}

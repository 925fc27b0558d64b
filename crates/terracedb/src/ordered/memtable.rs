//! A memtable: the writes of one keyspace in a contiguous range of the store's sequence numbers.

use std::sync::Arc;

use arena::OrderedMap;
use base::{Account, Result, Seqno};

/// Writes from `first` on, up to where the next memtable begins.
#[derive(Debug)]
pub(crate) struct Memtable {
    map: Arc<OrderedMap>,
    first: Seqno,
}

impl Memtable {
    /// A memtable of `map`, which is empty, for writes from `first` on.
    pub(crate) fn with(map: Arc<OrderedMap>, first: Seqno) -> Arc<Self> {
        Arc::new(Self { map, first })
    }

    /// An empty memtable for writes from `first` on.
    pub(crate) fn new(account: &Account, first: Seqno) -> Result<Arc<Self>> {
        Ok(Self::with(OrderedMap::new(account)?, first))
    }

    pub(crate) fn map(&self) -> &Arc<OrderedMap> {
        &self.map
    }

    /// No write below this sequence number is in it.
    pub(crate) fn first(&self) -> Seqno {
        self.first
    }
}

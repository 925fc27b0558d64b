//! The pinned filters of a table with bins, probed without a search in the table.
//!
//! A lookup in a keyspace with hundreds of runs asks a filter of each. The search of a table (its keys, its
//! top level, its metadata page) costs more than the probe, so a run keeps the filters beside its tables'
//! ranges: [`Table::pinned_filters`].

use std::fmt;
use std::sync::Arc;

use super::filter::{Filter, Row};
use super::pinned::PinnedMeta;
use super::table::Table;

/// The filters of a table with bins, as they were when this was made: a trim since keeps their memory until
/// this is dropped.
#[derive(Clone)]
pub struct PinnedFilters(Arc<PinnedMeta>);

impl Table {
    /// The filters that the table keeps in memory; `None` if it has no bins or no filters.
    #[must_use]
    pub fn pinned_filters(&self) -> Option<PinnedFilters> {
        // Of a table that reads at one seqno, a filter says too little: readers before that seqno see none
        // of its entries.
        let pinned = self.pinned().filter(|_| self.seqno().is_none())?;
        (pinned.filter_bytes() > 0).then(|| PinnedFilters(Arc::clone(&pinned)))
    }
}

impl PinnedFilters {
    /// A probe for a key that begins with the hash `first` and has the [`base::key_hash`] `hash`; `None` if
    /// its filter is not kept. Range deletes do not count.
    #[inline]
    #[must_use]
    pub fn probe(&self, first: u64, hash: u64) -> Option<PinnedProbe<'_>> {
        let filter = self.0.filter_of(first)?;
        Some(PinnedProbe { filter, row: filter.row(hash) })
    }
}

impl fmt::Debug for PinnedFilters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedFilters({} bytes)", self.0.filter_bytes())
    }
}

/// A probe of a pinned filter, of which nothing has been read yet.
#[derive(Debug)]
pub struct PinnedProbe<'a> {
    filter: Filter<'a>,
    row: Row,
}

impl PinnedProbe<'_> {
    /// Requests the cache lines that the probe reads.
    #[inline]
    pub fn prefetch(&self) {
        self.filter.prefetch(&self.row);
    }

    /// False if the table does not contain the key.
    #[inline]
    #[must_use]
    pub fn may_contain(&self) -> bool {
        self.filter.admits(&self.row)
    }
}

//! What the cold tables of an open store did, for statistics.

use std::sync::Arc;

use base::{Counter, Error};
use manifest::Manifest;
use media::{Cold, ColdReads};
use parking_lot::Mutex;

/// Counts since the store was opened, and the last error.
#[derive(Debug, Default)]
pub(crate) struct ColdCounters {
    pub(crate) uploads: Counter,
    pub(crate) uploaded_bytes: Counter,
    pub(crate) removals: Counter,
    pub(crate) failures: Counter,
    /// The error of the last try, if it failed.
    pub(crate) error: Mutex<Option<Error>>,
}

/// The cold tables of an open store.
#[derive(Clone, Debug)]
pub struct ColdStatus {
    pub(crate) cold: Arc<Cold>,
    pub(crate) counters: Arc<ColdCounters>,
}

/// Cold tables, and their traffic since the store was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ColdStatistics {
    /// Tables in the object store.
    pub tables: u64,
    /// Bytes of these tables.
    pub bytes: u64,
    /// Reads of cold tables that no cache answered.
    pub reads: ColdReads,
    /// Tables that became cold.
    pub uploads: u64,
    /// Bytes of these tables.
    pub uploaded_bytes: u64,
    /// Cold tables that were removed from the object store.
    pub removals: u64,
    /// Uploads and removals that failed; they are tried again.
    pub failures: u64,
    /// The error of the last upload or removal, if it failed.
    pub error: Option<Error>,
}

impl ColdStatus {
    /// The cold tables of the store with this manifest.
    #[must_use]
    pub fn statistics(&self, manifest: &Manifest) -> ColdStatistics {
        let state = manifest.state();
        let (mut tables, mut bytes) = (0, 0);
        for (_, len, _) in state.cold_tables() {
            tables += 1;
            bytes += len;
        }
        let ColdCounters { uploads, uploaded_bytes, removals, failures, error } = &*self.counters;
        ColdStatistics {
            tables,
            bytes,
            reads: self.cold.reads(),
            uploads: uploads.get(),
            uploaded_bytes: uploaded_bytes.get(),
            removals: removals.get(),
            failures: failures.get(),
            error: error.lock().clone(),
        }
    }
}

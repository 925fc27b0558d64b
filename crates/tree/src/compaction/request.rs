//! Merges that a user requested.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use base::{Error, KeyspaceId, Result};
use compact::plan::ManualRange;

use super::Compactor;

/// A range of a keyspace to be merged into one run.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) keyspace: KeyspaceId,
    pub(super) range: ManualRange,
    /// Estimate of the bytes to be merged in all, and of those left.
    pub(super) total: u64,
    pub(super) left: u64,
    /// Damage that was found on the way; reported after the rest is merged.
    pub(super) damage: Option<Error>,
    /// The result, once the request has ended.
    pub(super) ended: Option<Result<()>>,
}

impl Request {
    pub(super) fn new(keyspace: KeyspaceId, range: ManualRange) -> Self {
        Self { keyspace, range, total: 0, left: 0, damage: None, ended: None }
    }

    /// Sets the bytes that are left.
    pub(super) fn set_remaining(&mut self, left: u64) {
        self.total = self.total.max(left);
        self.left = left;
    }

    /// Ends the request: with success, or with the damage that was found.
    pub(super) fn end(&mut self) {
        self.left = 0;
        self.ended = Some(self.damage.take().map_or(Ok(()), Err));
    }
}

/// A manual compaction in progress. Dropping it withdraws it; what was merged so far stays merged.
pub struct Compaction {
    compactor: Arc<Compactor>,
    requests: Vec<u64>,
    /// Keeps the store open.
    _store: Arc<dyn Any + Send + Sync>,
}

/// The progress of a manual compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionProgress {
    /// Estimate of the bytes of tables to be merged in all.
    pub bytes_total: u64,
    /// Estimate of the bytes that are left.
    pub bytes_left: u64,
}

impl Compactor {
    /// A handle for `requests` that keeps `store` open.
    #[must_use]
    pub fn handle(
        self: &Arc<Self>,
        requests: Vec<u64>,
        store: Arc<dyn Any + Send + Sync>,
    ) -> Compaction {
        Compaction { compactor: Arc::clone(self), requests, _store: store }
    }
}

impl Compaction {
    /// The progress.
    #[must_use]
    pub fn progress(&self) -> CompactionProgress {
        self.compactor.progress(&self.requests)
    }

    /// Whether [`Compaction::wait`] would return at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.compactor.is_finished(&self.requests)
    }

    /// Waits until the compaction has ended. A keyspace that is dropped meanwhile has nothing left to merge.
    ///
    /// # Errors
    /// Why a merge was not done: `NoSpace`, `Retry` if memory is short, `Corrupt` if a table is damaged (the
    /// rest was merged).
    pub fn wait(self) -> Result<()> {
        self.compactor.wait(&self.requests)
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.compactor.withdraw(&self.requests);
    }
}

impl fmt::Debug for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Compaction({:?})", self.requests)
    }
}

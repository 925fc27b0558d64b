//! Merges that a user asked for.

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
    /// About the bytes to be merged: when it was first looked at, and now.
    pub(super) total: u64,
    pub(super) left: u64,
    /// Damage met on the way: told at the end, when all the rest is done.
    pub(super) damage: Option<Error>,
    pub(super) ended: Option<Result<()>>,
}

impl Request {
    pub(super) fn new(keyspace: KeyspaceId, range: ManualRange) -> Self {
        Self { keyspace, range, total: 0, left: 0, damage: None, ended: None }
    }

    pub(super) fn set_remaining(&mut self, left: u64) {
        self.total = self.total.max(left);
        self.left = left;
    }

    pub(super) fn end(&mut self) {
        self.left = 0;
        self.ended = Some(self.damage.take().map_or(Ok(()), Err));
    }
}

/// A compaction under way. Dropped, it is called off: what was merged so far stays merged.
pub struct Compaction {
    compactor: Arc<Compactor>,
    requests: Vec<u64>,
    /// Keeps the store open.
    _store: Arc<dyn Any + Send + Sync>,
}

/// How far a compaction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionProgress {
    /// About the bytes of tables to be merged in all.
    pub bytes_total: u64,
    /// About the bytes that are left.
    pub bytes_left: u64,
}

impl Compaction {
    /// A handle of `requests`, which keeps `store` open.
    #[must_use]
    pub fn new(
        compactor: Arc<Compactor>,
        requests: Vec<u64>,
        store: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { compactor, requests, _store: store }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> CompactionProgress {
        self.compactor.progress(&self.requests)
    }

    /// True where [`Compaction::wait`] would not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.compactor.is_finished(&self.requests)
    }

    /// Waits until all of it is done.
    ///
    /// # Errors
    /// What kept a merge from being done: `NoSpace`, `Retry` where memory is short, `Corrupt` where
    /// a table is damaged (the rest was merged), `Closed` where the keyspace was dropped.
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

//! Checkpoints of an open store.

use std::path::Path;
use std::sync::Arc;

use base::Result;
use media::Medium;

use crate::{CheckpointOptions, CheckpointReport, Db};

impl Db {
    /// Makes `path` a store of its own that holds what this one does now: everything acknowledged
    /// before the call, batches whole. Writes go on meanwhile.
    ///
    /// # Errors
    /// `Invalid` where `path` is there and not an empty directory; `Corrupt` where a file of the
    /// store is missing or, where it must be copied, damaged; `Poisoned` where the device dropped what
    /// a failed sync of the log was to make durable; `NoSpace`. Nothing is left at `path` then. A
    /// process that dies leaves `<path>.terrace-unfinished`, which the next checkpoint to `path` clears.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<CheckpointReport> {
        self.checkpoint_with(path, CheckpointOptions::default())
    }

    /// As [`Db::checkpoint`], with options.
    ///
    /// # Errors
    /// As [`Db::checkpoint`], and the flush's.
    pub fn checkpoint_with(
        &self,
        path: impl AsRef<Path>,
        options: CheckpointOptions,
    ) -> Result<CheckpointReport> {
        tools::checkpoint(self.store(), path, options)
    }

    /// As [`Db::checkpoint_with`], on a storage device of the caller's, which must be empty. What a
    /// failed one leaves there is no store: it has no manifest.
    ///
    /// # Errors
    /// As [`Db::checkpoint_with`].
    pub fn checkpoint_on(
        &self,
        medium: &Arc<dyn Medium>,
        options: CheckpointOptions,
    ) -> Result<CheckpointReport> {
        tools::checkpoint_on(self.store(), medium, options)
    }
}

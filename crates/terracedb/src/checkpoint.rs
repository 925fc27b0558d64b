//! Checkpoints: consistent copies of an open store. The crate `tools` makes them.

use std::path::Path;
use std::sync::Arc;

use base::Result;
use media::Medium;

use crate::Db;
use crate::tools::{CheckpointOptions, CheckpointReport};

impl Db {
    /// Copies the store to the directory `path`, which is missing or empty, and then a store of its own.
    ///
    /// The copy holds every write that was acknowledged before the call, and each batch as a whole or
    /// not at all. Files are hard-linked if the file system allows it. Writes go on meanwhile.
    ///
    /// # Errors
    /// `Invalid` if `path` exists and is not an empty directory; `Corrupt` if a file of the store is
    /// missing, or is damaged and must be copied; `Poisoned` if a sync of the log failed and the device
    /// dropped the data; `NoSpace` if the device is full. `path` is as before after an error. A process
    /// that dies during the call leaves `<path>.terrace-unfinished`, or `.terrace-unfinished` in an empty
    /// directory that existed; the next checkpoint to `path` removes it.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<CheckpointReport> {
        self.checkpoint_opt(path, &CheckpointOptions::default())
    }

    /// As [`Db::checkpoint`], with options.
    ///
    /// # Errors
    /// As [`Db::checkpoint`], and the error of a flush that `options` ask for.
    pub fn checkpoint_opt(
        &self,
        path: impl AsRef<Path>,
        options: &CheckpointOptions,
    ) -> Result<CheckpointReport> {
        tools::checkpoint(self.store(), path, options)
    }

    /// As [`Db::checkpoint_opt`], to `medium`, a storage device that the caller implements and that must
    /// be empty. A failed checkpoint may leave files there, but no manifest, so they are no store.
    ///
    /// # Errors
    /// As [`Db::checkpoint_opt`].
    pub fn checkpoint_on(
        &self,
        medium: &Arc<dyn Medium>,
        options: &CheckpointOptions,
    ) -> Result<CheckpointReport> {
        tools::checkpoint_on(self.store(), medium, options)
    }
}

//! Reports of the operations on backups.

use std::time::Duration;

use base::{Error, LineageId, StoreId};

/// A backup of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number in the repository. Newer backups have higher numbers.
    pub id: u64,
    /// The label that was given when it was created.
    pub label: String,
    /// When it was created, Unix milliseconds, by the clock of the creating machine.
    pub created_unix_ms: u64,
    /// The store that was backed up. A copy of a store has the same id.
    pub store: StoreId,
    /// The lineage that was backed up: that of the store, or of one of its copies (a restored backup, a
    /// checkpoint).
    pub lineage: LineageId,
    /// Files that make it up.
    pub files: usize,
    /// Their bytes: the space that a restore takes.
    pub bytes: u64,
    /// Bytes of files that no other backup uses: the space that its deletion frees.
    pub unique_bytes: u64,
}

/// The backups of a repository.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BackupList {
    /// The backups, oldest first.
    pub backups: Vec<BackupInfo>,
    /// Backups with an unreadable index. While there are any, no objects are removed, because those that
    /// they need are not known.
    pub damaged: Vec<(u64, Error)>,
    /// Bytes of the files of all backups, each file counted once.
    pub bytes: u64,
    /// Bytes of files that no backup uses: an interrupted backup left them, and the next one may use them.
    pub unowned_bytes: u64,
}

/// Result of the creation of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The new backup.
    pub id: u64,
    /// Files that make it up.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files copied, the log and the manifest among them.
    pub files_copied: usize,
    /// Bytes copied.
    pub bytes_copied: u64,
    /// Bytes of log among those copied.
    pub log_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Result of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// Files written.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// The backups that [`Backup::prune_opt`](super::Backup::prune_opt) deletes.
#[derive(Clone, Copy, Debug)]
pub struct PruneOptions {
    pub(super) keep: usize,
    pub(super) dry_run: bool,
    pub(super) delete_all: bool,
    pub(super) since_unix_ms: u64,
}

impl PruneOptions {
    /// Keeps the newest `keep` backups of each lineage.
    #[must_use]
    pub const fn keep(keep: usize) -> Self {
        Self { keep, dry_run: false, delete_all: false, since_unix_ms: u64::MAX }
    }

    /// Keeps also the backups that were created at this time, Unix milliseconds, or later. By default only
    /// their number counts.
    #[must_use]
    pub const fn since(mut self, unix_ms: u64) -> Self {
        self.since_unix_ms = unix_ms;
        self
    }

    /// Reports what would be deleted, and deletes nothing. Off by default.
    #[must_use]
    pub const fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Allows to keep no backup at all. Off by default.
    #[must_use]
    pub const fn delete_all(mut self, delete_all: bool) -> Self {
        self.delete_all = delete_all;
        self
    }
}

/// Result of the deletion of backups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteReport {
    /// The backups deleted.
    pub backups: Vec<u64>,
    /// Files removed.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

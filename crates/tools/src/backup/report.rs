//! What the operations on backups tell.

use std::time::Duration;

use base::{Error, StoreId};

/// A backup of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number in the repository: newer ones have higher ones.
    pub id: u64,
    /// What its maker called it.
    pub label: String,
    /// When it was made, milliseconds since the Unix epoch, by the maker's clock.
    pub created_unix_ms: u64,
    /// The store it is of.
    pub store: StoreId,
    /// Files that make it up.
    pub files: usize,
    /// Their bytes: what restoring it takes.
    pub bytes: u64,
    /// Bytes of files that no other backup has: what deleting it would give back.
    pub unique_bytes: u64,
}

/// The backups of a repository.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BackupList {
    /// Oldest first.
    pub backups: Vec<BackupInfo>,
    /// Backups whose index cannot be read. While there are any, no file is removed but theirs:
    /// which ones they need is not known.
    pub damaged: Vec<(u64, Error)>,
    /// Bytes of the files of all backups together, each counted once.
    pub bytes: u64,
    /// Bytes of files that no backup has: what an interrupted one left, for the next one to go on
    /// from.
    pub unowned_bytes: u64,
}

/// What making a backup took.
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

/// What restoring a backup took.
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

/// What deleting backups gave back.
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

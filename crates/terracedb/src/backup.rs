//! [`Backup`], the handle of a repository of backups. The crate `tools` makes and restores them.

use std::path::Path;
use std::sync::Arc;

use base::{Cancel, Result};
use media::Medium;

use crate::Db;
use crate::tools::{
    BackupList, BackupReport, CheckReport, DeleteReport, PruneOptions, RestoreReport,
};

/// A repository of backups.
///
/// A backup copies only the files that the repository does not have. The directory's lock allows one
/// operation at a time.
///
/// ```
/// use terracedb::Db;
/// use terracedb::tools::Backup;
///
/// # fn main() -> terracedb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let (store, repository) = (directory.path().join("store"), directory.path().join("backups"));
/// # let restored = directory.path().join("restored");
/// let db = Db::builder(&store).memory(64 << 20).open()?;
/// db.create_keyspace("k")?.put("key", "value")?;
///
/// let backups = Backup::open(&repository)?;
/// let made = backups.create(&db, "nightly")?;
/// assert!(backups.verify(made.id)?.is_clean());
/// backups.restore(made.id, &restored)?;
///
/// let db = Db::builder(&restored).memory(64 << 20).open()?;
/// assert_eq!(db.keyspace("k")?.get("key")?.as_deref(), Some(&b"value"[..]));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Backup(tools::Backup);

impl Backup {
    /// Opens the repository in the directory `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// `Invalid` if the directory has other files and no backups; those of creating or opening a directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        tools::Backup::open(path).map(Self)
    }

    /// Opens the existing repository in the directory `path`, to list, verify and restore only. Nothing is
    /// written there, so the directory may be read-only.
    ///
    /// # Errors
    /// Those of opening a directory.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        tools::Backup::open_read_only(path).map(Self)
    }

    /// Opens the repository on `medium`, a storage device that the caller implements.
    #[must_use]
    pub fn on_medium(medium: Arc<dyn Medium>) -> Self {
        Self(tools::Backup::on_medium(medium))
    }

    /// Limits reads to this many bytes per second, so that the store keeps most of its device's bandwidth. No
    /// limit by default, or with 0.
    #[must_use]
    pub fn rate(self, bytes_per_second: u64) -> Self {
        Self(self.0.rate(bytes_per_second))
    }

    /// Passes the bytes done and their total to `progress`, from time to time.
    #[must_use]
    pub fn progress(self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(self.0.progress(progress))
    }

    /// Ends [`Backup::create`] and the restores early once `cancel` asks for it, with an error of kind
    /// `Cancelled`. A directory to restore to is then as before; a repository may have files that the next
    /// backup uses.
    #[must_use]
    pub fn cancel(self, cancel: Cancel) -> Self {
        Self(self.0.cancel(cancel))
    }

    /// Backs up the present content of `db`: everything acknowledged before the call, in whole batches.
    /// Writes go on meanwhile. Memtables are flushed first if that is possible, so that the next backup
    /// shares their content.
    ///
    /// # Errors
    /// `Corrupt` if a file of the store is damaged, naming its pages and keys: damaged data is never backed
    /// up, and older backups stay as they are. `Poisoned` if a failed sync lost writes of the log. `NoSpace`.
    /// `Invalid` if the label is longer than 255 bytes, if the directory is that of a store or has other
    /// files and no backups, or if another operation on the repository is in progress. The next backup uses
    /// the files that were copied.
    pub fn create(&self, db: &Db, label: &str) -> Result<BackupReport> {
        self.0.create(db.store(), label)
    }

    /// Lists every backup and its size.
    ///
    /// # Errors
    /// The device's. A damaged index is not an error: the list names it.
    pub fn list(&self) -> Result<BackupList> {
        self.0.list()
    }

    /// Reads all files of backup `id`, and verifies that they form a store without damage. Problems name the
    /// files of the store.
    ///
    /// # Errors
    /// `Invalid` if there is no such backup, `Corrupt` if its index is damaged. Other damage is not an error:
    /// the report lists it.
    pub fn verify(&self, id: u64) -> Result<CheckReport> {
        self.0.verify(id)
    }

    /// Restores the store of backup `id` to the directory `path`. The restored store goes its own way: it
    /// has a lineage of its own ([`BackupInfo::lineage`](crate::tools::BackupInfo)), so that its backups
    /// never replace those of its origin.
    ///
    /// # Errors
    /// `Invalid` if there is no such backup, or if `path` exists and is not an empty directory; `Corrupt` if
    /// a file of the backup is damaged or missing, naming it, its pages and keys; `NoSpace`. After an error
    /// nothing is left at `path`. A process that dies leaves `<path>.terrace-unfinished`, or
    /// `.terrace-unfinished` in an empty directory that existed; the next restore to `path` removes it.
    pub fn restore(&self, id: u64, path: impl AsRef<Path>) -> Result<RestoreReport> {
        self.0.restore(id, path)
    }

    /// As [`Backup::restore`], to `medium`, an empty storage device that the caller implements. A failed
    /// restore may leave files there, but no manifest, so they are no store.
    ///
    /// # Errors
    /// As [`Backup::restore`].
    pub fn restore_on(&self, id: u64, medium: &Arc<dyn Medium>) -> Result<RestoreReport> {
        self.0.restore_on(id, medium)
    }

    /// Deletes a backup, damaged or not, and the files that no other backup uses.
    ///
    /// # Errors
    /// `Invalid` if there is no backup with that number; the device's.
    pub fn delete(&self, id: u64) -> Result<DeleteReport> {
        self.0.delete(id)
    }

    /// Reports what [`Backup::delete`] would remove, and removes nothing.
    ///
    /// # Errors
    /// As [`Backup::delete`].
    pub fn would_delete(&self, id: u64) -> Result<DeleteReport> {
        self.0.would_delete(id)
    }

    /// Deletes all but the newest `keep` backups of each lineage: of each store, and of each copy of a store
    /// (a restored backup, a checkpoint). A backup with a damaged index does not count, and stays.
    ///
    /// # Errors
    /// `Invalid` if `keep` is 0; the device's.
    pub fn prune(&self, keep: usize) -> Result<DeleteReport> {
        self.0.prune(keep)
    }

    /// As [`Backup::prune`], with options.
    ///
    /// # Errors
    /// As [`Backup::prune`]; 0 backups are kept if the options allow to delete all.
    pub fn prune_opt(&self, options: &PruneOptions) -> Result<DeleteReport> {
        self.0.prune_opt(options)
    }
}

//! Backups: a repository of copies of stores, each at one instant, which share the files that they have in
//! common.
//!
//! A repository is a flat directory of objects and indexes. An object is one file of a store; its name is
//! that file's name and the digest of its content. An index names the objects of one backup. An object is
//! written under a temporary name, verified, synced and renamed; the index is written last, and makes the
//! backup exist. So an interrupted operation leaves only complete backups, and objects that the next backup
//! uses. Tables never change: a backup copies only those that the repository does not have.
//!
//! A backup never has a damaged page: everything is verified as it is read, and damage ends the backup with
//! an error that names the file, page and keys. The directory's lock allows one operation at a time.
//!
//! Threads: the caller's.

mod create;
mod index;
mod objects;
mod report;
mod restore;
mod verify;
mod view;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Account, Cancel, Error, LineageId, Result};
use media::{FileMedium, FileOptions, Medium, Pace, Rate, Throttled};

use index::{Index, total};
use objects::Objects;

pub use report::{BackupInfo, BackupList, BackupReport, DeleteReport, PruneOptions, RestoreReport};

/// Burst that a limited rate allows.
const BURST: Duration = Duration::from_millis(100);

/// A repository of backups; `terracedb::tools::Backup` has an example.
pub struct Backup {
    medium: Arc<dyn Medium>,
    /// The directory, if the medium is one.
    directory: Option<Arc<FileMedium>>,
    rate: Rate,
    progress: Option<Progress>,
    cancel: Cancel,
    account: Account,
}

type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

impl Backup {
    /// Opens the repository in the directory `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// `Invalid` if the directory has other files and no backups; those of creating or opening a directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        // Opening for writing creates a lock, so the directory is examined first.
        if path.as_ref().exists() {
            let backups = Self::open_read_only(&path)?;
            let objects = Objects::of(&*backups.medium)?;
            if !objects.is_repository() {
                backups.must_be_repository(&objects)?;
            }
        }
        Self::in_directory(path.as_ref(), FileOptions::default())
    }

    /// Opens the existing repository in the directory `path`, to list, verify and restore only. Nothing is
    /// written there, so the directory may be read-only.
    ///
    /// # Errors
    /// Those of opening a directory.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        let options = FileOptions { create: false, read_only: true, ..FileOptions::default() };
        Self::in_directory(path.as_ref(), options)
    }

    fn in_directory(path: &Path, options: FileOptions) -> Result<Self> {
        let directory = Arc::new(FileMedium::open(path, options)?);
        let backups = Self::on_medium(Arc::clone(&directory) as _);
        Ok(Self { directory: Some(directory), ..backups })
    }

    /// Opens the repository on a medium of the caller's.
    #[must_use]
    pub fn on_medium(medium: Arc<dyn Medium>) -> Self {
        let account = Account::unlimited("backup");
        let (rate, cancel) = (Rate::default(), Cancel::new());
        Self { medium, directory: None, rate, progress: None, cancel, account }
    }

    /// Limits reads to this many bytes per second, so that the store keeps most of its device's bandwidth. No
    /// limit by default, or with 0.
    #[must_use]
    pub const fn rate(mut self, bytes_per_second: u64) -> Self {
        self.rate = Rate { bytes_per_second, ops_per_second: 0 };
        self
    }

    /// Passes the bytes done and their total to `progress`, from time to time.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Ends [`Backup::create`] and the restores early once `cancel` asks for it, with an error of kind
    /// `Cancelled`. What they wrote is as after any other error.
    #[must_use]
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }

    /// Lists every backup and its size.
    ///
    /// # Errors
    /// The device's. A damaged index is not an error: the list names it.
    pub fn list(&self) -> Result<BackupList> {
        let objects = Objects::of(&*self.medium)?;
        let mut list = BackupList {
            bytes: objects.named_bytes(),
            unowned_bytes: objects.unnamed().map(|(_, len)| len).sum(),
            ..BackupList::default()
        };
        for (id, index) in &objects.indexes {
            match index {
                Ok(index) => list.backups.push(BackupInfo {
                    id: *id,
                    label: index.label.clone(),
                    created_unix_ms: index.created,
                    store: index.store,
                    lineage: index.lineage,
                    files: index.files.len(),
                    bytes: index.bytes(),
                    unique_bytes: total(objects.only_in(index)),
                }),
                Err(error) => list.damaged.push((*id, error.clone())),
            }
        }
        Ok(list)
    }

    /// Deletes a backup, damaged or not, and the files that no other backup uses.
    ///
    /// # Errors
    /// `Invalid` if there is no backup with that number; the device's.
    pub fn delete(&self, id: u64) -> Result<DeleteReport> {
        let _lock = self.medium.lock()?;
        objects::delete(&*self.medium, &[id])
    }

    /// Reports what [`Backup::delete`] would remove, and removes nothing.
    ///
    /// # Errors
    /// As [`Backup::delete`].
    pub fn would_delete(&self, id: u64) -> Result<DeleteReport> {
        Objects::of(&*self.medium)?.would_delete(&[id])
    }

    /// Deletes all but the newest `keep` backups of each lineage: of each store, and of each copy of a store
    /// (a restored backup, a checkpoint). A backup with a damaged index does not count, and stays.
    ///
    /// # Errors
    /// `Invalid` if `keep` is 0; the device's.
    pub fn prune(&self, keep: usize) -> Result<DeleteReport> {
        self.prune_opt(&PruneOptions::keep(keep))
    }

    /// As [`Backup::prune`], with options.
    ///
    /// # Errors
    /// As [`Backup::prune`]; 0 backups are kept if the options allow to delete all.
    pub fn prune_opt(&self, options: &PruneOptions) -> Result<DeleteReport> {
        let PruneOptions { keep, dry_run, delete_all, since_unix_ms } = *options;
        if keep == 0 && !delete_all {
            return Err(Error::invalid("number of backups to keep")
                .expected("at least 1, or a request to delete all")
                .got(keep));
        }
        let _lock = self.medium.lock()?;
        let objects = Objects::of(&*self.medium)?;
        let mut of_lineages: BTreeMap<(u128, LineageId), Vec<(u64, u64)>> = BTreeMap::new();
        for (id, index) in &objects.indexes {
            if let Ok(index) = index {
                let of_lineage = of_lineages.entry((index.store.0, index.lineage)).or_default();
                of_lineage.push((*id, index.created));
            }
        }
        let old = |ids: &Vec<(u64, u64)>| ids.len().saturating_sub(keep);
        let mut old: Vec<u64> = of_lineages
            .values()
            .flat_map(|ids| ids.iter().take(old(ids)))
            .filter_map(|(id, created)| (*created < since_unix_ms).then_some(*id))
            .collect();
        old.sort_unstable();
        if dry_run {
            return objects.would_delete(&old);
        }
        objects::delete(&*self.medium, &old)
    }

    /// Returns `medium`, limited to the configured rate.
    fn limited(&self, medium: &Arc<dyn Medium>) -> Arc<dyn Medium> {
        if self.rate == Rate::default() {
            return Arc::clone(medium);
        }
        Arc::new(Throttled::new(Arc::clone(medium), self.rate, BURST, Pace::real()))
    }

    fn index(&self, id: u64) -> Result<Index> {
        Index::read(&*self.medium, id)
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backup({:?})", self.medium)
    }
}

/// Counts the bytes done, and reports them to the caller.
struct ProgressMeter<'a> {
    report: Option<&'a (dyn Fn(u64, u64) + Send + Sync)>,
    done: u64,
    total: u64,
}

impl<'a> ProgressMeter<'a> {
    fn new(backup: &'a Backup, total: u64) -> Self {
        Self { report: backup.progress.as_deref(), done: 0, total }
    }

    fn step(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(report) = self.report {
            report(self.done.min(self.total), self.total);
        }
    }
}

//! Backups: a directory of them, each a store as of one moment, sharing the files they have in
//! common.
//!
//! A repository is flat: objects, each a file of some store under that file's name and the digest of
//! its content, and indexes, one a backup, that name objects. An object is written under a passing
//! name, verified, synced and renamed; a backup exists when its index was, last of all. So whoever
//! dies leaves whole backups, and objects that the next one takes up. Tables never change: a backup
//! copies those that the repository has not got.
//!
//! A backup never holds a damaged page: everything is verified as it is read, and damage ends the
//! backup with the file, the page and the keys. One operation at a time, by the directory's lock.

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

use base::{Account, Result};
use media::{FileMedium, FileOptions, Medium, Pace, Rate, Throttled};

use index::{Index, total};
use objects::Objects;

pub use report::{BackupInfo, BackupList, BackupReport, DeleteReport, RestoreReport};

/// What a limited rate lets through at once.
const BURST: Duration = Duration::from_millis(100);

/// A repository of backups.
///
/// ```
/// use terracedb::{Backup, Db};
///
/// # fn main() -> terracedb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let (store, repository) = (directory.path().join("store"), directory.path().join("backups"));
/// # let restored = directory.path().join("restored");
/// let db = Db::builder(&store).memory(64 << 20).open()?;
/// db.keyspace("k")?.put("key", "value")?;
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
pub struct Backup {
    medium: Arc<dyn Medium>,
    rate: Rate,
    progress: Option<Progress>,
    account: Account,
}

type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

impl Backup {
    /// The repository in the directory `path`, which is made where there is none.
    ///
    /// # Errors
    /// As making or opening a directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::on_medium(Arc::new(FileMedium::open(path, FileOptions::default())?)))
    }

    /// The repository in the directory `path`, which is there, for who only lists, verifies and restores:
    /// nothing is written there, so that it may be one that nobody may write.
    ///
    /// # Errors
    /// As opening a directory.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        let options = FileOptions { create: false, read_only: true, ..FileOptions::default() };
        Ok(Self::on_medium(Arc::new(FileMedium::open(path, options)?)))
    }

    /// The repository on a storage device of the caller's.
    #[must_use]
    pub fn on_medium(medium: Arc<dyn Medium>) -> Self {
        let account = Account::unlimited("backup");
        Self { medium, rate: Rate::default(), progress: None, account }
    }

    /// Reads no more than this many bytes a second, so that a store keeps its device to itself. No
    /// limit by default, or with 0.
    #[must_use]
    pub const fn rate(mut self, bytes_per_second: u64) -> Self {
        self.rate = Rate { bytes_per_second, ops_per_second: 0 };
        self
    }

    /// Tells `progress` the bytes done and their total, from time to time.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Every backup, and what they take.
    ///
    /// # Errors
    /// As the device's. A damaged index is no error: the list has it.
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
                    files: index.files.len(),
                    bytes: index.bytes(),
                    unique_bytes: total(objects.only_in(index)),
                }),
                Err(error) => list.damaged.push((*id, error.clone())),
            }
        }
        Ok(list)
    }

    /// Deletes a backup, damaged or not, and the files that no other has.
    ///
    /// # Errors
    /// `Invalid` where there is none of that number; the device's.
    pub fn delete(&self, id: u64) -> Result<DeleteReport> {
        let _lock = self.medium.lock()?;
        objects::delete(&*self.medium, &[id])
    }

    /// Deletes all but the newest `keep` backups of each store. One whose index is damaged counts as none,
    /// and stays.
    ///
    /// # Errors
    /// As the device's.
    pub fn prune(&self, keep: usize) -> Result<DeleteReport> {
        let _lock = self.medium.lock()?;
        let objects = Objects::of(&*self.medium)?;
        let mut of_stores: BTreeMap<u128, Vec<u64>> = BTreeMap::new();
        for (id, index) in &objects.indexes {
            if let Ok(index) = index {
                of_stores.entry(index.store.0).or_default().push(*id);
            }
        }
        let old = |ids: &Vec<u64>| ids.len().saturating_sub(keep);
        let old: Vec<u64> =
            of_stores.values().flat_map(|ids| ids.iter().take(old(ids)).copied()).collect();
        objects::delete(&*self.medium, &old)
    }

    /// `medium` at the rate that was asked for.
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

/// Bytes done of a total, told as they are.
struct Steps<'a> {
    told: Option<&'a (dyn Fn(u64, u64) + Send + Sync)>,
    done: u64,
    total: u64,
}

impl<'a> Steps<'a> {
    fn new(backup: &'a Backup, total: u64) -> Self {
        Self { told: backup.progress.as_deref(), done: 0, total }
    }

    fn step(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(told) = self.told {
            told(self.done.min(self.total), self.total);
        }
    }
}

//! A command that fails before its first write leaves nothing behind that it created: neither a keyspace nor
//! a store, nor directories.

use std::fs;
use std::path::{Path, PathBuf};

use media::{FileMedium, FileOptions, Medium};
use terracedb::{Db, Keyspace, Result};

use crate::config::Config;
use crate::directory::{self, is_store_file};
use crate::interrupt;

/// The state of a directory before a command used or created it.
pub(crate) struct NewDirectory {
    path: PathBuf,
    /// The directories on the way that did not exist, this one last.
    missing: Vec<PathBuf>,
    has_lock: bool,
}

/// Opens the store of `config`, or creates it, and runs `work` on it. If `work` fails and the store was
/// created for it, the store is removed; so `work` fails only if nothing that it wrote must be kept.
///
/// # Errors
/// As [`Config::open`]; those of `work`.
pub(crate) fn with_store<T>(config: &Config, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
    let _section = interrupt::Section::begin();
    let before = NewDirectory::before(config.path()?);
    let db = config.open(true).inspect_err(|_| before.remove_if_unused())?;
    let result = work(&db);
    if result.is_err() && db.recovery().created {
        let manifests = directory::manifests(&before.path);
        drop(db);
        // Best effort: the error of the command is the one that counts.
        let _ = before.remove_store(&manifests);
        return result;
    }
    let value = result?;
    db.close()?;
    Ok(value)
}

/// As [`with_store`], for work that keeps its writes if it fails: the store is removed only if it was created
/// and nothing was written.
///
/// # Errors
/// As [`with_store`].
pub(crate) fn with_kept_writes<T>(
    config: &Config,
    work: impl FnOnce(&Db) -> Result<T>,
) -> Result<T> {
    with_store(config, |db| {
        let result = work(db);
        let is_written = db.statistics().keyspaces.iter().any(|it| it.user_bytes > 0);
        if result.is_err() && is_written { Ok(result) } else { result.map(Ok) }
    })?
}

/// Runs `work` on the keyspace `name`, which is created if it is missing. If `work` fails, a keyspace that
/// was created for it is dropped.
///
/// # Errors
/// Those of the creation and of `work`.
pub(crate) fn with_keyspace<T>(
    db: &Db,
    name: &str,
    work: impl FnOnce(&Keyspace) -> Result<T>,
) -> Result<T> {
    let is_new = db.keyspace(name).is_err();
    let result = work(&db.open_or_create_keyspace(name)?);
    if result.is_err() && is_new {
        // The error of the command is the one that counts; an empty keyspace that stays harms nothing.
        let _ = db.drop_keyspace(name);
    }
    result
}

impl NewDirectory {
    /// Examines `path` before it is used.
    pub(crate) fn before(path: &Path) -> Self {
        let missing = path
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && path.symlink_metadata().is_err());
        let mut missing: Vec<_> = missing.map(Path::to_owned).collect();
        missing.reverse();
        Self { path: path.to_owned(), missing, has_lock: path.join("LOCK").exists() }
    }

    /// Removes the directories that were created, if they are empty or hold nothing but a lock.
    pub(crate) fn remove_if_unused(&self) {
        if self.missing.is_empty() {
            return;
        }
        let only_lock = fs::read_dir(&self.path)
            .is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == "LOCK"));
        if only_lock
            && let Ok(medium) = self.medium()
            && let Ok(_lock) = medium.lock()
        {
            self.remove_empty();
        }
    }

    /// Removes a store that this command created and closed. `manifests` are the names of its manifests while
    /// it was open: every opening writes another one, so if they changed, somebody else has used the store
    /// since, and it stays.
    fn remove_store(&self, manifests: &[String]) -> Result<()> {
        let medium = self.medium()?;
        let _lock = medium.lock()?;
        if directory::manifests(&self.path) != manifests {
            return Ok(());
        }
        // The manifest goes last: until then the directory is an empty store.
        let mut names: Vec<_> = medium.list()?.into_iter().map(|file| file.name).collect();
        names.retain(|name| is_store_file(name));
        names.sort_by_key(|name| manifests.contains(name));
        names.iter().try_for_each(|name| medium.remove(name))?;
        medium.sync_names(&[])?;
        self.remove_empty();
        Ok(())
    }

    fn medium(&self) -> Result<FileMedium> {
        let options = FileOptions { create: false, io_uring: false, ..FileOptions::default() };
        FileMedium::open(&self.path, options)
    }

    /// Removes the lock, with a guard that the caller has, and the empty directories that were created.
    fn remove_empty(&self) {
        if !self.has_lock {
            let _ = fs::remove_file(self.path.join("LOCK"));
        }
        for path in self.missing.iter().rev() {
            let _ = fs::remove_dir(path);
        }
    }
}

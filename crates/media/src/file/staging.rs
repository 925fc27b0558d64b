//! A directory that appears complete or not at all.
//!
//! It is filled under another name beside its final path, synced, and renamed. If the process dies
//! meanwhile, the unfinished directory stays; the next attempt for the same path clears it, and it is never
//! opened as a store. The lock in it distinguishes a living owner from a dead one.

use std::any::Any;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Result};
use rustix::fs::{AtFlags, FileType, fstat, renameat, unlinkat};

use super::directory::{FileMedium, FileOptions};
use super::directory_handle::DirectoryHandle;
use super::system::failed;
use crate::{Medium, check};

/// The suffix of an unfinished directory's name.
const SUFFIX: &str = ".terrace-unfinished";

/// A directory in the making; see the module. Dropped before [`Staging::finish`], it removes its files.
#[derive(Debug)]
pub struct Staging {
    /// The directory above.
    above: DirectoryHandle,
    name: String,
    unfinished: String,
    medium: Arc<FileMedium>,
    finished: bool,
    /// Declared last, so that it is released last.
    _lock: Box<dyn Any + Send + Sync>,
}

impl Staging {
    /// Begins a directory that will be at `place`. Missing parent directories are created.
    ///
    /// # Errors
    /// `Invalid` if `place` exists and is not an empty directory, if another process is creating the same
    /// directory, or if the unfinished directory holds files that a store does not have.
    pub fn begin(place: impl AsRef<Path>) -> Result<Self> {
        let place = resolve(place.as_ref())?;
        let at = place.display();
        match fs::read_dir(&place).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => {
                let error = Error::invalid("directory").at(&at);
                return Err(error
                    .expected("no directory, or an empty one")
                    .got("a directory with files"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("list", &at, error)),
        }
        let name = place.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Error::invalid("path of a new directory")
                .at(&at)
                .expected("a path that ends with a name")
        })?;
        let above = DirectoryHandle::open(place.parent().unwrap_or(Path::new("/")), true)?;
        let unfinished = format!("{name}{SUFFIX}");
        let medium = FileMedium::of(above.open_within(&unfinished)?, FileOptions::default())?;
        let lock = medium.lock()?;
        clear(medium.directory())?;
        let (name, medium) = (name.to_owned(), Arc::new(medium));
        Ok(Self { above, name, unfinished, medium, finished: false, _lock: lock })
    }

    /// The directory to fill.
    #[must_use]
    pub fn medium(&self) -> Arc<dyn Medium> {
        Arc::clone(&self.medium) as _
    }

    /// Moves the directory, whose files the caller has synced, to its path, durably.
    ///
    /// # Errors
    /// Errors of the device; `Invalid` if another program moved or removed the unfinished directory. The files
    /// are removed then, unless only the last sync failed.
    pub fn finish(mut self) -> Result<()> {
        self.medium.sync_names(&[])?;
        let above = self.above.fd()?;
        let own = fstat(self.medium.directory().fd()?)
            .map_err(|error| self.above.failed("stat", &self.unfinished, error))?;
        let named = self.above.stat(&self.unfinished)?;
        if named.is_none_or(|named| (named.st_dev, named.st_ino) != (own.st_dev, own.st_ino)) {
            return Err(Error::invalid("unfinished directory")
                .at(self.above.path().join(&self.unfinished).display())
                .expected("the directory that was filled")
                .got("it was moved by another program"));
        }
        renameat(above, &*self.unfinished, above, &*self.name)
            .map_err(|error| self.above.failed("rename", &self.name, error))?;
        self.finished = true;
        self.above.sync()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.finished || !self.above.is_here() {
            return;
        }
        // Best effort: the next attempt clears the rest.
        let _ = clear(self.medium.directory());
        if let Ok(directory) = self.medium.directory().fd() {
            let _ = unlinkat(directory, check::LOCK_NAME, AtFlags::empty());
        }
        if let Ok(above) = self.above.fd() {
            // Refused for a directory that is not empty.
            let _ = unlinkat(above, &*self.unfinished, AtFlags::REMOVEDIR);
        }
    }
}

/// The absolute path of `place`. A symbolic link there is followed once, now.
fn resolve(place: &Path) -> Result<PathBuf> {
    let is_link = fs::symlink_metadata(place).is_ok_and(|found| found.file_type().is_symlink());
    let resolved = if is_link { fs::canonicalize(place) } else { std::path::absolute(place) };
    resolved.map_err(|error| failed("find", place.display(), error))
}

/// Removes the files of an unfinished directory except its lock. Fails if it holds anything else.
fn clear(directory: &DirectoryHandle) -> Result<()> {
    let mut files = Vec::new();
    for name in directory.names()? {
        let name = String::from_utf8_lossy(&name).into_owned();
        let Some(stat) = directory.stat(&name)? else { continue };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if is_file && name == check::LOCK_NAME {
            continue;
        }
        if !is_file || !check::is_name(&name) {
            return Err(Error::invalid("unfinished directory")
                .at(directory.path().display())
                .expected("files of a store")
                .got(format_args!("`{}`", name.escape_debug())));
        }
        files.push(name);
    }
    for file in files {
        unlinkat(directory.fd()?, &*file, AtFlags::empty())
            .map_err(|error| directory.failed("remove", &file, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Purpose};
    use base::ErrorKind;

    fn fill(staging: &Staging) {
        let file = staging.medium().create("a", Access::Bytes, 5).unwrap();
        file.store(0, b"hello", Purpose::Scrub).unwrap();
        file.sync(Purpose::Scrub).unwrap();
    }

    #[test]
    fn a_directory_appears_complete_or_not_at_all() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("deep/store");
        let staging = Staging::begin(&place).unwrap();
        fill(&staging);
        assert!(!place.exists());
        drop(staging);
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 0, "nothing is left");
        fs::create_dir(&place).unwrap();
        let staging = Staging::begin(&place).unwrap();
        fill(&staging);
        staging.finish().unwrap();
        assert_eq!(fs::read(place.join("a")).unwrap(), b"hello");
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1);
        let error = Staging::begin(&place).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }

    #[test]
    fn a_dead_owners_directory_is_cleared_and_a_living_owners_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("store");
        let living = Staging::begin(&place).unwrap();
        let error = Staging::begin(&place).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let unfinished = living.above.path().join(&living.unfinished);
        drop(living);
        fs::create_dir(&unfinished).unwrap();
        fs::write(unfinished.join("LOCK"), "1").unwrap();
        fs::write(unfinished.join("0000.table"), "half").unwrap();
        let staging = Staging::begin(&place).unwrap();
        assert!(!unfinished.join("0000.table").exists());
        drop(staging);
        fs::create_dir_all(unfinished.join("a directory")).unwrap();
        let error = Staging::begin(&place).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(unfinished.join("a directory").exists(), "foreign files are not removed");
    }
}

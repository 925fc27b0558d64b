//! A directory that appears complete or not at all.
//!
//! It is filled under another name, synced, and only then becomes what its path shows. If there is nothing at
//! the path, the unfinished directory lies beside it and is renamed. If there is an empty directory, it stays
//! the same directory, because it may be a mount point, a working directory, or one whose parent may not be
//! written: the unfinished directory lies in it, and its files are moved up, those last that make it
//! complete.
//!
//! If the process dies meanwhile, the unfinished directory stays; the next attempt for the same path clears
//! it, and it is never opened as a store. A lock distinguishes a living owner from a dead one: in the
//! unfinished directory, or in the empty one that exists, where it also keeps a store from being created.

mod target;

use std::any::Any;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use base::{Error, Result};
use rustix::fs::{AtFlags, FileType, OFlags, fstat, renameat, unlinkat};
use rustix::io::Errno;

use super::directory::{FileMedium, FileOptions};
use super::directory_handle::DirectoryHandle;
use super::lock;
use super::system::failed;
use crate::{Medium, check};
use target::{NewParents, Target};

/// Lists the files that are being moved up from an unfinished directory, one name a line. It is hidden, so no
/// file of a medium has this name.
const MOVING: &str = ".moving";

/// Most bytes of that list that are read: the names of more files than a store has.
const MOVING_BYTES_MAX: u64 = 1 << 30;

/// A directory in the making; see the module. Dropped before [`Staging::finish`], it removes its files.
#[derive(Debug)]
pub struct Staging {
    /// The directory above the unfinished one.
    above: DirectoryHandle,
    unfinished: String,
    /// The name that the unfinished directory gets in the end; `None` if the directory above is the one to
    /// fill.
    name: Option<String>,
    medium: Arc<FileMedium>,
    /// Whether the directory to fill had a lock file before.
    had_lock: bool,
    finished: bool,
    /// Declared behind the rest, so that it is released last.
    _lock: Box<dyn Any + Send + Sync>,
    _parents: NewParents,
}

impl Staging {
    /// Begins a directory that will be at `place`. Missing parent directories are created. A link is followed
    /// once, now.
    ///
    /// # Errors
    /// `Invalid` if `place` exists and is not an empty directory, if it is a link to nothing, if another
    /// process is creating the same directory, or if the unfinished directory holds files that a store does
    /// not have.
    pub fn begin(place: impl AsRef<Path>) -> Result<Self> {
        let Target { above, unfinished, name, parents } = Target::of(place.as_ref())?;
        let is_new = name.is_some();
        // Before anything is created, unless an attempt that died left files to clear.
        if !is_new && above.stat(&unfinished)?.is_none() {
            must_be_empty(&above, &unfinished)?;
        }
        let had_lock = above.stat(check::LOCK_NAME)?.is_some();
        // The lock comes before the first change.
        let existing = if is_new { None } else { Some(lock::lock(&above, false)?) };
        let medium = FileMedium::of(above.open_within(&unfinished)?, FileOptions::default())?;
        let lock = match existing {
            Some(lock) => lock,
            None => medium.lock()?,
        };
        let mut staging = Self {
            above,
            unfinished,
            name,
            medium: Arc::new(medium),
            had_lock,
            // Until the remains are cleared, they are not this attempt's to remove.
            finished: true,
            _lock: lock,
            _parents: parents,
        };
        staging.clear()?;
        staging.finished = false;
        if !is_new {
            must_be_empty(&staging.above, &staging.unfinished)?;
        }
        Ok(staging)
    }

    /// The directory to fill.
    #[must_use]
    pub fn medium(&self) -> Arc<dyn Medium> {
        Arc::clone(&self.medium) as _
    }

    /// Makes the directory, whose files the caller has synced, appear at its path, durably. `completes` tells
    /// the files without which the directory is incomplete: they appear last.
    ///
    /// # Errors
    /// Errors of the device; `Invalid` if another program moved or removed the unfinished directory, or put
    /// files into the one to fill. The files are removed then, unless only the last sync failed.
    pub fn finish(mut self, completes: impl Fn(&str) -> bool) -> Result<()> {
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
        if let Some(name) = &self.name {
            renameat(above, &*self.unfinished, above, &**name)
                .map_err(|error| self.above.failed("rename", name, error))?;
            self.finished = true;
            return self.above.sync();
        }
        must_be_empty(&self.above, &self.unfinished)?;
        let names: Vec<String> = self.medium.list()?.into_iter().map(|file| file.name).collect();
        self.note_moving(&names)?;
        let from = self.medium.directory().fd()?;
        let up = |name: &String| {
            renameat(from, &**name, above, &**name)
                .map_err(|error| self.above.failed("move", name, error))
        };
        names.iter().filter(|name| !completes(name)).try_for_each(up)?;
        self.above.sync()?;
        names.iter().filter(|name| completes(name)).try_for_each(up)?;
        self.finished = true;
        self.above.sync()?;
        // Nothing needs the empty directory: if it stays, it is removed by hand.
        self.remove_unfinished();
        Ok(())
    }

    /// Writes the names of the files that are about to be moved up. If this attempt dies, the next one knows
    /// by the list which files are the attempt's, and not another program's.
    fn note_moving(&self, names: &[String]) -> Result<()> {
        let directory = self.medium.directory();
        let at = directory.path().join(MOVING);
        let failed = |error| failed("write", at.display(), error);
        let wanted = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let mut file = directory.open_file(MOVING, wanted)?.map_err(failed)?;
        file.write_all(names.join("\n").as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        directory.sync()
    }

    /// The files that an attempt that died was moving up.
    fn moving(&self) -> Result<Vec<String>> {
        let directory = self.medium.directory();
        let at = directory.path().join(MOVING);
        let failed = |error| failed("read", at.display(), error);
        let file = match directory.open_file(MOVING, OFlags::RDONLY)? {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut names = String::new();
        file.take(MOVING_BYTES_MAX).read_to_string(&mut names).map_err(failed)?;
        Ok(names.lines().filter(|name| check::is_name(name)).map(str::to_owned).collect())
    }

    /// Removes the files of the unfinished directory, and those that were moved up from it.
    ///
    /// # Errors
    /// `Invalid` if it holds anything that a store does not have.
    fn clear(&self) -> Result<()> {
        let directory = self.medium.directory();
        let files = files(directory)?;
        // If no file is left to move, the directory above is complete.
        if self.name.is_none() && !files.is_empty() {
            self.moving()?.iter().try_for_each(|name| remove(&self.above, name))?;
        }
        files.iter().try_for_each(|name| remove(directory, name))?;
        remove(directory, MOVING)
    }

    /// Removes the empty unfinished directory, as far as possible.
    fn remove_unfinished(&self) {
        let directory = self.medium.directory();
        let _ = remove(directory, MOVING);
        let _ = remove(directory, check::LOCK_NAME);
        if let Ok(above) = self.above.fd() {
            // Refused for a directory that is not empty.
            let _ = unlinkat(above, &*self.unfinished, AtFlags::REMOVEDIR);
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.finished || !self.above.is_here() {
            return;
        }
        // Best effort: the next attempt clears the rest.
        if self.clear().is_ok() {
            self.remove_unfinished();
        }
        if self.name.is_none() && !self.had_lock {
            let _ = remove(&self.above, check::LOCK_NAME);
        }
    }
}

/// Refuses a directory that has anything that the root of an empty file system does not have, except a lock
/// and the directory `unfinished`.
fn must_be_empty(directory: &DirectoryHandle, unfinished: &str) -> Result<()> {
    let allowed = [check::LOCK_NAME, "lost+found", unfinished];
    let names = directory.names()?;
    match names.iter().find(|name| !allowed.iter().any(|known| known.as_bytes() == **name)) {
        None => Ok(()),
        Some(name) => Err(Error::invalid("directory")
            .at(directory.path().display())
            .expected("no directory, or an empty one")
            .got(format_args!("`{}` in it", name.escape_ascii()))),
    }
}

/// Removes a file that may be missing.
fn remove(directory: &DirectoryHandle, name: &str) -> Result<()> {
    match unlinkat(directory.fd()?, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(directory.failed("remove", name, error)),
    }
}

/// The files of an unfinished directory, except its lock and the list of names. Fails if it holds anything
/// else.
fn files(directory: &DirectoryHandle) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for name in directory.names()? {
        let name = String::from_utf8_lossy(&name).into_owned();
        let Some(stat) = directory.stat(&name)? else { continue };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if is_file && [check::LOCK_NAME, MOVING].contains(&&*name) {
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
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::{Access, Purpose};
    use base::ErrorKind;

    fn fill(staging: &Staging) {
        for name in ["a", "b"] {
            let file = staging.medium().create(name, Access::Bytes, 5).unwrap();
            file.store(0, b"hello", Purpose::Scrub).unwrap();
            file.sync(Purpose::Scrub).unwrap();
        }
    }

    /// What is in a directory, except a lock.
    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != check::LOCK_NAME);
        names.sort();
        names
    }

    #[test]
    fn a_directory_appears_complete_or_not_at_all() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("deep/store");
        let staging = Staging::begin(&place).unwrap();
        fill(&staging);
        assert!(!place.exists());
        drop(staging);
        assert_eq!(names(parent.path()), [""; 0], "nothing is left, not even the parent");
        let staging = Staging::begin(&place).unwrap();
        fill(&staging);
        staging.finish(|_| false).unwrap();
        assert_eq!(fs::read(place.join("a")).unwrap(), b"hello");
        assert_eq!(names(place.parent().unwrap()), ["store"]);
        let before = names(&place);
        let error = Staging::begin(&place).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(names(&place), before, "a refused directory is not touched");
    }

    /// The path may be a mount point, the working directory, or a link: the directory itself is filled.
    #[test]
    fn an_empty_directory_stays_the_same_directory() {
        let parent = tempfile::tempdir().unwrap();
        let (place, link) = (parent.path().join("store"), parent.path().join("link"));
        fs::create_dir(&place).unwrap();
        fs::create_dir(place.join("lost+found")).unwrap();
        symlink("store", &link).unwrap();
        let inode = fs::metadata(&place).unwrap().ino();
        let staging = Staging::begin(&link).unwrap();
        fill(&staging);
        let error = Staging::begin(&place).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "one at a time, by any path: {error}");
        assert_eq!(names(&place), [".terrace-unfinished", "lost+found"]);
        drop(staging);
        assert_eq!(names(&place), ["lost+found"], "a failed attempt leaves nothing");
        let staging = Staging::begin(&link).unwrap();
        fill(&staging);
        // What the link names later does not matter.
        fs::remove_file(&link).unwrap();
        symlink("/nowhere", &link).unwrap();
        staging.finish(|name| name == "a").unwrap();
        assert_eq!(names(&place), ["a", "b", "lost+found"]);
        assert_eq!(fs::metadata(&place).unwrap().ino(), inode);
        assert_eq!(fs::read(place.join("a")).unwrap(), b"hello");
        let error = Staging::begin(&link).unwrap_err();
        assert!(error.to_string().contains("a link to nothing"), "{error}");
        assert_eq!(names(parent.path()), ["link", "store"]);
    }

    /// A process that dies while it moves the files up leaves some above; none of another owner is removed.
    #[test]
    fn files_that_were_moved_up_are_cleared_until_the_directory_is_complete() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("store");
        let unfinished = place.join(".terrace-unfinished");
        fs::create_dir_all(&unfinished).unwrap();
        fs::write(unfinished.join(".moving"), "a\nb\n../c").unwrap();
        fs::write(unfinished.join("a"), "the last").unwrap();
        fs::write(place.join("b"), "moved").unwrap();
        fs::write(place.join("notes"), "of the user").unwrap();
        let error = Staging::begin(&place).unwrap_err();
        assert!(error.to_string().contains("`notes`"), "{error}");
        assert_eq!(names(&place), ["notes"]);
        // All files were moved up, and only the removal of the empty directory is missing.
        fs::create_dir(&unfinished).unwrap();
        fs::write(unfinished.join(".moving"), "a\nnotes").unwrap();
        let error = Staging::begin(&place).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(names(&place), ["notes"], "a complete directory is kept");
    }

    #[test]
    fn a_dead_owners_directory_is_cleared_and_a_living_owners_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("store");
        let living = Staging::begin(&place).unwrap();
        let error = Staging::begin(&place).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
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

//! An open directory: every operation on its names goes through its descriptor.
//!
//! The directory is found by its path once. From then on it is the same directory, wherever it is moved,
//! and whatever is at its path, or at a relative path seen from another working directory. No name is
//! followed if it is a symbolic link. A removed directory takes no file any more, and
//! [`DirectoryHandle::must_exist`] says so: the file system itself lets a file without a name be written
//! and synced.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::{Error, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::system::{failed, flags};
use crate::fork::Descriptor;

/// The permissions of a new directory: its owner's alone.
const DIRECTORY_MODE: u32 = 0o700;

/// The permissions of a new file, less those that its directory does not give, and those that the process
/// masks.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);

/// See the module.
#[derive(Debug)]
pub(crate) struct DirectoryHandle {
    /// Where it was when it was opened. For messages.
    path: PathBuf,
    directory: Descriptor,
    /// The permissions of a new file.
    file_mode: Mode,
}

impl DirectoryHandle {
    /// Opens the directory at `path`. With `create`, creates it and those above it if they are missing; their
    /// names are durable then.
    ///
    /// # Errors
    /// `Invalid` if there is no directory, or no permission.
    pub(crate) fn open(path: &Path, create: bool) -> Result<Self> {
        let at = path.display();
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.is_dir();
        let missing = if create { path.ancestors().take_while(is_missing).count() } else { 0 };
        if missing > 0 {
            let created = fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
            created.map_err(|e| failed("create a directory", &at, e))?;
        }
        let directory = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags(OFlags::DIRECTORY))
            .open(path)
            .map_err(|e| failed("open a directory", &at, e))?;
        let place = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let handle = Self::of(place, directory)?;
        handle.sync_above(missing)?;
        Ok(handle)
    }

    fn of(path: PathBuf, directory: fs::File) -> Result<Self> {
        let stat = rustix::fs::fstat(&directory)
            .map_err(|e| failed("stat", path.display(), io::Error::from(e)))?;
        let file_mode = Mode::from_raw_mode(stat.st_mode) & FILE_MODE;
        // The owner reads and writes, in a directory that the owner could write to.
        let file_mode = file_mode | Mode::RUSR | Mode::WUSR;
        Ok(Self { path, directory: Descriptor::new(directory), file_mode })
    }

    /// Opens the directory `name` in this one, and creates it if it is missing.
    ///
    /// # Errors
    /// As [`DirectoryHandle::open`]; `Invalid` if the name is a symbolic link.
    pub(crate) fn open_within(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        match rustix::fs::mkdirat(self.fd()?, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(self.failed("create a directory", name, error)),
        }
        let wanted = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(self.fd()?, name, wanted, Mode::empty());
        let directory = opened.map_err(|error| self.failed("open a directory", name, error))?;
        self.sync()?;
        Self::of(path, directory.into())
    }

    /// Makes the names of this directory and of the `count - 1` above it durable, each in the next one above.
    fn sync_above(&self, count: usize) -> Result<()> {
        let failed = |error: Errno| self.failed("sync the directory above", "", error);
        let wanted = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut above = None;
        for _ in 0..count {
            let below = above.as_ref().map_or(self.fd()?, AsFd::as_fd);
            let opened = rustix::fs::openat(below, "..", wanted, Mode::empty()).map_err(failed)?;
            rustix::fs::fsync(&opened).map_err(failed)?;
            above = Some(opened);
        }
        Ok(())
    }

    /// Where the directory was when it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process opened it.
    pub(crate) fn is_here(&self) -> bool {
        self.directory.is_here()
    }

    /// # Errors
    /// `Closed` in a process forked from the one that opened it.
    pub(crate) fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.directory.get()?.as_fd())
    }

    /// # Errors
    /// `Invalid` if the directory was removed since it was opened.
    pub(crate) fn must_exist(&self) -> Result<()> {
        let stat = rustix::fs::fstat(self.fd()?).map_err(|e| self.failed("stat", "", e))?;
        if stat.st_nlink > 0 {
            return Ok(());
        }
        Err(Error::invalid("directory of an open store")
            .at(self.path.display())
            .expected("the directory that was opened")
            .got("it was removed by another program"))
    }

    /// The type, length and inode of `name` itself; none if there is no such name.
    pub(crate) fn stat(&self, name: &str) -> Result<Option<Stat>> {
        match rustix::fs::statat(self.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed("stat", name, error)),
        }
    }

    /// Opens or creates the regular file `name`. The outer result is an error if another thing has the name.
    pub(crate) fn open_file(&self, name: &str, wanted: OFlags) -> Result<io::Result<fs::File>> {
        // Before it is opened, because opening a pipe would wait, and opening a device may have effects.
        if let Some(stat) = self.stat(name)? {
            self.must_be_file(name, &stat)?;
        }
        let wanted = wanted | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self.fd()?, name, wanted, self.file_mode)
            .map(fs::File::from)
            .map_err(io::Error::from))
    }

    fn must_be_file(&self, name: &str, stat: &Stat) -> Result<()> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::RegularFile {
            return Ok(());
        }
        Err(Error::invalid("name in the directory of a store")
            .at(self.path.join(name).display())
            .expected("a file, or no such name: move it away")
            .got(name_of(kind)))
    }

    /// Removes `name` if it is a symbolic link, pipe, socket or device: nothing that a store made, and
    /// nothing that holds data by itself. Returns whether there is no such name any more.
    ///
    /// # Errors
    /// `Invalid` if a directory has the name.
    pub(crate) fn make_way(&self, name: &str) -> Result<bool> {
        let Some(stat) = self.stat(name)? else { return Ok(true) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(false),
            FileType::Directory => self.must_be_file(name, &stat).map(|()| false),
            _ => {
                let removed = rustix::fs::unlinkat(self.fd()?, name, AtFlags::empty());
                removed.map_err(|error| self.failed("remove", name, error))?;
                Ok(true)
            }
        }
    }

    /// The names in it, without `.` and `..`.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn names(&self) -> Result<Vec<Vec<u8>>> {
        // A removed directory would be listed as an empty one.
        self.must_exist()?;
        let failed = |error| self.failed("list", "", error);
        let mut names = Vec::new();
        for entry in Dir::read_from(self.fd()?).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name: &CStr = entry.file_name();
            if ![c".", c".."].contains(&name) {
                names.push(name.to_bytes().to_vec());
            }
        }
        Ok(names)
    }

    /// Makes the names in it durable.
    ///
    /// # Errors
    /// Those of the device; `Invalid` if it was removed.
    pub(crate) fn sync(&self) -> Result<()> {
        self.must_exist()?;
        rustix::fs::fsync(self.fd()?).map_err(|error| self.failed("sync", "", error))
    }

    /// The error of an operation on `name`, or on the directory if the name is empty.
    #[cold]
    pub(crate) fn failed(&self, what: &'static str, name: &str, error: Errno) -> Error {
        if error == Errno::NOENT
            && let Err(removed) = self.must_exist()
        {
            return removed;
        }
        let place = if name.is_empty() { self.path.clone() } else { self.path.join(name) };
        failed(what, place.display(), error.into())
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::RegularFile => "a file",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        _ => "something unknown",
    }
}

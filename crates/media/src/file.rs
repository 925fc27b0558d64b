//! A directory of files on a flash device, or on whatever the file system keeps them on.
//!
//! The kernel's io_uring carries operations in flight; where it is refused a bounded pool of
//! threads does ([`FileMedium::notice`] says so once). Direct access bypasses the system's cache
//! where the file system lets it.
//!
//! Invariants: a name is checked before it meets a path; space is allocated before it is mapped; a
//! buffer belongs to the kernel from submission to completion. Concurrency: files and queues share
//! only the counters of [`turns`]. Cost: docs/media.md.

mod handle;
mod idle_rings;
mod lines;
mod mapped;
mod poll_queues;
mod pool;
mod queue;
mod ring;
mod single_file;
mod staging;
mod strategy;
mod transfer;
mod turns;

use std::any::Any;
use std::fmt;
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, Result};
use rustix::fs::{FallocateFlags, OFlags, fstatfs, fstatvfs};

use crate::preallocate::preallocate;
use crate::{Access, Capabilities, File, Listing, Medium, Queue, Space, check};
use handle::DiskFile;
use lines::Lines;
use poll_queues::PollQueues;

pub(crate) use single_file::SingleFile;
pub use staging::Staging;

/// How to open a directory.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Make the directory where there is none.
    pub create: bool,
    /// Open files for reading only, and make none: no right to write is needed. What would write
    /// fails.
    pub read_only: bool,
    /// Bypass the operating system's cache for [`Access::Direct`] where that is possible.
    pub direct: bool,
    /// Use io_uring where the kernel lets this process.
    pub io_uring: bool,
    /// How many operations in flight keep the device busy; also the most threads of the pool.
    pub queue_depth: usize,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { create: true, read_only: false, direct: true, io_uring: true, queue_depth: 32 }
    }
}

/// Files in a directory.
pub struct FileMedium {
    path: PathBuf,
    /// For syncing names.
    directory: fs::File,
    read_only: bool,
    direct: bool,
    /// Allocated space may be mapped.
    mappable: bool,
    lines: Lines,
    notices: Vec<String>,
}

impl FileMedium {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// `Invalid` where there is no directory, or no permission.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> Result<Self> {
        let path = path.as_ref();
        let at = path.display();
        if options.create && !options.read_only && !path.is_dir() {
            fs::create_dir_all(path).map_err(|e| failed("create a directory", &at, e))?;
            // The directory's own name must survive what is written in it.
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = fs::File::open(parent.unwrap_or(Path::new(".")));
            parent.and_then(|parent| parent.sync_all()).map_err(|e| failed("sync", &at, e))?;
        }
        let directory = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags(OFlags::DIRECTORY))
            .open(path)
            .map_err(|e| failed("open a directory", &at, e))?;
        let mut notices = Vec::new();
        let read_only = options.read_only;
        let direct = options.direct && takes_direct(path, read_only, &mut notices)?;
        let poll_queues = PollQueues::of(&directory);
        let lines = Lines::new(options.io_uring, options.queue_depth, poll_queues, &mut notices);
        let mappable = fstatfs(&directory).is_ok_and(|fs| keeps_allocated(fs.f_type as u64));
        let path = path.to_owned();
        Ok(Self { path, directory, read_only, direct, mappable, lines, notices })
    }

    /// What the device does not do as well as it might, in one line; more of it may turn out in use.
    #[must_use]
    pub fn notice(&self) -> Option<String> {
        let notices: Vec<_> =
            self.notices.iter().map(String::as_str).chain(self.lines.notice()).collect();
        (!notices.is_empty()).then(|| notices.join("; "))
    }

    fn place(&self, name: &str) -> Result<PathBuf> {
        check::name(name)?;
        Ok(self.path.join(name))
    }

    fn options(&self, access: Access) -> fs::OpenOptions {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(!self.read_only);
        if access == Access::Direct && self.direct {
            options.custom_flags(flags(OFlags::DIRECT));
        }
        options
    }

    /// Refuses to change the directory where it was opened for reading only.
    fn must_write(&self) -> Result<()> {
        if self.read_only {
            return Err(
                Error::invalid("directory is open for reading only").at(self.path.display())
            );
        }
        Ok(())
    }

    /// Sets `reserve` bytes aside; how many may be mapped.
    fn reserve(&self, file: &fs::File, access: Access, reserve: u64) -> io::Result<u64> {
        if reserve == 0 {
            return Ok(0);
        }
        let mode = match access {
            Access::Direct => FallocateFlags::KEEP_SIZE,
            Access::Bytes => FallocateFlags::empty(),
        };
        match (preallocate(file, mode, reserve), access) {
            (Ok(()), Access::Bytes) if self.mappable => Ok(reserve),
            (Ok(()), _) => Ok(0),
            (Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS), Access::Direct) => Ok(0),
            (Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS), Access::Bytes) => {
                file.set_len(reserve).map(|()| 0)
            }
            (Err(error), _) => Err(error.into()),
        }
    }
}

impl Medium for FileMedium {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            block_bytes: PAGE_BYTES,
            byte_addressable: false,
            persistent: true,
            queue_depth: self.lines.depth(),
            backend: self.lines.backend(self.direct),
        }
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        let place = self.place(name)?;
        self.must_write()?;
        check::end(name, reserve, 0)?;
        let file = match self.options(access).create_new(true).open(&place) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(check::exists(name));
            }
            Err(error) => return Err(failed("create", place.display(), error)),
        };
        match self.reserve(&file, access, reserve) {
            Ok(allocated) => {
                let turns = self.lines.turns();
                Ok(Arc::new(DiskFile::new(name, file, access, allocated, turns)))
            }
            Err(error) => {
                // Best effort: a leftover empty file costs its name only.
                drop(fs::remove_file(&place));
                Err(failed("reserve space", place.display(), error))
            }
        }
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let place = self.place(name)?;
        match self.options(access).open(&place) {
            // Stores into an existing file are written, not mapped: its pages may have left the
            // cache, and a page that cannot be read back must be an error, not a signal.
            Ok(file) => Ok(Arc::new(DiskFile::new(name, file, access, 0, self.lines.turns()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(check::missing(name)),
            Err(error) => Err(failed("open", place.display(), error)),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        let place = self.place(name)?;
        self.must_write()?;
        match fs::remove_file(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(check::missing(name)),
            result => result.map_err(|error| failed("remove", place.display(), error)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (old, new) = (self.place(from)?, self.place(to)?);
        self.must_write()?;
        match fs::rename(&old, &new) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(check::missing(from)),
            result => result.map_err(|error| failed("rename", old.display(), error)),
        }
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        let Some(to) = to.undecorated().downcast_ref::<Self>() else { return Ok(false) };
        let (old, new) = (self.place(name)?, to.place(name)?);
        to.must_write()?;
        match fs::hard_link(&old, &new) {
            Ok(()) => Ok(true),
            Err(error) if cannot_link(&error) => Ok(false),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => Err(check::missing(name)),
                io::ErrorKind::AlreadyExists => Err(check::exists(name)),
                _ => Err(failed("link", new.display(), error)),
            },
        }
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let at = self.path.display();
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(|e| failed("list", &at, e))? {
            let entry = entry.map_err(|e| failed("list", &at, e))?;
            // Whatever else lies in the directory is not the medium's.
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if !check::is_name(&name) {
                continue;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => {
                    files.push(Listing { name, len: metadata.len() });
                }
                Ok(_) => {}
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("stat", entry.path().display(), error)),
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    /// What the file system leaves to those without privileges.
    fn space(&self) -> Result<Option<Space>> {
        let failed =
            |error: rustix::io::Errno| failed("statvfs", self.path.display(), error.into());
        let fs = fstatvfs(&self.directory).map_err(failed)?;
        let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
        // Some file systems, made as they are needed, do not count blocks.
        let space = || Space { total: bytes(fs.f_blocks), free: bytes(fs.f_bavail) };
        Ok((fs.f_blocks > 0).then(space))
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        self.directory.sync_all().map_err(|e| failed("sync", self.path.display(), e))
    }

    /// A lock on the file `LOCK`, tied to the open file: it ends with the guard or the process,
    /// and two opens of one process exclude each other as two processes do. Those who only read
    /// share it; where there is none no store ever was open, and there is none to take.
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        let place = self.path.join(check::LOCK_NAME);
        let mut file = match open_lock(&self.path, self.read_only) {
            Ok(file) => file,
            Err(error) if self.read_only && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Box::new(()));
            }
            Err(error) => return Err(failed("open", place.display(), error)),
        };
        let locked = if self.read_only { file.try_lock_shared() } else { file.try_lock() };
        match locked {
            Ok(()) if self.read_only => Ok(Box::new(file)),
            Ok(()) => {
                // The number is for people; nothing depends on it.
                let noted = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                noted.map_err(|error| failed("lock", place.display(), error))?;
                Ok(Box::new(file))
            }
            Err(fs::TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let read = file.rewind().and_then(|()| file.take(20).read_to_string(&mut owner));
                // Those who share the lock note nothing, so the number may be an earlier owner's.
                let owner = match read {
                    Ok(1..) => format!(" (process {owner}, or a check)"),
                    Ok(0) | Err(_) => String::new(),
                };
                Err(Error::invalid("directory is in use by another open store")
                    .at(self.path.display())
                    .expected("one open store at a time")
                    .got(format_args!("the lock is held{owner}")))
            }
            Err(fs::TryLockError::Error(error)) => Err(failed("lock", place.display(), error)),
        }
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.lines.queue(depth, self.path.display())
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for FileMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileMedium({})", self.path.display())
    }
}

/// Whether the system says that these two directories cannot share a file: other file systems, one
/// without links or one that forbids them, a file with too many names.
fn cannot_link(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let known = [Errno::XDEV, Errno::PERM, Errno::ACCESS, Errno::MLINK, Errno::OPNOTSUPP];
    let known = known.map(|errno| Some(errno.raw_os_error()));
    known.contains(&error.raw_os_error()) || error.kind() == io::ErrorKind::Unsupported
}

/// Flags as the standard library takes them.
const fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

fn open_lock(directory: &Path, read_only: bool) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).write(!read_only).create(!read_only).truncate(false);
    options.open(directory.join(check::LOCK_NAME))
}

/// Whether files here can be opened for direct access; tried on the lock file. Where that must not
/// be made and is not there, the answer is no.
fn takes_direct(directory: &Path, read_only: bool, notices: &mut Vec<String>) -> Result<bool> {
    let place = directory.join(check::LOCK_NAME);
    match open_lock(directory, read_only) {
        Err(error) if !read_only => return Err(failed("open", place.display(), error)),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let opened = options.read(true).custom_flags(flags(OFlags::DIRECT)).open(place);
    if let Err(error) = &opened {
        notices.push(format!("direct I/O refused ({error}): the system's cache is used"));
    }
    Ok(opened.is_ok())
}

/// True for file systems where allocated space stays allocated when it is written again, so that
/// a store through memory cannot fail for want of space: ext2 to ext4, XFS, tmpfs. Those that
/// write to new places (btrfs, ZFS, F2FS) are not among them.
const fn keeps_allocated(file_system: u64) -> bool {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const TMPFS: u64 = 0x0102_1994;
    matches!(file_system, EXT | XFS | TMPFS)
}

/// An operating system's error, with the way out where a process ran out of handles.
#[cold]
fn failed(what: &'static str, place: impl fmt::Display, error: io::Error) -> Error {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match error.raw_os_error() {
        Some(ENFILE | EMFILE) => Error::retry(what)
            .at(place)
            .expected("a free file handle (raise `ulimit -n`, or open fewer files)")
            .caused_by(error),
        _ => Error::io(what, place, error),
    }
}

#[cfg(test)]
mod tests;

//! A directory on a file system as a medium, and its lock.
//!
//! Any thread may call; the file system orders operations on names. Cost: one system call or a few for
//! each operation.

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

use super::backend::Backend;
use super::handle::DiskFile;
use super::poll_queues::PollQueues;
use super::system::{failed, flags};
use crate::locked::Locked;
use crate::preallocate::preallocate;
use crate::{Access, Capabilities, File, Listing, Medium, Queue, Space, check};

/// Options for opening a directory.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Create the directory if it does not exist.
    pub create: bool,
    /// Open files for reading only, and create none: no write permission is needed. Operations that write
    /// fail.
    pub read_only: bool,
    /// Use direct I/O for [`Access::Direct`] if possible.
    pub direct: bool,
    /// Use io_uring if the kernel lets this process.
    pub io_uring: bool,
    /// The number of operations in flight that keeps the device busy; also the most threads of the pool.
    pub queue_depth: usize,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { create: true, read_only: false, direct: true, io_uring: true, queue_depth: 32 }
    }
}

/// The files of a directory.
pub struct FileMedium {
    path: PathBuf,
    /// An open handle of the directory, for syncing names.
    directory: fs::File,
    read_only: bool,
    direct: bool,
    /// The file system overwrites allocated space in place, so that it may be mapped.
    mappable: bool,
    backend: Backend,
    notices: Vec<String>,
}

impl FileMedium {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// `Invalid` if there is no directory, or no permission.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> Result<Self> {
        let path = path.as_ref();
        let at = path.display();
        if options.create && !options.read_only && !path.is_dir() {
            fs::create_dir_all(path).map_err(|e| failed("create a directory", &at, e))?;
            // The directory's own name must be durable before the files in it are.
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
        let direct = options.direct && supports_direct_io(path, read_only, &mut notices)?;
        let poll_queues = PollQueues::of(&directory);
        let backend =
            Backend::new(options.io_uring, options.queue_depth, poll_queues, &mut notices);
        let mappable = fstatfs(&directory).is_ok_and(|fs| overwrites_in_place(fs.f_type as u64));
        let path = path.to_owned();
        Ok(Self { path, directory, read_only, direct, mappable, backend, notices })
    }

    /// Features of the device that cannot be used, in one line. Some refusals only show in use.
    #[must_use]
    pub fn notice(&self) -> Option<String> {
        let notices: Vec<_> =
            self.notices.iter().map(String::as_str).chain(self.backend.notice()).collect();
        (!notices.is_empty()).then(|| notices.join("; "))
    }

    fn path_of(&self, name: &str) -> Result<PathBuf> {
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

    /// Fails if the directory was opened for reading only.
    fn must_write(&self) -> Result<()> {
        if self.read_only {
            return Err(
                Error::invalid("directory is open for reading only").at(self.path.display())
            );
        }
        Ok(())
    }

    /// Allocates `reserve` bytes. Returns how many of them may be mapped.
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
            queue_depth: self.backend.depth(),
            backend: self.backend.backend(self.direct),
        }
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        let path = self.path_of(name)?;
        self.must_write()?;
        check::end(name, reserve, 0)?;
        let file = match self.options(access).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(check::exists(name));
            }
            Err(error) => return Err(failed("create", path.display(), error)),
        };
        match self.reserve(&file, access, reserve) {
            Ok(allocated) => {
                let permits = self.backend.permits();
                Ok(Arc::new(DiskFile::new(name, file, access, allocated, permits)))
            }
            Err(error) => {
                // Best effort: an empty file that stays occupies a name and no space.
                drop(fs::remove_file(&path));
                Err(failed("reserve space", path.display(), error))
            }
        }
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let path = self.path_of(name)?;
        match self.options(access).open(&path) {
            // Stores into an existing file use `pwrite`, not a mapping: its pages may have been evicted
            // from the page cache, and a page that cannot be read back must be an error and no signal.
            Ok(file) => Ok(Arc::new(DiskFile::new(name, file, access, 0, self.backend.permits()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(check::missing(name)),
            Err(error) => Err(failed("open", path.display(), error)),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path_of(name)?;
        self.must_write()?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(check::missing(name)),
            result => result.map_err(|error| failed("remove", path.display(), error)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (old, new) = (self.path_of(from)?, self.path_of(to)?);
        self.must_write()?;
        match fs::rename(&old, &new) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(check::missing(from)),
            result => result.map_err(|error| failed("rename", old.display(), error)),
        }
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        let Some(to) = to.undecorated().downcast_ref::<Self>() else { return Ok(false) };
        let (old, new) = (self.path_of(name)?, to.path_of(name)?);
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
            // Other entries of the directory do not belong to the medium.
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if !check::is_name(&name) {
                continue;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => {
                    files.push(Listing { name, len: metadata.len() });
                }
                Ok(_) => {}
                // Removed since the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("stat", entry.path().display(), error)),
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    /// The space available to processes without privileges.
    fn space(&self) -> Result<Option<Space>> {
        let failed =
            |error: rustix::io::Errno| failed("statvfs", self.path.display(), error.into());
        let fs = fstatvfs(&self.directory).map_err(failed)?;
        let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
        // Some file systems that have no fixed size report no block count.
        let space = || Space { total: bytes(fs.f_blocks), free: bytes(fs.f_bavail) };
        Ok((fs.f_blocks > 0).then(space))
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        self.directory.sync_all().map_err(|e| failed("sync", self.path.display(), e))
    }

    /// A lock on the file `LOCK`, tied to the open file: it ends with the guard or with the process, and two
    /// opens of one process exclude each other as two processes do. Opens for reading only share the lock;
    /// if there is no lock file, no store was ever open and there is nothing to lock.
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        let path = self.path.join(check::LOCK_NAME);
        let mut file = match open_lock(&self.path, self.read_only) {
            Ok(file) => file,
            Err(error) if self.read_only && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Box::new(()));
            }
            Err(error) => return Err(failed("open", path.display(), error)),
        };
        let locked = if self.read_only { file.try_lock_shared() } else { file.try_lock() };
        match locked {
            Ok(()) if self.read_only => Ok(Box::new(Locked::new(file))),
            Ok(()) => {
                // The process number is for people; no code depends on it.
                let noted = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                noted.map_err(|error| failed("lock", path.display(), error))?;
                Ok(Box::new(Locked::new(file)))
            }
            Err(fs::TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let read = file.rewind().and_then(|()| file.take(20).read_to_string(&mut owner));
                // A shared lock writes no number, so the number may be an earlier owner's.
                let owner = match read {
                    Ok(1..) => format!(" (process {owner}, or a check)"),
                    Ok(0) | Err(_) => String::new(),
                };
                Err(Error::invalid("directory is in use by another open store")
                    .at(self.path.display())
                    .expected("one open store at a time")
                    .got(format_args!("the lock is held{owner}")))
            }
            Err(fs::TryLockError::Error(error)) => Err(failed("lock", path.display(), error)),
        }
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.backend.queue(depth, self.path.display())
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

/// Whether the error means that these two directories cannot share a file: they are on different file
/// systems, the file system has or allows no links, or the file has too many names.
fn cannot_link(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let known = [Errno::XDEV, Errno::PERM, Errno::ACCESS, Errno::MLINK, Errno::OPNOTSUPP];
    let known = known.map(|errno| Some(errno.raw_os_error()));
    known.contains(&error.raw_os_error()) || error.kind() == io::ErrorKind::Unsupported
}

fn open_lock(directory: &Path, read_only: bool) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).write(!read_only).create(!read_only).truncate(false);
    options.open(directory.join(check::LOCK_NAME))
}

/// Whether files of the directory can be opened for direct I/O; tried on the lock file. False if that file
/// does not exist and may not be created.
fn supports_direct_io(
    directory: &Path,
    read_only: bool,
    notices: &mut Vec<String>,
) -> Result<bool> {
    let path = directory.join(check::LOCK_NAME);
    match open_lock(directory, read_only) {
        Err(error) if !read_only => return Err(failed("open", path.display(), error)),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let opened = options.read(true).custom_flags(flags(OFlags::DIRECT)).open(path);
    if let Err(error) = &opened {
        notices.push(format!("direct I/O refused ({error}): the system's cache is used"));
    }
    Ok(opened.is_ok())
}

/// True for file systems that overwrite allocated space in place, so that a store through memory cannot run
/// out of space: ext2 to ext4, XFS, tmpfs. File systems that write to new places (btrfs, ZFS, F2FS) are not
/// among them.
const fn overwrites_in_place(file_system: u64) -> bool {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const TMPFS: u64 = 0x0102_1994;
    matches!(file_system, EXT | XFS | TMPFS)
}

#[cfg(test)]
mod tests;

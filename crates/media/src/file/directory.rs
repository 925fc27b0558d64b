//! A directory on a file system as a medium.
//!
//! Any thread may call; the file system orders operations on names. Cost: one system call or a few for
//! each operation.

use std::any::Any;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, Result};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, OFlags, fstatfs, fstatvfs, linkat, renameat, unlinkat,
};
use rustix::io::Errno;

use super::backend::Backend;
use super::directory_handle::DirectoryHandle;
use super::handle::DiskFile;
use super::lock;
use super::open_files::OpenFiles;
use super::open_limit::open_files_max;
use super::poll_queues::PollQueues;
use super::system::failed;
use crate::fork::Descriptor;
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
    directory: Arc<DirectoryHandle>,
    open_files: Arc<OpenFiles>,
    read_only: bool,
    direct: bool,
    /// The file system overwrites allocated space in place, so that it may be mapped.
    mappable: bool,
    backend: Backend,
    notices: Vec<String>,
}

impl FileMedium {
    /// Opens the directory at `path`. It is this directory from then on, wherever it is moved.
    ///
    /// # Errors
    /// `Invalid` if there is no directory, or no permission.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> Result<Self> {
        let create = options.create && !options.read_only;
        Self::of(DirectoryHandle::open(path.as_ref(), create)?, options)
    }

    /// The names of everything in the directory, also of entries that are no files of a medium; unsorted.
    ///
    /// # Errors
    /// Those of the system; `Invalid` if the directory was removed.
    pub fn entries(&self) -> Result<Vec<String>> {
        let names = self.directory.names()?.into_iter();
        Ok(names.map(|name| String::from_utf8_lossy(&name).into_owned()).collect())
    }

    /// The files of an open directory.
    pub(super) fn of(directory: DirectoryHandle, options: FileOptions) -> Result<Self> {
        let mut notices = Vec::new();
        let read_only = options.read_only;
        let direct = options.direct && supports_direct_io(&directory, read_only, &mut notices)?;
        let poll_queues = PollQueues::of(directory.fd()?);
        let backend =
            Backend::new(options.io_uring, options.queue_depth, poll_queues, &mut notices);
        let mappable =
            fstatfs(directory.fd()?).is_ok_and(|fs| overwrites_in_place(fs.f_type as u64));
        let (directory, open_files) = (Arc::new(directory), Arc::default());
        Ok(Self { directory, open_files, read_only, direct, mappable, backend, notices })
    }

    /// The directory.
    pub(super) fn directory(&self) -> &DirectoryHandle {
        &self.directory
    }

    /// Features of the device that cannot be used, in one line. Some refusals only show in use.
    #[must_use]
    pub fn notice(&self) -> Option<String> {
        let notices: Vec<_> =
            self.notices.iter().map(String::as_str).chain(self.backend.notice()).collect();
        (!notices.is_empty()).then(|| notices.join("; "))
    }

    /// Whether the files lie in memory of the system (tmpfs).
    pub(crate) fn is_in_memory(&self) -> bool {
        let directory = self.directory.fd();
        directory.is_ok_and(|it| fstatfs(it).is_ok_and(|fs| fs.f_type as u64 == TMPFS))
    }

    /// The flags to open a file with.
    fn flags(&self, access: Access) -> OFlags {
        let mut flags = if self.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        if access == Access::Direct && self.direct {
            flags |= OFlags::DIRECT;
        }
        flags
    }

    /// Creates the file `name`.
    fn create_file(&self, name: &str, access: Access) -> Result<fs::File> {
        let flags = self.flags(access) | OFlags::CREATE | OFlags::EXCL;
        // The second time, if the name belonged to nothing that a store makes.
        for _ in 0..2 {
            if !self.directory.make_way(name)? {
                return Err(check::exists(name));
            }
            match self.directory.open_file(name, flags)? {
                Ok(file) => return Ok(file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    return Err(self.directory.failed("create", name, error));
                }
            }
        }
        Err(check::exists(name))
    }

    fn disk_file(
        &self,
        name: &str,
        file: fs::File,
        access: Access,
        allocated: u64,
    ) -> Result<Arc<dyn File>> {
        let open = self.open_files.enter(&file, &self.directory)?;
        let (file, permits) = (Descriptor::new(file), self.backend.permits());
        Ok(Arc::new(DiskFile::new(name, file, access, allocated, permits, Some(open))))
    }

    /// Removes the name, which is the store's own removal.
    fn unlink(&self, name: &str) -> Result<()> {
        let Some(stat) = self.directory.stat(name)? else { return Err(check::missing(name)) };
        let directory = self.directory.fd()?;
        let removed = self
            .open_files
            .remove(Some(stat.st_ino), || unlinkat(directory, name, AtFlags::empty()));
        match removed {
            Err(Errno::NOENT) => Err(check::missing(name)),
            removed => removed.map_err(|error| self.directory.failed("remove", name, error)),
        }
    }

    /// Fails if the directory was opened for reading only.
    fn must_write(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::invalid("directory is open for reading only")
                .at(self.directory.path().display()));
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
            (Err(Errno::OPNOTSUPP | Errno::NOSYS), Access::Direct) => Ok(0),
            (Err(Errno::OPNOTSUPP | Errno::NOSYS), Access::Bytes) => {
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
            open_files_max: open_files_max(),
        }
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        check::name(name)?;
        self.must_write()?;
        check::end(name, reserve, 0)?;
        let file = self.create_file(name, access)?;
        match self.reserve(&file, access, reserve) {
            Ok(allocated) => self.disk_file(name, file, access, allocated),
            Err(error) => {
                // Best effort: an empty file that stays occupies a name and no space.
                drop(self.unlink(name));
                let path = self.directory.path().join(name);
                Err(failed("reserve space", path.display(), error))
            }
        }
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        check::name(name)?;
        match self.directory.open_file(name, self.flags(access))? {
            // Stores into an existing file use `pwrite`, not a mapping: its pages may have been evicted
            // from the page cache, and a page that cannot be read back must be an error and no signal.
            Ok(file) => self.disk_file(name, file, access, 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(check::missing(name)),
            Err(error) => Err(failed("open", self.directory.path().join(name).display(), error)),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        check::name(name)?;
        self.must_write()?;
        self.unlink(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check::name(from)?;
        check::name(to)?;
        self.must_write()?;
        let replaced = self.directory.stat(to)?.map(|stat| stat.st_ino);
        let directory = self.directory.fd()?;
        let renamed = self.open_files.remove(replaced, || renameat(directory, from, directory, to));
        match renamed {
            Err(Errno::NOENT) => {
                self.directory.must_exist()?;
                Err(check::missing(from))
            }
            renamed => renamed.map_err(|error| self.directory.failed("rename", from, error)),
        }
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        let Some(to) = to.undecorated().downcast_ref::<Self>() else { return Ok(false) };
        check::name(name)?;
        to.must_write()?;
        let (from, at) = (self.directory.fd()?, to.directory.fd()?);
        // A symbolic link would itself be linked, and is refused when it is opened.
        match linkat(from, name, at, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(error) if cannot_link(error) => Ok(false),
            Err(Errno::NOENT) => {
                to.directory.must_exist()?;
                Err(check::missing(name))
            }
            Err(Errno::EXIST) => Err(check::exists(name)),
            Err(error) => Err(to.directory.failed("link", name, error)),
        }
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let mut files = Vec::new();
        for name in self.directory.names()? {
            // Other entries of the directory do not belong to the medium.
            let Ok(name) = String::from_utf8(name) else { continue };
            if !check::is_name(&name) {
                continue;
            }
            // Nothing, if it was removed since the directory was listed.
            let Some(stat) = self.directory.stat(&name)? else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                files.push(Listing { name, len: u64::try_from(stat.st_size).unwrap_or(0) });
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    /// The space available to processes without privileges.
    fn space(&self) -> Result<Option<Space>> {
        let failed = |error| self.directory.failed("statvfs", "", error);
        let fs = fstatvfs(self.directory.fd()?).map_err(failed)?;
        let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
        // Some file systems that have no fixed size report no block count.
        let space = || Space { total: bytes(fs.f_blocks), free: bytes(fs.f_bavail) };
        Ok((fs.f_blocks > 0).then(space))
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        self.directory.sync()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        lock::lock(&self.directory, self.read_only)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.directory.fd()?;
        self.backend.queue(depth, self.directory.path().display())
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for FileMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileMedium({})", self.directory.path().display())
    }
}

/// Whether the error means that these two directories cannot share a file: they are on different file
/// systems, the file system has or allows no links, or the file has too many names.
fn cannot_link(error: Errno) -> bool {
    let known =
        [Errno::XDEV, Errno::PERM, Errno::ACCESS, Errno::MLINK, Errno::OPNOTSUPP, Errno::NOSYS];
    known.contains(&error)
}

/// Whether files of the directory can be opened for direct I/O; tried on the lock file. False if that file
/// does not exist and may not be created.
fn supports_direct_io(
    directory: &DirectoryHandle,
    read_only: bool,
    notices: &mut Vec<String>,
) -> Result<bool> {
    match lock::open(directory, read_only, OFlags::empty())? {
        Err(error) if !read_only => {
            let path = directory.path().join(check::LOCK_NAME);
            return Err(failed("open", path.display(), error));
        }
        _ => {}
    }
    let opened = lock::open(directory, true, OFlags::DIRECT)?;
    if let Err(error) = &opened {
        notices.push(format!("direct I/O refused ({error}): the system's cache is used"));
    }
    Ok(opened.is_ok())
}

/// The `statfs` type of tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// True for file systems that overwrite allocated space in place, so that a store through memory cannot run
/// out of space: ext2 to ext4, XFS, tmpfs. File systems that write to new places (btrfs, ZFS, F2FS) are not
/// among them.
const fn overwrites_in_place(file_system: u64) -> bool {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    matches!(file_system, EXT | XFS | TMPFS)
}

#[cfg(test)]
mod tests;

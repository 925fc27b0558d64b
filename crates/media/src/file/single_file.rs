//! One file or block device, opened by its path, outside a directory medium.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Result;
use rustix::fs::{MemfdFlags, OFlags, memfd_create};

use super::backend::Backend;
use super::handle::DiskFile;
use super::poll_queues::PollQueues;
use super::system::{failed, flags};
use crate::{Access, File, Queue};

/// An open file with its queues.
pub(crate) struct SingleFile {
    path: PathBuf,
    file: Arc<dyn File>,
    backend: Backend,
    is_direct: bool,
}

impl SingleFile {
    /// Opens the file at `path` for reading and writing, with direct I/O if possible.
    ///
    /// # Errors
    /// `Invalid` if there is no file or no permission.
    pub(crate) fn open(path: &Path, queue_depth: usize) -> Result<Self> {
        let open = |extra: OFlags| {
            fs::OpenOptions::new().read(true).write(true).custom_flags(flags(extra)).open(path)
        };
        let (file, is_direct) = match open(OFlags::DIRECT) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                (open(OFlags::empty()), false)
            }
            other => (other, true),
        };
        let file = file.map_err(|error| failed("open", path.display(), error))?;
        Ok(Self::new(path, file, queue_depth, is_direct))
    }

    /// The content of `file`, opened from `path`, through the page cache.
    pub(crate) fn cached(path: &Path, file: fs::File) -> Self {
        Self::new(path, file, 1, false)
    }

    /// `len` zeroed bytes that belong to no file system; memory is used as they are written. The system
    /// counts them separately from the process's own memory.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn in_memory(len: u64) -> Result<Self> {
        let name = "terrace-scm";
        let file = memfd_create(name, MemfdFlags::CLOEXEC).map(fs::File::from);
        let file = file.map_err(|error| failed("make a file in memory", name, error.into()))?;
        file.set_len(len).map_err(|error| failed("make a file in memory", name, error))?;
        Ok(Self::cached(Path::new(name), file))
    }

    fn new(path: &Path, file: fs::File, queue_depth: usize, is_direct: bool) -> Self {
        let backend = Backend::new(true, queue_depth, PollQueues::of(&file), &mut Vec::new());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = Arc::new(DiskFile::new(&name, file, Access::Direct, 0, backend.permits()));
        Self { path: path.to_owned(), file, backend, is_direct }
    }

    pub(crate) fn handle(&self) -> Arc<dyn File> {
        Arc::clone(&self.file)
    }

    pub(crate) fn backend(&self) -> &'static str {
        self.backend.backend(self.is_direct)
    }

    /// A queue for one thread.
    ///
    /// # Errors
    /// `Retry` if no queue is available.
    pub(crate) fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.backend.queue(depth, self.path.display())
    }
}

//! One open file or block device, outside a directory medium.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Result;
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};

use super::backend::Backend;
use super::handle::DiskFile;
use super::poll_queues::PollQueues;
use super::system::failed;
use crate::fork::Descriptor;
use crate::{Access, File, Queue};

/// An open file with its queues.
pub(crate) struct SingleFile {
    path: PathBuf,
    file: Arc<dyn File>,
    backend: Backend,
    is_direct: bool,
}

impl SingleFile {
    /// The content of `file`, opened from `path`, with direct I/O if possible. Duplicates of
    /// `file` then use direct I/O too, because they share its flags.
    pub(crate) fn direct(path: &Path, file: fs::File, queue_depth: usize) -> Self {
        let is_direct =
            fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::DIRECT)).is_ok();
        Self::new(path, file, queue_depth, is_direct)
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
        let (file, permits) = (Descriptor::new(file), backend.permits());
        let file = Arc::new(DiskFile::new(&name, file, Access::Direct, 0, permits, None));
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

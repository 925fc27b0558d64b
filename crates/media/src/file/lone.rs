//! One file or block device by its path, without a directory of its own around it.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Result;
use rustix::fs::OFlags;

use super::handle::DiskFile;
use super::lines::Lines;
use super::{failed, flags};
use crate::{Access, File, Queue};

/// An open file with its queues.
pub(crate) struct LoneFile {
    path: PathBuf,
    file: Arc<dyn File>,
    lines: Lines,
    is_direct: bool,
}

impl LoneFile {
    /// Opens what is at `path` for reading and writing, past the system's cache where that is possible.
    ///
    /// # Errors
    /// `Invalid` where there is nothing or no permission.
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
        let lines = Lines::new(true, queue_depth, &mut Vec::new());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = Arc::new(DiskFile::new(&name, file, Access::Direct, 0, lines.turns()));
        Ok(Self { path: path.to_owned(), file, lines, is_direct })
    }

    pub(crate) fn handle(&self) -> Arc<dyn File> {
        Arc::clone(&self.file)
    }

    pub(crate) const fn backend(&self) -> &'static str {
        self.lines.backend(self.is_direct)
    }

    /// A queue for one thread.
    ///
    /// # Errors
    /// `Retry` where there is none to give.
    pub(crate) fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.lines.queue(depth, self.path.display())
    }
}

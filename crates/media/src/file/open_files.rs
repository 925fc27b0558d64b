//! The open files of a directory, by inode: a file that lost its name is told apart from one that the store
//! removed itself.
//!
//! The system writes and syncs a file without a name as any other, and forgets it when it is closed. So a
//! sync of a file that another program removed would promise what does not hold. The store itself removes
//! files that are open, and their last syncs are harmless.
//!
//! Concurrency: one short lock for a file that is opened, closed or removed; none for a sync.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use base::{Error, Result};
use parking_lot::Mutex;
use rustix::fs::fstat;

use super::directory_handle::DirectoryHandle;
use super::system::failed;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Mutex<HashMap<u64, Inode>>);

#[derive(Debug, Default)]
struct Inode {
    handles: usize,
    /// The store removed a name of it. Relaxed: it is set before the name goes, and a sync looks at it after
    /// it saw that the name is gone.
    is_removed: Arc<AtomicBool>,
}

impl OpenFiles {
    /// Enters `file` of `directory`, just opened, until the result is dropped.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn enter(
        self: &Arc<Self>,
        file: &File,
        directory: &Arc<DirectoryHandle>,
    ) -> Result<OpenFile> {
        let stat = fstat(file).map_err(|e| failed("stat", directory.path().display(), e.into()))?;
        let mut inodes = self.0.lock();
        let entry = inodes.entry(stat.st_ino).or_default();
        entry.handles += 1;
        let is_removed = Arc::clone(&entry.is_removed);
        drop(inodes);
        let (files, directory) = (Arc::clone(self), Arc::clone(directory));
        Ok(OpenFile { files, directory, inode: stat.st_ino, is_removed })
    }

    /// Removes a name of the file with this inode by calling `remove`.
    pub(super) fn remove<T, E>(
        &self,
        inode: Option<u64>,
        remove: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mark = inode
            .and_then(|inode| self.0.lock().get(&inode).map(|open| Arc::clone(&open.is_removed)));
        if let Some(mark) = &mark {
            mark.store(true, Relaxed);
        }
        remove().inspect_err(|_| {
            if let Some(mark) = &mark {
                mark.store(false, Relaxed);
            }
        })
    }
}

/// One open file of a directory.
#[derive(Debug)]
pub(super) struct OpenFile {
    files: Arc<OpenFiles>,
    directory: Arc<DirectoryHandle>,
    inode: u64,
    is_removed: Arc<AtomicBool>,
}

impl OpenFile {
    /// Refuses if another program removed the file or its directory. Two system calls.
    ///
    /// # Errors
    /// `Invalid`, naming the file.
    pub(super) fn must_have_name(&self, name: &str, file: &File) -> Result<()> {
        let stat = fstat(file).map_err(|error| failed("stat", name, error.into()))?;
        if stat.st_nlink > 0 {
            return self.directory.must_exist();
        }
        if self.is_removed.load(Relaxed) {
            return Ok(());
        }
        Err(Error::invalid("file of an open store")
            .at(self.directory.path().join(name).display())
            .expected("the file that was opened")
            .got("it was removed by another program"))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever, and the list is the parent's.
        if !self.directory.is_here() {
            return;
        }
        let mut inodes = self.files.0.lock();
        let Some(entry) = inodes.get_mut(&self.inode) else {
            drop(inodes);
            base::broken_invariant!("an open file is in the list of its directory");
            return;
        };
        entry.handles -= 1;
        if entry.handles == 0 {
            inodes.remove(&self.inode);
        }
    }
}

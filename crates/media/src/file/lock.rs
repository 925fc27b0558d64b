//! The lock of a directory: a lock of the system on its file `LOCK`.
//!
//! It belongs to the open file: it ends with its guard, with the process, and in a forked child, and two
//! opens of one process exclude each other as two processes do. Opens for reading only share it; if there
//! is no lock file, no store was ever open and there is nothing to lock. Only a regular file that holds at
//! most a process id is ever written.

use std::any::Any;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;

use base::{Error, Result};
use rustix::fs::OFlags;

use super::directory_handle::DirectoryHandle;
use super::system::failed;
use crate::check::LOCK_NAME;
use crate::locked::Locked;

/// The longest content of a lock file, bytes: a process id.
const CONTENT_BYTES_MAX: u64 = 20;

/// Locks the directory.
///
/// # Errors
/// As [`crate::Medium::lock`].
pub(super) fn lock(
    directory: &DirectoryHandle,
    read_only: bool,
) -> Result<Box<dyn Any + Send + Sync>> {
    let path = directory.path().join(LOCK_NAME);
    let mut file = match open(directory, read_only, OFlags::empty())? {
        Ok(file) => file,
        Err(error) if read_only && error.kind() == io::ErrorKind::NotFound => {
            return Ok(Box::new(()));
        }
        Err(error) => return Err(failed("open", path.display(), error)),
    };
    let held = file.metadata().map_err(|error| failed("stat", path.display(), error))?;
    if held.len() > CONTENT_BYTES_MAX {
        return Err(Error::invalid("lock file")
            .at(path.display())
            .expected("a process id, or nothing: move the file away")
            .got(format_args!("{} bytes", held.len())));
    }
    match if read_only { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use(directory, file)),
        Err(TryLockError::Error(error)) => return Err(failed("lock", path.display(), error)),
    }
    // Between opening and locking, the last owner may have removed the file with its directory.
    if directory.stat(LOCK_NAME)?.is_none_or(|now| now.st_ino != held.ino()) {
        return Err(Error::retry("lock file")
            .at(path.display())
            .got("it was replaced meanwhile")
            .is_over());
    }
    if !read_only {
        // The process id is for people; no code depends on it.
        let noted = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        noted.map_err(|error| failed("lock", path.display(), error))?;
    }
    Ok(Box::new(Locked::new(file)))
}

/// Opens the lock file, and creates it unless `read_only`.
pub(super) fn open(
    directory: &DirectoryHandle,
    read_only: bool,
    extra: OFlags,
) -> Result<io::Result<File>> {
    let wanted = if read_only { OFlags::RDONLY } else { OFlags::RDWR | OFlags::CREATE };
    directory.open_file(LOCK_NAME, wanted | extra)
}

#[cold]
fn in_use(directory: &DirectoryHandle, mut file: File) -> Error {
    let mut owner = String::new();
    let read = file.rewind().and_then(|()| file.take(CONTENT_BYTES_MAX).read_to_string(&mut owner));
    // A shared lock writes no number, so the number may be an earlier owner's.
    let owner = match read {
        Ok(1..) if owner == std::process::id().to_string() => {
            format!(" (this process, {owner}, or a check)")
        }
        Ok(1..) => format!(" (process {owner}, or a check)"),
        Ok(0) | Err(_) => String::new(),
    };
    Error::locked("directory is in use by another open store")
        .at(directory.path().display())
        .expected("one open store at a time")
        .got(format_args!("the lock is held{owner}"))
}

//! A locked file that is unlocked when its owner drops it, not only when its last handle is closed.
//!
//! A child process shares the handles of its parent from `fork` to `exec`, which takes milliseconds on a busy
//! machine. If only closing the last handle ended the lock, a store that is closed and opened again at once
//! could be refused because of an unrelated child process.
//!
//! A child that executes nothing else closes its copy at once, and does not unlock it, which would unlock the
//! parent's (`crate::fork`).

use std::fs::File;

use base::Result;

use crate::fork::Descriptor;

/// Keeps the lock that was taken on a file.
#[derive(Debug)]
pub(crate) struct Locked(Descriptor);

impl Locked {
    /// `file` is locked already.
    pub(crate) fn new(file: File) -> Self {
        Self(Descriptor::new(file))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // If unlocking fails, closing the handle, which follows, ends the lock.
        drop(self.0.get().map(File::unlock));
    }
}

/// `result`, of work with a `file` that is locked already: if it failed, `file` is unlocked, for the reason
/// above.
pub(crate) fn or_unlock<T>(file: &File, result: Result<T>) -> Result<T> {
    if result.is_err() {
        // If unlocking fails, closing the file ends the lock.
        drop(file.unlock());
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_though_another_process_has_its_handle() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(place.path()).unwrap();
        let file = open();
        file.try_lock().unwrap();
        // As a process that is being started has it.
        let shared = file.try_clone().unwrap();
        let locked = Locked::new(file);
        assert!(open().try_lock().is_err());
        drop(locked);
        open().try_lock().unwrap();
        drop(shared);
    }
    #[test]
    fn a_failed_opening_unlocks_though_another_process_has_its_handle() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(place.path()).unwrap();
        let file = open();
        file.try_lock().unwrap();
        let shared = file.try_clone().unwrap();
        or_unlock(&file, Ok(())).unwrap();
        assert!(open().try_lock().is_err());
        or_unlock(&file, Err::<(), _>(base::Error::invalid("file"))).unwrap_err();
        drop(file);
        open().try_lock().unwrap();
        drop(shared);
    }
}

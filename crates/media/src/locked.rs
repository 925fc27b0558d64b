//! A locked file, unlocked when this is dropped, and not only when its last handle is closed.
//!
//! A process that starts another shares all its handles with it until the other runs its own program, which
//! on a busy machine takes milliseconds. A lock that went with its last handle would be held as long, and
//! whoever opens the place again at once, in this process or another, would be refused.

use std::fs::File;

/// Keeps the lock that was taken on a file.
#[derive(Debug)]
pub(crate) struct Locked(File);

impl Locked {
    /// `file` is locked already.
    pub(crate) const fn new(file: File) -> Self {
        Self(file)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A lock that cannot be given back here goes with the handle, which is closed next.
        drop(self.0.unlock());
    }
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
}

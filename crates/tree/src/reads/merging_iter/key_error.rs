//! Errors of one key: its operands cannot be merged, or its separated value is damaged. The keys around it
//! can be read, so a caller may seek past it and continue.

use base::{Error, ErrorKind};

use super::MergingIter;

impl MergingIter {
    /// The key with the error that ended the last move; a caller may seek past it. `None` if the move did not
    /// fail, or failed with an error that is not of one key.
    pub fn failed_key(&self) -> Option<&[u8]> {
        self.failed.as_deref()
    }

    /// Notes that `error` is that of the key that was being resolved.
    pub(super) fn key_failed(&mut self, error: Error) -> Error {
        // Other kinds are those of the read: memory is short, or the store is closed.
        if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Corrupt) {
            self.failed = self.resolving.take();
        }
        error
    }
}

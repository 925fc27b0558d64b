//! Live files: files that may still be read. Pages of other files are not demoted to the lower tier, even if
//! they outlived their file in DRAM, or in the queue to be written.
//!
//! Copies of a store have files with the same content, so a file may be marked live several times. Any thread
//! may call; one mutex, a leaf in the lock order.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;

use base::invariant;
use parking_lot::Mutex;

/// How often each file, named by its digest, is marked live. Uninitialized until the first mark: a caller
/// that marks no files has all of them count as live.
#[derive(Default)]
pub(crate) struct LiveFiles(OnceLock<Mutex<HashMap<u64, u32>>>);

impl LiveFiles {
    pub(crate) fn keep(self: &Arc<Self>, file: u64) -> LiveFile {
        *self.0.get_or_init(Mutex::default).lock().entry(file).or_default() += 1;
        LiveFile { files: Arc::clone(self), file }
    }

    /// Whether `file` is live.
    pub(crate) fn contains(&self, file: u64) -> bool {
        self.0.get().is_none_or(|files| files.lock().contains_key(&file))
    }
}

impl fmt::Debug for LiveFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveFiles({})", self.0.get().map_or(0, |files| files.lock().len()))
    }
}

/// Marks a file live while it exists ([`crate::PageCache::keep_file`]).
#[derive(Debug)]
pub struct LiveFile {
    files: Arc<LiveFiles>,
    file: u64,
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        let Some(files) = self.files.0.get() else { return };
        let mut files = files.lock();
        let count = files.get_mut(&self.file);
        invariant!(count.is_some(), "a live file is counted until its last mark is dropped");
        match count {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(files.remove(&self.file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_live_until_its_last_mark_is_dropped() {
        let files = Arc::new(LiveFiles::default());
        assert!(files.contains(1), "nobody tells");
        let one = files.keep(1);
        assert!(files.contains(1) && !files.contains(2));
        let again = files.keep(1);
        drop(one);
        assert!(files.contains(1));
        drop(again);
        assert!(!files.contains(1));
    }
}

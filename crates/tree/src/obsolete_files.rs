//! Obsolete files: no manifest names them and nobody reads them; they wait to be removed.
//!
//! The last reader of a table may be a `get`, or a write that checked the tree. Closing an unlinked file
//! frees its blocks in the file system; if that discards them on the device at once, it takes milliseconds
//! per file. Only background work should wait for that.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Owner, TaskHandle};
use cache::{LiveFile, PageCache};
use media::Medium;
use parking_lot::Mutex;

/// Removes files and their cached pages, one at a time: by a background task while there is one, else at
/// once.
pub struct ObsoleteFiles {
    owner: Owner,
    medium: Arc<dyn Medium>,
    cache: Arc<PageCache>,
    waiting: Mutex<Waiting>,
    /// Held while a file is removed, so that [`ObsoleteFiles::purge`] returns after the last removal.
    purging: Mutex<()>,
}

/// Bounded by the number of the store's files.
#[derive(Default)]
struct Waiting {
    files: VecDeque<ObsoleteFile>,
    purger: Option<TaskHandle>,
}

/// A file that no manifest names and nobody reads.
pub struct ObsoleteFile {
    /// The file's name.
    pub name: String,
    /// The file's digest, by which the page cache knows it, and its number of pages; `None` if it could not
    /// be opened.
    pub cached: Option<(u64, u32)>,
    /// Keeps the file open until it is removed.
    pub open: Option<Arc<dyn Any + Send + Sync>>,
}

impl ObsoleteFiles {
    /// No obsolete files.
    pub fn new(medium: Arc<dyn Medium>, cache: Arc<PageCache>) -> Arc<Self> {
        let (owner, waiting, purging) = (Owner::this(), Mutex::default(), Mutex::default());
        Arc::new(Self { owner, medium, cache, waiting, purging })
    }

    /// Tells the page cache that the file with this digest may be read, until the result is dropped.
    pub fn register_live(&self, digest: u64) -> LiveFile {
        self.cache.keep_file(digest)
    }

    /// Whether this process opened the store.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// Sets the task that calls [`ObsoleteFiles::purge_one`]; it is woken for each file.
    pub fn set_purger(&self, purger: TaskHandle) {
        self.waiting.lock().purger = Some(purger);
    }

    /// Removes the files that wait, and every later one at once.
    pub fn close(&self) {
        self.waiting.lock().purger = None;
        self.purge();
    }

    /// Takes over `file`, to remove it in the background. If it cannot be removed, the next open finds it as
    /// an orphan and removes it. In a forked child this does nothing: the files are the parent's.
    pub fn add(&self, file: ObsoleteFile) {
        if !self.owner.is_here() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let Some(purger) = waiting.purger.clone() else {
            drop(waiting);
            return self.remove(file);
        };
        debug_assert!(
            waiting.files.iter().all(|other| other.name != file.name),
            "a file becomes obsolete once"
        );
        waiting.files.push_back(file);
        drop(waiting);
        purger.wake();
    }

    /// Bytes of the files that wait, as far as they could be opened.
    pub fn bytes(&self) -> u64 {
        let waiting = self.waiting.lock();
        let pages = waiting.files.iter().filter_map(|file| file.cached).map(|(_, pages)| pages);
        pages.map(|pages| u64::from(pages) * PAGE_BYTES as u64).sum()
    }

    /// Removes the file that has waited longest. Returns whether there was one.
    pub fn purge_one(&self) -> bool {
        let _purging = self.purging.lock();
        let file = self.waiting.lock().files.pop_front();
        file.map(|file| self.remove(file)).is_some()
    }

    /// Removes every file that waits: for callers that need the space.
    pub fn purge(&self) {
        while self.purge_one() {}
    }

    fn remove(&self, file: ObsoleteFile) {
        if let Some((digest, pages)) = file.cached {
            self.cache.remove_file(digest, pages);
        }
        // If it cannot be removed, the next open removes it.
        let _ = self.medium.remove(&file.name);
        drop(file.open);
    }
}

impl fmt::Debug for ObsoleteFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObsoleteFiles({} wait)", self.waiting.lock().files.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use base::{Account, Executor, ManualClock, Stepper};
    use media::{Access, MemoryMedium};

    use super::*;
    use crate::PurgeTask;

    fn files(count: u32) -> (Arc<dyn Medium>, Arc<ObsoleteFiles>) {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        for number in 0..count {
            medium.create(&number.to_string(), Access::Direct, 0).unwrap();
        }
        let cache = Arc::new(PageCache::new(&Account::unlimited("cache"), 4 << 20).unwrap());
        (Arc::clone(&medium), ObsoleteFiles::new(medium, cache))
    }

    fn file(number: u32) -> ObsoleteFile {
        ObsoleteFile { name: number.to_string(), cached: Some((7, 3)), open: None }
    }

    #[test]
    fn the_task_removes_files_and_without_it_they_are_removed_at_once() {
        let (medium, obsolete) = files(4);
        let left = || medium.list().unwrap().len();
        obsolete.add(file(0));
        assert_eq!(left(), 3, "there is no task yet");
        let executor = Stepper::new(7, Arc::new(ManualClock::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let task = PurgeTask { obsolete: Arc::clone(&obsolete), stop: Arc::clone(&stop) };
        let purger = executor.spawn("purge", Box::new(task));
        obsolete.set_purger(purger.clone());
        obsolete.add(file(1));
        obsolete.add(file(9));
        assert_eq!(left(), 3, "dropping the last reference waits for nothing");
        assert_eq!(obsolete.bytes(), 6 * PAGE_BYTES as u64);
        while executor.help() {}
        assert_eq!((left(), obsolete.bytes()), (2, 0), "a missing file does no harm");
        obsolete.add(file(2));
        stop.store(true, Ordering::Release);
        purger.wake();
        purger.join(&executor).unwrap();
        assert_eq!(left(), 1, "a task that stops leaves nothing behind");
        obsolete.add(file(3));
        assert_eq!(left(), 0);
    }
}

//! Files that no reader needs any more, on their way out.
//!
//! The last reader of a table may be a `get`, or a write that looked at the tree. Closing a file that
//! has no name left gives its blocks back to the file system, and where that tells the device at once,
//! it takes milliseconds a file: nobody but background work should wait for it.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use base::TaskHandle;
use base::limits::PAGE_BYTES;
use cache::{LiveFile, PageCache};
use media::Medium;
use parking_lot::Mutex;

/// Removes files and their cached pages, one after the other: by a task while one is there, else at
/// once.
pub struct ObsoleteFiles {
    medium: Arc<dyn Medium>,
    cache: Arc<PageCache>,
    waiting: Mutex<Waiting>,
    /// Held while a file is removed, so that [`ObsoleteFiles::purge`] returns after the last one.
    purging: Mutex<()>,
}

/// As many as there are files of the store at most.
#[derive(Default)]
struct Waiting {
    files: VecDeque<ObsoleteFile>,
    purger: Option<TaskHandle>,
}

/// A file that no manifest names and nobody reads.
pub struct ObsoleteFile {
    pub name: String,
    /// What it is called in the page cache, and its pages, where it could be opened.
    pub cached: Option<(u64, u32)>,
    /// Keeps it open until it is removed.
    pub open: Option<Arc<dyn Any + Send + Sync>>,
}

impl ObsoleteFiles {
    pub fn new(medium: Arc<dyn Medium>, cache: Arc<PageCache>) -> Arc<Self> {
        let (waiting, purging) = Default::default();
        Arc::new(Self { medium, cache, waiting, purging })
    }

    /// Says to the cache that `file` may be read, by its digest.
    pub fn register_live(&self, digest: u64) -> LiveFile {
        self.cache.keep_file(digest)
    }

    /// Has `purger` call [`ObsoleteFiles::purge_one`] when there is something to do.
    pub fn set_purger(&self, purger: TaskHandle) {
        self.waiting.lock().purger = Some(purger);
    }

    /// Has files go at once from now on, those that wait too.
    pub fn close(&self) {
        self.waiting.lock().purger = None;
        self.purge();
    }

    /// Takes over `file`. It is removed by and by; where it stays, it is found as an orphan and removed
    /// at the next open.
    pub fn add(&self, file: ObsoleteFile) {
        let mut waiting = self.waiting.lock();
        let Some(purger) = waiting.purger.clone() else {
            drop(waiting);
            return self.remove(file);
        };
        waiting.files.push_back(file);
        drop(waiting);
        purger.wake();
    }

    /// What the files that wait take, bytes, as far as they could be opened.
    pub fn bytes(&self) -> u64 {
        let waiting = self.waiting.lock();
        let pages = waiting.files.iter().filter_map(|file| file.cached).map(|(_, pages)| pages);
        pages.map(|pages| u64::from(pages) * PAGE_BYTES as u64).sum()
    }

    /// Removes the file that waits longest; whether there was one.
    pub fn purge_one(&self) -> bool {
        let _purging = self.purging.lock();
        let file = self.waiting.lock().files.pop_front();
        file.map(|file| self.remove(file)).is_some()
    }

    /// Removes every file that waits: for who waits for space to be given back.
    pub fn purge(&self) {
        while self.purge_one() {}
    }

    fn remove(&self, file: ObsoleteFile) {
        if let Some((digest, pages)) = file.cached {
            self.cache.remove_file(digest, pages);
        }
        // A file that stays goes at the next open.
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
    fn files_go_by_the_task_and_without_one_at_once() {
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
        assert_eq!(left(), 3, "whoever gave it up waits for nothing");
        assert_eq!(obsolete.bytes(), 6 * PAGE_BYTES as u64);
        while executor.help() {}
        assert_eq!((left(), obsolete.bytes()), (2, 0), "one that is missing is no harm");
        obsolete.add(file(2));
        stop.store(true, Ordering::Release);
        purger.wake();
        purger.join(&executor).unwrap();
        assert_eq!(left(), 1, "a task that stops leaves nothing behind");
        obsolete.add(file(3));
        assert_eq!(left(), 0);
    }
}

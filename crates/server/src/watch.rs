//! [`Watches`]: which connections watch which keys, exactly. A write marks the watchers of its keys; EXEC of
//! a marked connection does nothing. Nothing of the store is held for a watcher that idles.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Set once a watched key was written.
pub(crate) type Mark = Arc<AtomicBool>;

#[derive(Debug, Default)]
pub(crate) struct Watches {
    by_key: Mutex<HashMap<Vec<u8>, Vec<Mark>>>,
    /// Watched keys, so that a write without watchers takes no lock. Set before the watcher reads.
    count: AtomicUsize,
}

impl Watches {
    /// Marks `mark` when the stored key `key` is written. The caller holds the key's lock.
    pub(crate) fn watch(&self, key: &[u8], mark: &Mark) {
        let mut by_key = self.by_key.lock();
        let marks = by_key.entry(key.to_vec()).or_default();
        if !marks.iter().any(|known| Arc::ptr_eq(known, mark)) {
            marks.push(Arc::clone(mark));
        }
        self.count.store(by_key.len(), Ordering::SeqCst);
    }

    pub(crate) fn unwatch(&self, keys: &BTreeSet<Vec<u8>>, mark: &Mark) {
        let mut by_key = self.by_key.lock();
        for key in keys {
            if let Some(marks) = by_key.get_mut(key) {
                marks.retain(|known| !Arc::ptr_eq(known, mark));
                if marks.is_empty() {
                    by_key.remove(key);
                }
            }
        }
        self.count.store(by_key.len(), Ordering::SeqCst);
    }

    /// The stored keys `keys` were written. The caller holds their locks.
    pub(crate) fn written(&self, keys: &[Vec<u8>]) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let by_key = self.by_key.lock();
        for mark in keys.iter().filter_map(|key| by_key.get(key)).flatten() {
            mark.store(true, Ordering::SeqCst);
        }
    }

    /// The watched keys of these databases.
    pub(crate) fn watched(&self, databases: &[u8]) -> Vec<Vec<u8>> {
        let by_key = self.by_key.lock();
        let is_in =
            |key: &&Vec<u8>| key.first().is_some_and(|database| databases.contains(database));
        by_key.keys().filter(is_in).cloned().collect()
    }
}

//! The syncer: many callers wait for durability, one of them syncs for all.

use base::Result;

use super::sync::{Condvar, Mutex, wait};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Syncer {
    running: Mutex<bool>,
    finished: Condvar,
}

impl Syncer {
    /// Returns what `settled` says as soon as it says anything. Until then, runs `sync`, or waits
    /// for the caller that does. A sync that began after this call settles it.
    pub(crate) fn sync(
        &self,
        settled: impl Fn() -> Option<Result<()>>,
        sync: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut running = self.running.lock();
        loop {
            if let Some(result) = settled() {
                return result;
            }
            if !*running {
                break;
            }
            running = wait(&self.finished, running);
        }
        *running = true;
        drop(running);
        let result = sync();
        *self.running.lock() = false;
        self.finished.notify_all();
        result
    }
}

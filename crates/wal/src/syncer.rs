//! The syncer: many callers wait for durability, one of them syncs for all. Beside them a background task
//! may sync ahead of what they write, and a device tells a failure to one of those who sync a file: to
//! whoever is told, and what was not stored then is gone for the next. So a sync that went well says nothing
//! until the one beside it is known to have gone well, too.

use base::Result;

use super::sync::{Condvar, Mutex, wait};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Syncer {
    running: Mutex<bool>,
    finished: Condvar,
    /// Held from before a sync ahead until its outcome is told.
    ahead: Mutex<()>,
}

impl Syncer {
    /// Returns what `settled` says as soon as it says anything. Until then, runs `sync` and, with what it
    /// returned, `finish`, or waits for the caller that does. A sync that began after this call settles it.
    /// When `finish` runs, every sync ahead that had begun has told what became of it.
    pub(crate) fn sync<T>(
        &self,
        settled: impl Fn() -> Option<Result<()>>,
        sync: impl FnOnce() -> Result<T>,
        finish: impl FnOnce(T) -> Result<()>,
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
        let result = sync().and_then(|synced| {
            drop(self.ahead.lock());
            finish(synced)
        });
        *self.running.lock() = false;
        self.finished.notify_all();
        result
    }

    /// Runs `sync`, which syncs a file beside callers and tells them where that fails.
    pub(crate) fn sync_ahead(&self, sync: impl FnOnce()) {
        let _held = self.ahead.lock();
        sync();
    }
}

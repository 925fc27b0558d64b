//! The syncer: many callers wait for durability, and one of them syncs for all.
//!
//! A background task may sync the same file at the same time, ahead of the writers. A device reports a
//! failed sync of a file to only one of the callers that sync it, and drops the bytes that it could not
//! write. So the success of one sync counts only after the other one is known to have succeeded too.

use base::{Result, invariant};

use super::sync::{Condvar, Mutex, wait};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Syncer {
    running: Mutex<bool>,
    finished: Condvar,
    /// Held from before a sync ahead until its outcome is recorded.
    ahead: Mutex<()>,
}

impl Syncer {
    /// Returns the result of `settled` as soon as it is `Some`. Until then runs `sync` and passes its
    /// output to `finish`, or waits for the caller that does. A sync that began after this call settles
    /// it. Before `finish` runs, every sync ahead that had begun has recorded its outcome.
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
        let was_running = std::mem::take(&mut *self.running.lock());
        invariant!(was_running, "one caller syncs at a time");
        self.finished.notify_all();
        result
    }

    /// Runs `sync`, which syncs a file concurrently with callers and records a failure before it
    /// returns.
    pub(crate) fn sync_ahead(&self, sync: impl FnOnce()) {
        let _held = self.ahead.lock();
        sync();
    }
}

//! A store's background tasks: flushing, freeing and preparing log segments, interval syncs,
//! removing obsolete files.
//! Merges have a place of their own, `compaction`.

mod flush_task;
mod log_task;
mod segment_task;
mod sync_task;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Counter, Executor, TaskHandle};

pub(crate) use flush_task::{FlushTask, LogLimits};
pub(crate) use log_task::LogTask;
pub(crate) use segment_task::SegmentTask;
pub(crate) use sync_task::SyncTask;

/// The running tasks, and what they did.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) tasks: Vec<TaskHandle>,
    pub(crate) counters: Arc<BackgroundCounters>,
}

/// What background work did.
#[derive(Debug, Default)]
pub(crate) struct BackgroundCounters {
    pub(crate) flushes: Counter,
    pub(crate) flush_bytes: Counter,
    pub(crate) flush_failures: Counter,
    pub(crate) sync_failures: Counter,
}

impl Background {
    /// Has every task look around.
    pub(crate) fn wake(&self) {
        self.tasks.iter().for_each(TaskHandle::wake);
    }

    /// Stops the tasks and waits for their current steps.
    pub(crate) fn stop(&self, executor: &dyn Executor) {
        self.stop.store(true, Ordering::Release);
        for task in &self.tasks {
            task.wake();
        }
        for task in &self.tasks {
            // A task that panicked is finished too; its panic was printed when it happened.
            let _ = task.join(executor);
        }
    }
}

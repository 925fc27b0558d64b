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
use parking_lot::Mutex;

pub(crate) use flush_task::{FlushTask, LogLimits};
pub(crate) use log_task::LogTask;
pub(crate) use segment_task::SegmentTask;
pub(crate) use sync_task::SyncTask;

/// The running tasks, and what they did.
#[derive(Debug)]
pub struct Background {
    pub stop: Arc<AtomicBool>,
    pub tasks: Mutex<Vec<TaskHandle>>,
    pub counters: Arc<BackgroundCounters>,
}

/// What background work did.
#[derive(Debug, Default)]
pub struct BackgroundCounters {
    pub flushes: Counter,
    pub flush_bytes: Counter,
    pub flush_failures: Counter,
    pub sync_failures: Counter,
}

impl Background {
    /// Adds a task, which ends when `stop` is set.
    pub fn add(&self, task: TaskHandle) {
        self.tasks.lock().push(task);
    }

    /// Has every task look around.
    pub fn wake(&self) {
        self.tasks.lock().iter().for_each(TaskHandle::wake);
    }

    /// Stops the tasks and waits for their current steps.
    pub fn stop(&self, executor: &dyn Executor) {
        self.stop.store(true, Ordering::Release);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.iter().for_each(TaskHandle::wake);
        for task in &tasks {
            // A task that panicked is finished too; its panic was printed when it happened.
            let _ = task.join(executor);
        }
    }
}

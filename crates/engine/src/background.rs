//! A store's background tasks: flushes, log segments, interval syncs. Merges run in `tree::compaction`.
//!
//! Each task is a step function that an executor runs; it ends after [`Background::stop`] was called.

mod collect_plan;
mod collector;
mod counters;
mod dead_segments;
mod flush_task;
mod hot_pages_task;
mod index_checkpoints;
mod log_limits;
mod log_task;
mod segment_task;
mod sync_task;
mod waiting_deletes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Executor, TaskHandle};
use parking_lot::Mutex;

pub(crate) use collector::Collector;
pub use counters::{BackgroundCounters, IndexCheckpointStatus};
pub(crate) use flush_task::FlushTask;
pub(crate) use hot_pages_task::{HotPageList, HotPagesTask};
pub(crate) use index_checkpoints::IndexCheckpoints;
pub(crate) use log_limits::LogLimits;
pub(crate) use log_task::LogTask;
pub(crate) use segment_task::SegmentTask;
pub(crate) use sync_task::SyncTask;
pub(crate) use waiting_deletes::WaitingDeletes;

/// The running tasks of a store, and their counters.
#[derive(Debug)]
pub struct Background {
    /// Set when the store closes: every task ends at its next step.
    pub stop: Arc<AtomicBool>,
    pub(crate) tasks: Mutex<Vec<TaskHandle>>,
    /// Counts of the work that the tasks did.
    pub counters: Arc<BackgroundCounters>,
}

impl Background {
    /// No tasks, for a store that is open for reading only.
    pub(crate) fn none() -> Self {
        let (stop, tasks, counters) = Default::default();
        Self { stop, tasks, counters }
    }

    /// Adds a task, which must end when `stop` is set.
    pub fn add(&self, task: TaskHandle) {
        self.tasks.lock().push(task);
    }

    /// Makes every task look for work, e.g. after a change of settings.
    pub fn wake(&self) {
        self.tasks.lock().iter().for_each(TaskHandle::wake);
    }

    /// Stops the tasks and waits until their current steps end.
    pub(crate) fn stop(&self, executor: &dyn Executor) {
        self.stop.store(true, Ordering::Release);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.iter().for_each(TaskHandle::wake);
        for task in &tasks {
            // A task that panicked has ended too; the panic was printed when it happened.
            let _ = task.join(executor);
        }
    }
}

//! Executors: all background work runs as tasks, one bounded step at a time.
//!
//! [`Threads`] runs steps on a fixed number of threads. [`Stepper`] runs one step per call, of a task that a
//! seeded generator picks, so that a simulator decides every interleaving. Both use a [`Pool`]: the queue of
//! ready tasks, and the timers of sleeping tasks.
//!
//! Any thread may spawn, wake and join. Cost: two short lock holds a step, and a scan of all timers.

mod pool;
mod stepper;
mod threads;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Clock, Error, Result};

use pool::{Pool, RunState, TaskState};
pub use stepper::Stepper;
pub use threads::Threads;

/// When a task wants its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// As soon as possible.
    Again,
    /// Once woken.
    Idle,
    /// Once woken, or after this time.
    IdleFor(Duration),
    /// Never: the task is finished, and the executor drops it.
    Done,
}

/// Background work. The executor owns it from `spawn` until it is `Done`.
pub trait Task: Send {
    /// Does one bounded piece of the work.
    fn step(&mut self) -> Progress;
}

/// Runs background work.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Takes ownership of `task`, which reports call `name`, and queues its first step.
    fn spawn(&self, name: &'static str, task: Box<dyn Task>) -> TaskHandle;

    /// Runs one step on the calling thread if this executor has no threads. Returns whether a step ran.
    /// Code that waits for background work calls this in its waiting loop.
    fn help(&self) -> bool;

    /// The clock of the timers.
    fn clock(&self) -> &Arc<dyn Clock>;
}

/// A handle of a spawned task. Dropping it does not stop the task.
#[derive(Clone)]
pub struct TaskHandle {
    pool: Arc<Pool>,
    task: Arc<TaskState>,
}

impl TaskHandle {
    /// Queues the task unless it is queued already.
    pub fn wake(&self) {
        self.pool.wake(&self.task);
    }

    /// Whether the task is finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.task.run.lock().state, RunState::Finished { .. })
    }

    /// Waits until the task is finished. Runs steps of `executor` meanwhile if that has no threads.
    ///
    /// # Errors
    /// `Poisoned` if the task panicked; `Closed` in a process forked from the executor's.
    pub fn join(&self, executor: &dyn Executor) -> Result<()> {
        self.pool.owner.check()?;
        loop {
            if executor.help() {
                continue;
            }
            let run = self.task.run.lock();
            match run.state {
                RunState::Finished { panicked: false } => return Ok(()),
                RunState::Finished { panicked: true } => {
                    let error = Error::new(crate::ErrorKind::Poisoned, "background task panicked");
                    return Err(error.at(self.task.name));
                }
                // A short wait: a manual clock may move meanwhile and make a timer of a `Stepper` due.
                _ => drop(self.task.finished.wait_for(run, Duration::from_millis(10))),
            }
        }
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskHandle({})", self.task.name)
    }
}

#[cfg(test)]
mod tests;

//! An executor with a fixed number of threads.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::pool::Pool;
use super::{Executor, Task, TaskHandle};
use crate::{Clock, Error, Result};

/// An executor with its own threads. Dropping it stops the threads after their current steps, then drops
/// the unfinished tasks. In a process forked from the one that started them, dropping it does nothing.
pub struct Threads {
    pool: Arc<Pool>,
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// `Retry` if the operating system cannot start a thread.
    pub fn start(count: usize, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::start_with(count, clock, || {})
    }

    /// As [`Threads::start`], with threads of low priority: other threads get the processor first.
    ///
    /// # Errors
    /// As [`Threads::start`].
    pub fn start_low_priority(count: usize, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::start_with(count, clock, lower_priority)
    }

    fn start_with(count: usize, clock: Arc<dyn Clock>, begin: fn()) -> Result<Self> {
        let pool = Pool::new(clock);
        let mut threads = Self { pool, workers: Vec::new() };
        for number in 0..count.max(1) {
            let pool = Arc::clone(&threads.pool);
            let worker = std::thread::Builder::new()
                .name(format!("terrace-{number}"))
                .spawn(move || {
                    begin();
                    pool.serve();
                })
                .map_err(|e| Error::retry("background thread").caused_by(e))?;
            threads.workers.push(worker);
        }
        Ok(threads)
    }
}

/// The increase of `nice` for low-priority threads: with it, the scheduler gives a thread about a third of
/// the usual weight.
pub(super) const NICE: i32 = 5;

/// Lowers the calling thread's priority. Keeps the priority if the operating system refuses.
fn lower_priority() {
    // Only Linux has a `nice` value for each thread; elsewhere this would change the whole process.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let _refused = getpriority_process(None).map(|it| setpriority_process(None, it + NICE));
    }
}

impl Executor for Threads {
    fn spawn(&self, name: &'static str, task: Box<dyn Task>) -> TaskHandle {
        self.pool.spawn(name, task)
    }

    fn help(&self) -> bool {
        false
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.pool.clock
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.workers.len())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.pool.owner.is_here() {
            // The threads are the parent's: there is nothing to join or to detach.
            Box::leak(Box::new(std::mem::take(&mut self.workers)));
            return;
        }
        self.pool.queues.lock().stopping = true;
        self.pool.work.notify_all();
        let this = std::thread::current().id();
        for worker in self.workers.drain(..) {
            // A task's step may drop the last owner of this executor; a thread cannot join itself.
            if worker.thread().id() != this {
                // A worker catches the panics of its tasks, so its own result says nothing.
                drop(worker.join());
            }
        }
        let mut queues = self.pool.queues.lock();
        let unfinished = (std::mem::take(&mut queues.ready), std::mem::take(&mut queues.timers));
        // Dropping a task may use the pool: release the lock first.
        drop(queues);
        drop(unfinished);
    }
}

//! Operations in flight through a bounded set of threads that block in `pread` and `pwrite`: used if the
//! kernel refuses io_uring.
//!
//! One pool serves every queue of a medium. Threads are started while operations wait for one, never more
//! than the device's depth, and end with the pool. A free thread takes the oldest operation of the highest
//! class.
//!
//! Lock order: `Jobs`, and a queue's `Mailbox`, are never held together. Dropping a queue waits until its
//! operations are complete, except in a forked child, which has no thread that could complete one.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use base::{Error, Owner, Result};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use super::queue::{IoEngine, Operation};
use crate::Completion;

/// A thread needs only the frame of a system call.
const STACK_BYTES: usize = 128 << 10;

/// The threads and their jobs.
pub(super) struct Pool {
    /// A process forked from it has none of the threads.
    owner: Owner,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
}

struct Shared {
    jobs: Mutex<Jobs>,
    work: Condvar,
}

#[derive(Default)]
struct Jobs {
    by_class: [VecDeque<Job>; 5],
    waiting: usize,
    idle: usize,
    stopping: bool,
}

struct Job {
    operation: Operation,
    mailbox: Arc<Mailbox>,
}

/// The completions of one queue.
#[derive(Default)]
struct Mailbox {
    done: Mutex<Vec<Completion>>,
    arrived: Condvar,
    /// An eventfd that counts completions, once the queue was asked for its descriptor.
    signal: OnceLock<OwnedFd>,
}

impl Mailbox {
    fn deliver(&self, completion: Completion) {
        self.done.lock().push(completion);
        self.arrived.notify_one();
        if let Some(signal) = self.signal.get() {
            // Adds a number above zero. It fails only if the counter is full: the descriptor is readable
            // then.
            let _full = rustix::io::write(signal, &1_u64.to_le_bytes());
        }
    }

    /// Makes the descriptor unreadable. Before the completions are taken, so that none is missed.
    fn clear_signal(&self) {
        if let Some(signal) = self.signal.get() {
            // The read fails if the descriptor is unreadable already.
            let _unreadable = rustix::io::read(signal, &mut [0_u8; 8]);
        }
    }
}

impl Pool {
    /// At most `threads_max` threads; none yet.
    pub(super) fn new(threads_max: usize) -> Arc<Self> {
        let shared = Arc::new(Shared { jobs: Mutex::default(), work: Condvar::new() });
        Arc::new(Self { owner: Owner::this(), shared, threads: Mutex::default(), threads_max })
    }

    /// A queue's access to the pool.
    ///
    /// # Errors
    /// `Retry` if there is no thread and the operating system cannot start one.
    pub(super) fn handle(self: &Arc<Self>) -> Result<PoolHandle> {
        self.owner.check()?;
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            let first = self.spawn(0).map_err(|e| Error::retry("I/O thread").caused_by(e))?;
            threads.push(first);
        }
        drop(threads);
        Ok(PoolHandle { pool: Arc::clone(self), mailbox: Arc::default(), running: 0 })
    }

    /// Threads started so far.
    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.threads.lock().len()
    }

    fn spawn(&self, number: usize) -> std::io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name(format!("terrace-io-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(move || shared.serve())
    }

    fn push(&self, job: Job) {
        let mut jobs = self.shared.jobs.lock();
        let class = job.operation.class() as usize;
        let queue = jobs.by_class.get_mut(class);
        base::invariant!(queue.is_some(), "the pool has a queue for each class");
        if let Some(queue) = queue {
            queue.push_back(job);
            jobs.waiting += 1;
        }
        let short = jobs.waiting > jobs.idle;
        drop(jobs);
        self.shared.work.notify_one();
        if short {
            let mut threads = self.threads.lock();
            if threads.len() < self.threads_max
                && let Ok(another) = self.spawn(threads.len())
            {
                // If no thread can be started, the existing threads do the work.
                threads.push(another);
            }
        }
    }
}

impl Shared {
    /// The loop of a thread.
    fn serve(&self) {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some(job) = jobs.by_class.iter_mut().find_map(VecDeque::pop_front) {
                base::invariant!(jobs.waiting > 0, "waiting jobs are counted");
                jobs.waiting -= 1;
                drop(jobs);
                let Job { mut operation, mailbox } = job;
                let result = operation.run();
                let completion = operation.complete(result);
                mailbox.deliver(completion);
                jobs = self.jobs.lock();
            } else if jobs.stopping {
                return;
            } else {
                jobs.idle += 1;
                self.work.wait(&mut jobs);
                jobs.idle -= 1;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // The threads are the parent's: there is nothing to join or to detach.
            Box::leak(Box::new(std::mem::take(self.threads.get_mut())));
            return;
        }
        self.shared.jobs.lock().stopping = true;
        self.shared.work.notify_all();
        for thread in self.threads.lock().drain(..) {
            // No operation panics; there is nothing to report.
            drop(thread.join());
        }
        base::invariant!(self.shared.jobs.lock().waiting == 0, "the pool outlives its queues");
    }
}

/// One queue's access to the pool.
pub(super) struct PoolHandle {
    pool: Arc<Pool>,
    mailbox: Arc<Mailbox>,
    running: usize,
}

impl IoEngine for PoolHandle {
    fn start(&mut self, operation: Operation) {
        self.running += 1;
        self.pool.push(Job { operation, mailbox: Arc::clone(&self.mailbox) });
    }

    fn reap(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        self.pool.owner.check()?;
        base::invariant!(least <= self.running, "a reap waits for running operations only");
        self.mailbox.clear_signal();
        let mut done = self.mailbox.done.lock();
        while done.len() < least.min(self.running) {
            self.mailbox.arrived.wait(&mut done);
        }
        base::invariant!(done.len() <= self.running, "a pool completes only started operations");
        self.running -= done.len();
        out.append(&mut done);
        Ok(())
    }

    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        let signal = &self.mailbox.signal;
        if signal.get().is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            // Readable at first: completions that were delivered before it was there are found.
            signal.set(eventfd(1, flags).ok()?).ok()?;
        }
        signal.get().map(AsFd::as_fd)
    }

    fn running(&self) -> usize {
        self.running
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        if !self.pool.owner.is_here() {
            // No thread works for this process. An operation's buffer belongs to this process alone.
            return;
        }
        let (running, mut done) = (self.running, Vec::new());
        // Waiting for the pool's own threads cannot fail.
        drop(self.reap(running, &mut done));
        base::invariant!(self.running == 0, "a dropped queue has no operation in the pool");
    }
}

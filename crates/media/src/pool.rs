//! Operations in flight through a bounded set of threads that block: in `pread` and `pwrite` if the kernel
//! refuses io_uring, and in requests to an object store.
//!
//! One pool serves every queue of a medium. Threads are started while work waits for one, never more than
//! their limit, and end with the pool. A free thread takes the oldest work of the highest class.
//!
//! Lock order: `Jobs`, and a queue's `Mailbox`, are never held together. Dropping a queue waits until its
//! operations are complete, except in a forked child, which has no thread that could complete one.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use base::sync::{Condvar, Mutex};
use base::{Error, Owner, Result};
use rustix::event::{EventfdFlags, eventfd};

use crate::{Class, Completion};

/// What a thread does at once, for one queue.
pub(crate) trait Work: Send + 'static {
    fn class(&self) -> Class;

    /// The number of operations that it completes.
    fn operations(&self) -> usize;

    /// Completes its operations. Does not panic.
    fn run(self, done: &mut Vec<Completion>);
}

/// The threads of a pool.
#[derive(Clone, Copy)]
pub(crate) struct Threads {
    /// Their names begin with it.
    pub(crate) name: &'static str,
    pub(crate) most: usize,
    pub(crate) stack_bytes: usize,
}

/// The threads and their jobs.
pub(crate) struct Pool<W> {
    /// A process forked from it has none of the threads.
    owner: Owner,
    shared: Arc<Shared<W>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    limits: Threads,
}

struct Shared<W> {
    jobs: Mutex<Jobs<W>>,
    work: Condvar,
}

/// Bounded by the depths of the queues.
struct Jobs<W> {
    by_class: [VecDeque<Job<W>>; 5],
    waiting: usize,
    idle: usize,
    stopping: bool,
}

struct Job<W> {
    work: W,
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
    fn deliver(&self, completions: &mut Vec<Completion>) {
        self.done.lock().append(completions);
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

impl<W: Work> Pool<W> {
    /// A pool without a thread.
    pub(crate) fn new(limits: Threads) -> Arc<Self> {
        let by_class = std::array::from_fn(|_| VecDeque::new());
        let jobs = Mutex::new(Jobs { by_class, waiting: 0, idle: 0, stopping: false });
        let shared = Arc::new(Shared { jobs, work: Condvar::new() });
        Arc::new(Self { owner: Owner::this(), shared, threads: Mutex::default(), limits })
    }

    /// A queue's access to the pool.
    ///
    /// # Errors
    /// `Closed` in a forked child; `Retry` if there is no thread and the operating system cannot start one.
    pub(crate) fn handle(self: &Arc<Self>) -> Result<PoolHandle<W>> {
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
    pub(crate) fn threads(&self) -> usize {
        self.threads.lock().len()
    }

    fn spawn(&self, number: usize) -> std::io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name(format!("{}-{number}", self.limits.name))
            .stack_size(self.limits.stack_bytes)
            .spawn(move || shared.serve())
    }

    fn push(&self, job: Job<W>) {
        let mut jobs = self.shared.jobs.lock();
        let class = job.work.class() as usize;
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
            if threads.len() < self.limits.most
                && let Ok(another) = self.spawn(threads.len())
            {
                // If no thread can be started, the existing threads do the work.
                threads.push(another);
            }
        }
    }
}

impl<W: Work> Shared<W> {
    /// The loop of a thread.
    fn serve(&self) {
        let (mut jobs, mut done) = (self.jobs.lock(), Vec::new());
        loop {
            if let Some(job) = jobs.by_class.iter_mut().find_map(VecDeque::pop_front) {
                base::invariant!(jobs.waiting > 0, "waiting jobs are counted");
                jobs.waiting -= 1;
                drop(jobs);
                let Job { work, mailbox } = job;
                let operations = work.operations();
                work.run(&mut done);
                base::invariant!(done.len() == operations, "work completes all of its operations");
                mailbox.deliver(&mut done);
                drop(mailbox);
                jobs = self.jobs.lock();
            } else if jobs.stopping {
                return;
            } else {
                jobs.idle += 1;
                jobs = self.work.wait(jobs);
                jobs.idle -= 1;
            }
        }
    }
}

impl<W> Drop for Pool<W> {
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
pub(crate) struct PoolHandle<W> {
    pool: Arc<Pool<W>>,
    mailbox: Arc<Mailbox>,
    running: usize,
}

impl<W: Work> PoolHandle<W> {
    pub(crate) fn start(&mut self, work: W) {
        self.running += work.operations();
        self.pool.push(Job { work, mailbox: Arc::clone(&self.mailbox) });
    }

    /// The number of operations that were started and not reaped.
    pub(crate) fn running(&self) -> usize {
        self.running
    }
}

impl<W> PoolHandle<W> {
    /// Waits for at least `least` of the running operations, and appends their completions, perhaps more.
    ///
    /// # Errors
    /// `Closed` in a forked child.
    pub(crate) fn reap(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        self.pool.owner.check()?;
        base::invariant!(least <= self.running, "a reap waits for running operations only");
        self.mailbox.clear_signal();
        let mut done = self.mailbox.done.lock();
        while done.len() < least.min(self.running) {
            done = self.mailbox.arrived.wait(done);
        }
        base::invariant!(done.len() <= self.running, "a pool completes only started operations");
        self.running -= done.len();
        out.append(&mut done);
        Ok(())
    }

    /// A descriptor that is readable while there are completions.
    pub(crate) fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        let signal = &self.mailbox.signal;
        if signal.get().is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            // Readable at first: completions that were delivered before it was there are found.
            signal.set(eventfd(1, flags).ok()?).ok()?;
        }
        signal.get().map(AsFd::as_fd)
    }
}

impl<W> Drop for PoolHandle<W> {
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

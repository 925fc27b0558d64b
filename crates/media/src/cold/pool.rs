//! Threads that wait for ranges of cold files.
//!
//! A range of an object store takes tens of milliseconds, and hundreds can be in flight. Threads are started
//! while ranges wait for one, never more than [`THREADS_MAX`], and end with the pool.
//!
//! Locks: the jobs and a queue's mailbox are never held together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use base::limits::PAGE_BYTES;
use base::{Error, Owner, Result};
use parking_lot::{Condvar, Mutex};

use super::counters::Counters;
use crate::{Buf, Completion, File, Purpose};

/// The most threads: ranges in flight of all queues of a store.
const THREADS_MAX: usize = 32;
/// Room for the client of an object store, with its encryption.
const STACK_BYTES: usize = 512 << 10;

/// One read of a queue.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) at: u64,
    pub(super) buf: Buf,
    pub(super) token: u64,
}

/// Reads of one file, ascending, that are done as one range from the first to the end of the last.
pub(super) struct Range {
    pub(super) file: Arc<dyn File>,
    pub(super) purpose: Purpose,
    pub(super) reads: Vec<Read>,
}

impl Range {
    /// The first offset and the end.
    pub(super) fn bounds(&self) -> (u64, u64) {
        let end = |read: &Read| read.at + read.buf.len() as u64;
        let first = self.reads.first().map_or(0, |read| read.at);
        (first, self.reads.iter().map(end).max().unwrap_or(first))
    }

    fn run(self, counters: &Counters) -> Vec<Completion> {
        let (first, end) = self.bounds();
        let Self { file, purpose, mut reads } = self;
        if reads.len() == 1 {
            let Some(Read { at, buf, token }) = reads.pop() else { return Vec::new() };
            let (buf, result) = file.read(at, buf, purpose);
            counters.range(1, buf.len(), result.is_ok());
            return vec![Completion { token, buf, result }];
        }
        let pages = usize::try_from(end - first).unwrap_or(0).div_ceil(PAGE_BYTES);
        let (range, result) = file.read(first, Buf::pages(pages), purpose);
        counters.range(reads.len(), range.len(), result.is_ok());
        let done = reads.into_iter().map(|Read { at, mut buf, token }| {
            let from = usize::try_from(at - first).unwrap_or(usize::MAX);
            let content = range.get(from..).and_then(|rest| rest.get(..buf.len()));
            base::invariant!(content.is_some(), "a merged range has its reads");
            if let Some(content) = content {
                buf.copy_from_slice(content);
            }
            Completion { token, buf, result: result.clone() }
        });
        done.collect()
    }
}

/// The completions of one queue.
#[derive(Default)]
pub(super) struct Mailbox {
    done: Mutex<Vec<Completion>>,
    arrived: Condvar,
}

impl Mailbox {
    /// Takes what is complete, and waits for at least one completion if `waits`.
    pub(super) fn take(&self, waits: bool, out: &mut Vec<Completion>) -> usize {
        let mut done = self.done.lock();
        while waits && done.is_empty() {
            self.arrived.wait(&mut done);
        }
        let count = done.len();
        out.append(&mut done);
        count
    }
}

/// The threads and their work.
pub(super) struct Pool {
    /// A process forked from it has none of the threads.
    owner: Owner,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    counters: Arc<Counters>,
    jobs: Mutex<Jobs>,
    work: Condvar,
}

#[derive(Default)]
struct Jobs {
    /// Bounded by the depths of the queues.
    waiting: VecDeque<(Range, Arc<Mailbox>)>,
    idle: usize,
    stopping: bool,
}

impl Pool {
    pub(super) fn new(counters: Arc<Counters>) -> Arc<Self> {
        let (jobs, work) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { counters, jobs, work });
        Arc::new(Self { owner: Owner::this(), shared, threads: Mutex::default() })
    }

    /// Whether this process made the pool.
    pub(super) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// Begins `range`.
    ///
    /// # Errors
    /// `Closed` in a forked child; `Retry` if there is no thread and none can be started.
    pub(super) fn begin(&self, range: Range, mailbox: &Arc<Mailbox>) -> Result<()> {
        self.owner.check()?;
        let mut threads = self.threads.lock();
        let mut jobs = self.shared.jobs.lock();
        if jobs.waiting.len() >= jobs.idle && threads.len() < THREADS_MAX {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name(format!("terrace-cold-{}", threads.len()))
                .stack_size(STACK_BYTES)
                .spawn(move || shared.serve());
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => {
                    return Err(Error::retry("thread for cold reads").caused_by(error));
                }
                // The existing threads do the work.
                Err(_) => {}
            }
        }
        jobs.waiting.push_back((range, Arc::clone(mailbox)));
        drop(jobs);
        self.shared.work.notify_one();
        Ok(())
    }
}

impl Shared {
    /// The loop of a thread.
    fn serve(&self) {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some((range, mailbox)) = jobs.waiting.pop_front() {
                drop(jobs);
                let mut done = range.run(&self.counters);
                mailbox.done.lock().append(&mut done);
                mailbox.arrived.notify_one();
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
        for thread in self.threads.get_mut().drain(..) {
            // No read panics; there is nothing to report.
            drop(thread.join());
        }
    }
}

//! Flush outcomes, and the threads that wait for them.
//!
//! The flush task reports every flush here. Writers without memory and callers of `flush` wait until one
//! ends. Waiting polls once a millisecond, or after each step of background work if the executor is stepped
//! ([`Executor::help`]), and notices a dropped keyspace: its memtables are never flushed.
//! Concurrency: `outcomes` is a leaf lock; nothing else is locked while it is held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::sync::{Condvar, Mutex};
use base::{Error, ErrorKind, Executor, Result, TaskHandle, invariant};
use tree::Trees;

use crate::Resources;
use crate::waiters::{Waiters, Waiting};

/// A waiting thread that saw no flush succeed for this long gives up: the device does not answer.
const STALL_MAX: Duration = Duration::from_secs(60);

/// A wait ends with the flush's error after this many retryable flush failures.
pub(super) const SHORTAGES_MAX: usize = 2000;

/// After each this many failures, one a millisecond, the flush task is woken to try again.
const WAKE_EVERY: usize = 400;

/// Flush outcomes of one store, and the threads that wait for them.
#[derive(Debug)]
pub(super) struct FlushWaits {
    resources: Resources,
    trees: Arc<Trees>,
    flusher: OnceLock<TaskHandle>,
    outcomes: Mutex<Outcomes>,
    /// The last flush failed. A hint for writers: `Relaxed`.
    is_failing: AtomicBool,
    /// Notified when a flush ends, with success or failure, and when the store closes.
    ended: Condvar,
    writers: Waiters,
    callers: Waiters,
}

#[derive(Debug, Default)]
struct Outcomes {
    succeeded: u64,
    failed: u64,
    /// The error of the last flush if it failed.
    failure: Option<Error>,
    is_closed: bool,
}

/// Why a thread waits for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// The thread writes, and the write buffers are full.
    Writer,
    /// The thread called a flush, a compaction or an ingest.
    Caller,
}

/// Threads that wait while no flush succeeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedWaiters {
    /// How many threads wait.
    pub count: usize,
    /// `writer` or `caller`.
    pub kind: &'static str,
    /// How long no flush succeeded.
    pub waited: Duration,
}

impl FlushWaits {
    pub(super) fn new(resources: Resources, trees: Arc<Trees>) -> Self {
        Self {
            resources,
            trees,
            flusher: OnceLock::new(),
            outcomes: Mutex::default(),
            is_failing: AtomicBool::new(false),
            ended: Condvar::new(),
            writers: Waiters::default(),
            callers: Waiters::default(),
        }
    }

    /// Sets the task that flushes. Called once, by open.
    pub(super) fn set_flusher(&self, task: TaskHandle) {
        invariant!(self.flusher.set(task).is_ok(), "a store has one flush task");
    }

    pub(super) fn wake_flusher(&self) {
        // There is no flush task yet while the store is being opened.
        if let Some(task) = self.flusher.get() {
            task.wake();
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.outcomes.lock().failure.clone()
    }

    pub(super) fn waited(&self, waiter: Waiter) -> Duration {
        self.waiters(waiter).waited()
    }

    fn waiters(&self, waiter: Waiter) -> &Waiters {
        match waiter {
            Waiter::Writer => &self.writers,
            Waiter::Caller => &self.callers,
        }
    }

    pub(super) fn blocked(&self) -> Option<BlockedWaiters> {
        let now = self.resources.clock().monotonic();
        let blocked = |waiters: &Waiters, kind| {
            waiters.blocked(now).map(|(count, waited)| BlockedWaiters { count, kind, waited })
        };
        blocked(&self.writers, "writer").or_else(|| blocked(&self.callers, "caller"))
    }

    /// Records the outcome of a flush and wakes the waiting threads.
    pub(super) fn record(&self, outcome: Result<()>) {
        if outcome.is_ok() {
            let now = self.resources.clock().monotonic();
            self.writers.progressed(now);
            self.callers.progressed(now);
        }
        let mut outcomes = self.outcomes.lock();
        self.is_failing.store(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Ok(()) => {
                outcomes.succeeded += 1;
                outcomes.failure = None;
            }
            Err(error) => {
                outcomes.failed += 1;
                outcomes.failure = Some(error);
            }
        }
        drop(outcomes);
        self.ended.notify_all();
    }

    /// Makes every wait end with `Closed`.
    pub(super) fn close(&self) {
        self.outcomes.lock().is_closed = true;
        self.ended.notify_all();
    }

    /// Waits for at most a millisecond until a flush ends, and counts the time for `waiter`.
    pub(super) fn pause(&self, waiter: Waiter) {
        let clock = self.resources.executor().clock();
        let start = clock.monotonic();
        if !self.resources.executor().help() {
            drop(self.ended.wait_for(self.outcomes.lock(), Duration::from_millis(1)));
        }
        self.waiters(waiter).count(clock.monotonic().saturating_sub(start));
    }

    pub(super) fn is_any_sealed(&self) -> bool {
        self.trees.all().iter().any(|tree| tree.oldest_sealed().is_some())
    }

    /// Begins a wait. Flushes that ended before do not end it: after a failure the device may have
    /// recovered.
    pub(super) fn begin(&self, waiter: Waiter) -> FlushWait<'_> {
        let executor = self.resources.executor();
        let start = executor.clock().monotonic();
        let waiters = self.waiters(waiter);
        let waiting = waiters.enter(start);
        let outcomes = self.outcomes.lock();
        FlushWait {
            waits: self,
            executor,
            waiters,
            start,
            succeeded: outcomes.succeeded,
            failed: outcomes.failed,
            shortages: 0,
            _waiting: waiting,
        }
    }
}

/// One thread's wait for a flush.
pub(super) struct FlushWait<'a> {
    waits: &'a FlushWaits,
    executor: &'a dyn Executor,
    waiters: &'a Waiters,
    start: Duration,
    /// Outcomes when the wait began.
    succeeded: u64,
    failed: u64,
    /// Polls that found the last flush failed for lack of memory.
    shortages: usize,
    _waiting: Waiting<'a>,
}

impl FlushWait<'_> {
    /// Waits until a flush succeeds or `is_awaited` is false: no memtable that the caller waits for is
    /// sealed.
    ///
    /// # Errors
    /// The flush's; `Closed` if the store is closed; `Poisoned` if the flush task panicked; `no_room()`
    /// after [`STALL_MAX`].
    pub(super) fn until_progress(
        mut self,
        is_awaited: impl Fn() -> bool,
        no_room: impl Fn() -> Error,
    ) -> Result<()> {
        let ended = loop {
            if let Some(ended) = self.poll(&is_awaited, &no_room) {
                break ended;
            }
            // Polls are counted instead of timed: the flush task of a clock that stands still would never
            // try again.
            if self.shortages > 0 && self.shortages.is_multiple_of(WAKE_EVERY) {
                self.waits.wake_flusher();
            }
        };
        self.waiters.count(self.waited());
        ended
    }

    fn waited(&self) -> Duration {
        self.executor.clock().monotonic().saturating_sub(self.start)
    }

    /// The end of the wait if it has come. Otherwise runs a step of background work, or sleeps for at most a
    /// millisecond if there is none to run here.
    fn poll(
        &mut self,
        is_awaited: &impl Fn() -> bool,
        no_room: &impl Fn() -> Error,
    ) -> Option<Result<()>> {
        let waits = self.waits;
        // The memtables of a dropped keyspace are discarded without a flush.
        let is_awaited = is_awaited();
        let outcomes = waits.outcomes.lock();
        let seen = (outcomes.succeeded, outcomes.failed);
        invariant!(
            outcomes.succeeded >= self.succeeded && outcomes.failed >= self.failed,
            "flush outcomes are only added"
        );
        if outcomes.is_closed {
            return Some(Err(Error::closed("store")));
        }
        if waits.flusher.get().is_some_and(TaskHandle::is_finished) {
            return Some(Err(Error::new(ErrorKind::Poisoned, "flushes").got("a panic")));
        }
        if outcomes.succeeded != self.succeeded || !is_awaited {
            return Some(Ok(()));
        }
        if let Some(failure) = outcomes.failure.as_ref().filter(|_| outcomes.failed != self.failed)
        {
            // A shortage of memory passes: readers give memory back, and the flush is tried again.
            if !failure.is_retryable() || self.shortages == SHORTAGES_MAX {
                return Some(Err(failure.clone()));
            }
            self.shortages += 1;
        }
        if self.waited() > STALL_MAX {
            return Some(Err(no_room().got(format_args!("none in {STALL_MAX:?}"))));
        }
        drop(outcomes);
        if !self.executor.help() {
            let outcomes = waits.outcomes.lock();
            let is_same = (outcomes.succeeded, outcomes.failed) == seen;
            if is_same && !outcomes.is_closed {
                drop(waits.ended.wait_for(outcomes, Duration::from_millis(1)));
            }
        }
        None
    }
}

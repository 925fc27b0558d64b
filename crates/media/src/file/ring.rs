//! Operations in flight through io_uring: one ring for each queue, one system call for each `complete`.
//!
//! Files and buffers are not registered with the ring: buffers change with every operation, and registering
//! saved too little to justify a fixed set of them (docs/decisions/013). The ring is not bound to the
//! thread that created it, because a task moves between threads.
//!
//! If the device has poll queues, and polling pays ([`super::strategy`]), direct reads go through a second
//! ring: a thread enters the kernel to find its completions. A read that this ring refuses is repeated on the
//! first one.
//!
//! Invariant: the buffer and the file of an operation stay in `slots` from before the kernel sees them until
//! the completion is reaped. Dropping the ring, in a panic too, waits for the completions; if the wait itself
//! fails, buffers and files are leaked and never freed.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use base::{Error, Result};
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::thread::{current_timer_slack, set_current_timer_slack};

use super::poll_queues::PollQueues;
use super::queue::{IoEngine, Operation};
use super::strategy::{Plan, Slept, WaitPlanner};
use super::transfer::Step;
use crate::{Class, Completion};

/// The most interruptions of one wait.
const INTERRUPTS_MAX: u32 = 100_000;

/// One `reap` returns at most the depth divided by this, unless the caller asks for more: if a caller gets
/// all completions at once, the device runs idle before it is refilled (about a tenth fewer reads at depth
/// 32, docs/decisions/013).
const BATCH_PART: usize = 4;

/// A ring and its operations in flight.
pub(super) struct Ring {
    ring: IoUring,
    /// The most operations in flight; at most the number of slots.
    depth: usize,
    /// Created for the first polled read.
    polled: Option<Polled>,
    poll_queues: Arc<PollQueues>,
    slots: Vec<Option<Operation>>,
    free: Vec<usize>,
    /// Slots with a next call that is not in the submission queue yet.
    ready: VecDeque<usize>,
    waits: WaitPlanner,
}

/// The ring of the poll queues.
struct Polled {
    ring: IoUring,
    /// Operations submitted and not completed.
    in_flight: usize,
}

/// Number of threads of this process that wait for a ring now.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Cores left over if each waiting thread needs one, and another for the kernel's work. At 0, a polling
/// thread would take a core from a thread with work.
fn free_cores() -> usize {
    static CORES: LazyLock<usize> =
        LazyLock::new(|| available_parallelism().map_or(1, NonZero::get));
    CORES.saturating_sub(2 * WAITING.load(Relaxed))
}

/// Counts a waiting thread until it is dropped.
struct WaitingThread;

impl WaitingThread {
    fn begin() -> Self {
        WAITING.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for WaitingThread {
    fn drop(&mut self) {
        let waiting = WAITING.fetch_sub(1, Relaxed);
        base::invariant!(waiting > 0, "a waiting thread is counted once");
    }
}

impl Ring {
    /// A ring for `depth` operations on a device with these poll queues.
    pub(super) fn new(depth: usize, poll_queues: Arc<PollQueues>) -> io::Result<Self> {
        let capacity = Self::capacity_for(depth);
        let entries = u32::try_from(capacity).map_err(io::Error::other)?;
        let ring = IoUring::builder().dontfork().build(entries)?;
        let slots = (0..capacity).map(|_| None).collect();
        let (free, ready) = ((0..capacity).collect(), VecDeque::new());
        let (polled, waits) = (None, WaitPlanner::new());
        Ok(Self { ring, depth, polled, poll_queues, slots, free, ready, waits })
    }

    /// Slots of a ring for `depth` operations: the kernel's rings have powers of two.
    pub(super) const fn capacity_for(depth: usize) -> usize {
        depth.next_power_of_two()
    }

    /// The most operations that fit.
    pub(super) const fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Changes the depth, to at most the capacity.
    pub(super) fn set_depth(&mut self, depth: usize) {
        base::invariant!(depth <= self.capacity(), "a ring has a slot for each operation");
        base::invariant!(self.running() == 0, "the depth of an idle ring changes");
        self.depth = depth;
    }

    /// Waits for all operations in flight. Returns whether that succeeded, so that the ring can be reused.
    pub(super) fn finish(&mut self) -> bool {
        let mut done = Vec::new();
        while self.running() > 0 {
            let running = self.running();
            if self.reap(running, &mut done).is_err() {
                // The kernel may still write to the buffers: they must never be freed.
                Box::leak(Box::new(std::mem::take(&mut self.slots)));
                self.free.clear();
                return false;
            }
            done.clear();
        }
        // After a failed wait, here or in an earlier call, there are no slots, and reads may be in flight.
        let is_idle = self.slots.is_empty() || self.polled_in_flight() == 0;
        base::invariant!(is_idle, "no polled read outlives its slot");
        true
    }

    /// Whether the kernel lets this process use a ring, with the operations that are needed.
    pub(super) fn probe() -> io::Result<()> {
        let ring = IoUring::new(2)?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE];
        if needed.into_iter().all(|code| probe.is_supported(code)) {
            return Ok(());
        }
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Moves the next calls of `ready` slots to the submission queues, in order; direct reads go to the
    /// polled ring if the caller is going to `poll`.
    fn push_ready(&mut self, poll: bool) {
        if poll {
            self.open_polled();
        }
        while let Some(slot) = self.ready.pop_front() {
            let operation = self.slots.get_mut(slot).and_then(Option::as_mut);
            base::invariant!(operation.is_some(), "a ready slot holds an operation");
            let Some(operation) = operation else { continue };
            let is_polled = poll && operation.is_direct_read();
            let polled = self.polled.as_mut().filter(|_| is_polled && self.poll_queues.are_used());
            let fd = types::Fd(operation.handle());
            let (priority, is_read) = (priority(operation.class()), operation.transfer.is_read());
            let (at, bytes) = operation.transfer.rest();
            // A transfer's call is at most 1 GiB.
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let start = bytes.as_mut_ptr();
            let entry = if is_read {
                opcode::Read::new(fd, start, len).offset(at).ioprio(priority).build()
            } else {
                opcode::Write::new(fd, start, len).offset(at).ioprio(priority).build()
            };
            let entry = entry.user_data(slot as u64);
            let ring = match polled {
                Some(polled) => {
                    polled.in_flight += 1;
                    &mut polled.ring
                }
                None => &mut self.ring,
            };
            // SAFETY: the entry's file and bytes belong to the operation in `slots`, which stays there, its
            // heap buffer unmoved and untouched, until this entry's completion.
            let pushed = unsafe { ring.submission().push(&entry) };
            if pushed.is_err() {
                // The queue has an entry for each slot, so it is not full. Kept for the next call.
                self.ready.push_front(slot);
                return;
            }
        }
    }

    /// Creates the polled ring, unless it exists or is refused.
    fn open_polled(&mut self) {
        if self.polled.is_some() || !self.poll_queues.are_used() {
            return;
        }
        let entries = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        match IoUring::builder().dontfork().setup_iopoll().build(entries) {
            Ok(ring) => self.polled = Some(Polled { ring, in_flight: 0 }),
            Err(error) => self.poll_queues.refuse(&error),
        }
    }

    /// Submits the ready operations and waits for `wanted` completions: by interrupt, or as
    /// [`super::strategy`] plans. Fewer may complete.
    fn submit_and_wait(&mut self, wanted: usize) -> io::Result<()> {
        if wanted == 0 {
            self.push_ready(false);
            return self.ring.submit().map(drop);
        }
        let _waiting = WaitingThread::begin();
        let in_flight = self.running();
        let start = Instant::now();
        let plan = self.waits.plan(in_flight, free_cores());
        self.push_ready(plan != Plan::Block);
        if let Plan::Poll { sleep_ns, poll_ns } = plan {
            self.ring.submit()?;
            self.poll()?;
            if self.completed() == 0 {
                let slept_ns = sleep_for(sleep_ns);
                self.poll()?;
                let is_complete = self.completed() > 0;
                self.waits.record_sleep(Slept { slept_ns, is_complete });
            }
            while self.polled_in_flight() == 0
                && self.completed() < wanted
                && nanos(start.elapsed()) < poll_ns
            {
                spin_loop();
            }
        }
        if self.completed() < wanted {
            self.wait(wanted)?;
        }
        if in_flight == 1 && self.completed() > 0 {
            self.waits.record_latency(nanos(start.elapsed()));
        }
        Ok(())
    }

    /// Waits until `wanted` operations are complete. While reads are polled, waits for those only: they are
    /// the fast ones, and only polling finds their completions.
    fn wait(&mut self, wanted: usize) -> io::Result<()> {
        match &mut self.polled {
            Some(polled) if polled.in_flight > 0 => {
                self.ring.submit()?;
                polled.ring.submit_and_wait(wanted.min(polled.in_flight)).map(drop)
            }
            _ => self.ring.submit_and_wait(wanted).map(drop),
        }
    }

    /// Lets the kernel poll once for completions of polled reads.
    fn poll(&mut self) -> io::Result<()> {
        match &mut self.polled {
            Some(polled) if polled.in_flight > 0 => polled.ring.submit().map(drop),
            _ => Ok(()),
        }
    }

    /// Number of completions that can be drained.
    fn completed(&mut self) -> usize {
        let polled = self.polled.as_mut().map_or(0, |polled| polled.ring.completion().len());
        polled + self.ring.completion().len()
    }

    fn polled_in_flight(&self) -> usize {
        self.polled.as_ref().map_or(0, |polled| polled.in_flight)
    }

    /// Drains at most `most` completions.
    fn drain(&mut self, most: usize, out: &mut Vec<Completion>) {
        let Self { ring, polled, poll_queues, slots, free, ready, .. } = self;
        let mut taken = 0;
        let mut take = |entry: &cqueue::Entry, is_polled: bool| {
            let slot = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            let place = slots.get_mut(slot);
            let is_known = place.as_ref().is_some_and(|operation| operation.is_some());
            base::invariant!(is_known, "a completion belongs to an operation in flight");
            let Some(place) = place else { return };
            let Some(mut operation) = place.take() else { return };
            let outcome = usize::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            let is_refused =
                is_polled && outcome.as_ref().is_err_and(|error| poll_queues.is_refusal(error));
            let step = if is_refused { Step::Again } else { operation.advance(outcome) };
            match step {
                Step::Again => {
                    *place = Some(operation);
                    ready.push_back(slot);
                }
                Step::Done(result) => {
                    free.push(slot);
                    out.push(operation.complete(result));
                }
            }
        };
        if let Some(Polled { ring, in_flight }) = polled {
            for entry in ring.completion().take(most) {
                base::invariant!(*in_flight > 0, "a polled completion belongs to a polled read");
                *in_flight = in_flight.saturating_sub(1);
                taken += 1;
                take(&entry, true);
            }
        }
        ring.completion().take(most - taken).for_each(|entry| take(&entry, false));
    }
}

impl IoEngine for Ring {
    fn start(&mut self, operation: Operation) {
        // The queue never starts more operations than its depth, so there is a free slot.
        base::invariant!(
            !self.free.is_empty(),
            "a ring has a slot for each operation of its queue"
        );
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let place = self.slots.get_mut(slot);
        let is_free = place.as_ref().is_some_and(|operation| operation.is_none());
        base::invariant!(is_free, "a free slot is a slot without an operation");
        if let Some(place) = place {
            *place = Some(operation);
            self.ready.push_back(slot);
        }
    }

    fn reap(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        base::invariant!(least <= self.running(), "a reap waits for running operations only");
        let (before, mut interrupts) = (out.len(), 0);
        let most = least.max(self.depth / BATCH_PART).max(1);
        if least == 0 {
            // If polling fails, the next call polls again.
            drop(self.poll());
        }
        loop {
            self.drain(most, out);
            let wanted = least.saturating_sub(out.len() - before).min(self.running());
            if wanted == 0 && self.ready.is_empty() && self.ring.submission().is_empty() {
                return Ok(());
            }
            match self.submit_and_wait(wanted) {
                Ok(()) => {}
                // A full completion queue is drained above; an interrupted wait is repeated.
                Err(error) if is_transient(&error) && interrupts < INTERRUPTS_MAX => {
                    interrupts += 1
                }
                Err(error) => return Err(Error::io("io_uring", "complete", error)),
            }
        }
    }

    /// The ring's own: the kernel reports it as readable while the completion queue is not empty. A read that
    /// is not waited for is never polled ([`Ring::submit_and_wait`]), so its completion appears there.
    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is the ring's, which outlives the borrow of it.
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) })
    }

    fn running(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Sleeps as precisely as the system can. Returns the time slept, nanoseconds.
fn sleep_for(ns: f64) -> f64 {
    let start = Instant::now();
    // By default the kernel may end a sleep 50 us late, to combine wake-ups.
    let slack = current_timer_slack();
    let _kept_as_it_is = set_current_timer_slack(NonZero::new(1));
    sleep(Duration::from_nanos(ns as u64));
    let _kept_as_it_is = set_current_timer_slack(slack.ok().and_then(NonZero::new));
    nanos(start.elapsed())
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

fn is_transient(error: &io::Error) -> bool {
    const EBUSY: i32 = 16;
    error.kind() == io::ErrorKind::Interrupted
        || error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(EBUSY)
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The kernel's I/O priority: the best-effort class from level 0 for the log to 6 for merges, and idle for
/// scrubbing. Schedulers without priorities ignore it.
const fn priority(class: Class) -> u16 {
    const BEST_EFFORT: u16 = 2 << 13;
    const IDLE: u16 = 3 << 13;
    match class {
        Class::Log => BEST_EFFORT,
        Class::Read => BEST_EFFORT | 2,
        Class::Flush => BEST_EFFORT | 4,
        Class::Compaction => BEST_EFFORT | 6,
        Class::Scrub => IDLE,
    }
}

#[cfg(test)]
mod tests;

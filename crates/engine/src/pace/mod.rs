//! Backpressure: writers are delayed in proportion to their bytes, the more the farther flushes and merges
//! are behind.
//!
//! [`delay`] sets the cost of a byte, in nanoseconds. It is computed anew when a memtable grows, when a flush
//! ends and when the compactor measures its debt. While the cost is zero, a write reads one atomic number.
//! Otherwise its bytes join a queue that all writers share ([`Backlog`]), and if more than a millisecond is
//! ahead of it, it sleeps until the queue has drained. So the rate is bounded whatever the number of writers
//! and the length of their writes; a short write waits for about a millisecond and for the bytes that
//! others wrote just before. A delay waits for no event: write stalls, when memory is used up, are those of
//! [`crate::Buffers`].

mod backlog;
mod policy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Counter, Executor, invariant};
use parking_lot::Mutex;

use backlog::Backlog;
use policy::{Behind, Cause, delay};

/// Shorter delays are not slept, nanoseconds: the overhead of a sleep is about a tenth of it.
const SLEEP_MIN: u64 = 1_000_000;
/// The longest single sleep, nanoseconds: background work may catch up meanwhile.
const SLEEP_MAX: u64 = 5_000_000;
/// The longest delay of one write, nanoseconds. At a fiftieth of the rate of flushes, only a write of
/// megabytes to a very slow device reaches it.
const WAIT_MAX: u64 = 60_000_000_000;
/// Weight of one measured flush in the moving average of the rate.
const RATE_SHARE: f64 = 0.3;

/// Delays writers. The write buffers and the compactor report how far they are behind.
#[derive(Debug)]
pub struct Pace {
    behind: Mutex<Behind>,
    /// Delay per byte, in 1/1024 of a nanosecond. Orders nothing: `Relaxed`.
    cost: AtomicU64,
    /// Index of the cause in [`Cause::ALL`]. `Relaxed`.
    cause: AtomicU64,
    backlog: Mutex<Backlog>,
    /// When the running flush began, nanoseconds; 0: none runs.
    flush_began: AtomicU64,
    /// Bytes of memtable that the running flush writes.
    flush_bytes: AtomicU64,
    /// The executor's clock stood still during a sleep, so it is stepped by a simulation: writers no longer
    /// sleep.
    is_clock_stepped: AtomicBool,
    /// Total delays by cause, nanoseconds.
    delayed: [Counter; Cause::ALL.len()],
}

/// Total time that writers were delayed since the store was opened, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delays {
    /// Flushes did not keep up, and the write buffers filled.
    pub buffers: Duration,
    /// Merges did not keep up, and runs piled up.
    pub runs: Duration,
    /// Merges did not keep up, and superseded versions took too much space.
    pub space: Duration,
}

impl Pace {
    /// No delay, and an assumed flush rate of 100 MB per second.
    pub(crate) fn new() -> Arc<Self> {
        let behind = Behind { buffers: 0.0, runs: 0.0, space: 1.0, flush_rate: 100e6 };
        Arc::new(Self {
            behind: Mutex::new(behind),
            cost: AtomicU64::new(0),
            cause: AtomicU64::new(0),
            backlog: Mutex::default(),
            flush_began: AtomicU64::new(0),
            flush_bytes: AtomicU64::new(0),
            is_clock_stepped: AtomicBool::new(false),
            delayed: Default::default(),
        })
    }

    /// Changes the inputs of [`delay`] and puts its result in force.
    fn change(&self, change: impl FnOnce(&mut Behind)) {
        let mut behind = self.behind.lock();
        change(&mut behind);
        let (cost, cause) = delay(&behind);
        invariant!(cost.is_finite() && cost >= 0.0, "a delay is finite");
        self.cost.store((cost * 1024.0) as u64, Ordering::Relaxed);
        self.cause.store(cause as u64, Ordering::Relaxed);
    }

    /// Sets the used share of the write buffers.
    pub(crate) fn set_buffers(&self, share: f64) {
        self.change(|behind| behind.buffers = share);
    }

    /// Sets the compaction debt of the worst tree: the runs of its fullest level over the fanout, and its
    /// stored bytes over the most that it should have.
    pub fn set_trees(&self, runs: f64, space: f64) {
        self.change(|behind| (behind.runs, behind.space) = (runs, space));
    }

    /// The flush of a memtable of `bytes` begins at `now`. One flush runs at a time.
    pub(crate) fn flush_began(&self, now: Duration, bytes: u64) {
        self.flush_bytes.store(bytes, Ordering::Relaxed);
        self.flush_began.store(nanos(now).max(1), Ordering::Relaxed);
    }

    /// The flush that began last succeeded at `now`: measures its rate.
    pub(crate) fn flush_ended(&self, now: Duration) {
        let bytes = self.flush_bytes.load(Ordering::Relaxed);
        let began = self.flush_began.swap(0, Ordering::Relaxed);
        let took = nanos(now).saturating_sub(began);
        // A short memtable or a stepped clock gives no useful rate.
        if began == 0 || took == 0 || bytes < 1 << 20 {
            return;
        }
        let rate = bytes as f64 / (took as f64 / 1e9);
        self.change(|behind| behind.flush_rate += (rate - behind.flush_rate) * RATE_SHARE);
    }

    /// The delay per byte, nanoseconds. `None` if there is none.
    fn cost(&self) -> Option<f64> {
        match self.cost.load(Ordering::Relaxed) {
            0 => None,
            cost => Some(cost as f64 / 1024.0),
        }
    }

    /// Delays the calling writer for `bytes`. Returns at once if background work keeps up.
    pub(crate) fn delay_write(&self, bytes: usize, executor: &dyn Executor) {
        let Some(cost) = self.cost() else { return };
        if self.is_clock_stepped.load(Ordering::Relaxed) {
            return;
        }
        let start = nanos(executor.clock().monotonic());
        let (position, mut left) = {
            let mut backlog = self.backlog.lock();
            let position = backlog.join(bytes, start, cost);
            (position, backlog.left(position, start, cost))
        };
        if left < SLEEP_MIN || executor.help() {
            return;
        }
        let counter = self.delayed.get(self.cause_index());
        let mut now = start;
        while left > 0 && now - start < WAIT_MAX {
            std::thread::sleep(Duration::from_nanos(left.min(SLEEP_MAX)));
            now = nanos(executor.clock().monotonic()).max(start);
            if now == start {
                self.is_clock_stepped.store(true, Ordering::Relaxed);
                break;
            }
            let mut backlog = self.backlog.lock();
            match self.cost() {
                Some(cost) => left = backlog.left(position, now, cost),
                None => {
                    backlog.clear();
                    break;
                }
            }
        }
        if let Some(counter) = counter {
            counter.add(now - start);
        }
    }

    /// As [`Pace::delay_write`], without sleeping: returns the time after which the writer should try again,
    /// and counts it as its delay; `None` if it may write now: then [`Pace::join`] counts its bytes once it
    /// is admitted.
    pub(crate) fn delay_left(&self, executor: &dyn Executor) -> Option<Duration> {
        let cost = self.cost()?;
        if self.is_clock_stepped.load(Ordering::Relaxed) {
            return None;
        }
        let now = nanos(executor.clock().monotonic());
        // The bytes ahead must be drained first; the next writer waits for this one's own.
        let left = self.backlog.lock().left_of_all(now, cost);
        if left < SLEEP_MIN {
            return None;
        }
        let wait = left.min(SLEEP_MAX);
        if let Some(counter) = self.delayed.get(self.cause_index()) {
            counter.add(wait);
        }
        Some(Duration::from_nanos(wait))
    }

    /// Adds the bytes of a write that was admitted without waiting to the backlog.
    pub(crate) fn join(&self, bytes: usize, executor: &dyn Executor) {
        let Some(cost) = self.cost() else { return };
        if !self.is_clock_stepped.load(Ordering::Relaxed) {
            let now = nanos(executor.clock().monotonic());
            self.backlog.lock().join(bytes, now, cost);
        }
    }

    /// Index of the present cause in [`Cause::ALL`].
    fn cause_index(&self) -> usize {
        let index = self.cause.load(Ordering::Relaxed) as usize;
        invariant!(index < Cause::ALL.len(), "a stored cause is one of all causes");
        index
    }

    /// The reason why writers are delayed now. `None` if they are not.
    pub(crate) fn cause(&self) -> Option<&'static str> {
        let is_delayed = self.cost.load(Ordering::Relaxed) > 0;
        let cause = Cause::ALL.get(self.cause_index()).filter(|_| is_delayed);
        cause.map(|cause| cause.name())
    }

    /// Total delays by cause.
    #[must_use]
    pub fn delays(&self) -> Delays {
        let [buffers, runs, space] =
            Cause::ALL.map(|cause| self.delayed.get(cause as usize).map_or(0, Counter::get));
        Delays {
            buffers: Duration::from_nanos(buffers),
            runs: Duration::from_nanos(runs),
            space: Duration::from_nanos(space),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{SystemClock, Threads};

    #[test]
    fn writers_share_one_delay_and_it_is_counted() {
        let executor = Threads::start(1, Arc::new(SystemClock::new())).unwrap();
        let pace = Pace::new();
        pace.delay_write(1 << 30, &executor);
        assert_eq!(pace.delays(), Delays::default(), "background work keeps up");
        pace.set_buffers(0.8);
        let start = executor.clock().monotonic();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                // 4 MB in all at 100 MB per second: 40 ms, whatever the number of writers.
                scope.spawn(|| (0..1000).for_each(|_| pace.delay_write(1000, &executor)));
            }
        });
        let took = executor.clock().monotonic().saturating_sub(start);
        assert!(took >= Duration::from_millis(30), "{took:?}");
        // Long writes are delayed for all of their bytes: 8 MB take 80 ms.
        let start = executor.clock().monotonic();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| pace.delay_write(1_000_000, &executor));
            }
        });
        let took = executor.clock().monotonic().saturating_sub(start);
        assert!(took >= Duration::from_millis(75), "{took:?}");
        // One write's delay is counted in full. Many writes may sleep less: time passes between them.
        let before = pace.delays().buffers;
        pace.delay_write(4_000_000, &executor);
        let delays = pace.delays();
        assert!(delays.buffers >= before + Duration::from_millis(35), "{before:?} {delays:?}");
        assert_eq!((delays.runs, delays.space), Default::default());
        pace.set_buffers(0.3);
        pace.set_trees(4.0, 1.0);
        pace.delay_write(10_000_000, &executor);
        assert!(pace.delays().runs > Duration::ZERO);
    }

    #[test]
    fn slower_flushes_raise_the_cost_of_a_byte() {
        let pace = Pace::new();
        pace.set_buffers(0.8);
        let before = pace.cost.load(Ordering::Relaxed);
        for second in 1..20 {
            pace.flush_began(Duration::from_secs(2 * second), 10 << 20);
            pace.flush_ended(Duration::from_secs(2 * second + 1));
        }
        let after = pace.cost.load(Ordering::Relaxed);
        // From the assumed 100 MB per second to the measured ten.
        assert!(after > before * 9 && after < before * 10, "{before} {after}");
        pace.flush_ended(Duration::from_secs(90));
        assert_eq!(pace.cost.load(Ordering::Relaxed), after, "no flush was running");
    }
}

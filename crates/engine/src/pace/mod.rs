//! The pace of writers: each pays for its bytes with time, as much as flushes and merges are behind.
//!
//! [`delay`] says what a byte costs; it changes when a memtable grows, a flush ends or a compaction
//! looked at a tree. A write that costs nothing reads one atomic number. The bytes of others join a line
//! that all writers share ([`Backlog`]), and who has more than a millisecond of it before it naps until
//! the line has moved on: so the rate is bounded whatever the number of writers and the length of their
//! writes, and a short write waits for a millisecond and for what others brought just then. Nobody waits
//! here for anything: what happens where memory is really used up is the write buffers' business.

mod backlog;
mod policy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Counter, Executor};
use parking_lot::Mutex;

use backlog::Backlog;
use policy::{Behind, Cause, delay};

/// Less is not slept: a sleep costs about a tenth of it.
const SLEEP_MIN: u64 = 1_000_000;
/// A nap is no longer, nanoseconds: what is behind may catch up meanwhile.
const NAP_MAX: u64 = 5_000_000;
/// A write that waited for so long goes, nanoseconds. At a fiftieth of what flushes do it is one of
/// megabytes, to a device that hardly moves.
const WAIT_MAX: u64 = 60_000_000_000;
/// How much one measured flush changes the known rate.
const RATE_SHARE: f64 = 0.3;

/// Delays writers; shared by the write buffers, which tell how full they are, and the compactor.
#[derive(Debug)]
pub struct Pace {
    behind: Mutex<Behind>,
    /// What one byte costs, in 1/1024 of a nanosecond, and the cause's number. Only paces: `Relaxed`.
    cost: AtomicU64,
    cause: AtomicU64,
    /// What writers brought and time has not paid for.
    backlog: Mutex<Backlog>,
    /// When the flush under way began, nanoseconds, and the bytes it will give back; 0: none is.
    flush_began: AtomicU64,
    flush_bytes: AtomicU64,
    /// The executor's clock stood still in a sleep: it is stepped, and nobody need wait for it.
    still: AtomicBool,
    delayed: [Counter; Cause::ALL.len()],
}

/// How long writers were delayed, all together, since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delays {
    /// Because flushes did not keep up and the write buffers filled.
    pub buffers: Duration,
    /// Because merges did not keep up and runs piled up.
    pub runs: Duration,
    /// Because merges did not keep up and superseded versions took too much space.
    pub space: Duration,
}

impl Pace {
    pub fn new() -> Arc<Self> {
        let behind = Behind { buffers: 0.0, runs: 0.0, space: 1.0, flush_rate: 100e6 };
        Arc::new(Self {
            behind: Mutex::new(behind),
            cost: AtomicU64::new(0),
            cause: AtomicU64::new(0),
            backlog: Mutex::default(),
            flush_began: AtomicU64::new(0),
            flush_bytes: AtomicU64::new(0),
            still: AtomicBool::new(false),
            delayed: Default::default(),
        })
    }

    fn change(&self, change: impl FnOnce(&mut Behind)) {
        let mut behind = self.behind.lock();
        change(&mut behind);
        let (cost, cause) = delay(&behind);
        self.cost.store((cost * 1024.0) as u64, Ordering::Relaxed);
        self.cause.store(cause as u64, Ordering::Relaxed);
    }

    /// Memtables take this part of the write buffers.
    pub fn set_buffers(&self, part: f64) {
        self.change(|behind| behind.buffers = part);
    }

    /// The worst of all trees: how full its fullest level is, and the space it takes over the most it
    /// should.
    pub fn set_trees(&self, runs: f64, space: f64) {
        self.change(|behind| (behind.runs, behind.space) = (runs, space));
    }

    /// A flush of a memtable of `bytes` begins at `now`. There is one at a time.
    pub fn flush_began(&self, now: Duration, bytes: u64) {
        self.flush_bytes.store(bytes, Ordering::Relaxed);
        self.flush_began.store(nanos(now).max(1), Ordering::Relaxed);
    }

    /// The flush that began last ended well at `now`.
    pub fn flush_ended(&self, now: Duration) {
        let bytes = self.flush_bytes.load(Ordering::Relaxed);
        let began = self.flush_began.swap(0, Ordering::Relaxed);
        let took = nanos(now).saturating_sub(began);
        // A short memtable or a clock that stands still measures nothing.
        if began == 0 || took == 0 || bytes < 1 << 20 {
            return;
        }
        let rate = bytes as f64 / (took as f64 / 1e9);
        self.change(|behind| behind.flush_rate += (rate - behind.flush_rate) * RATE_SHARE);
    }

    /// What a byte costs, nanoseconds; `None` where nothing is behind.
    fn cost(&self) -> Option<f64> {
        match self.cost.load(Ordering::Relaxed) {
            0 => None,
            cost => Some(cost as f64 / 1024.0),
        }
    }

    /// Pays for a write of `bytes` with time.
    pub fn pay(&self, bytes: usize, executor: &dyn Executor) {
        let Some(cost) = self.cost() else { return };
        if self.still.load(Ordering::Relaxed) {
            return;
        }
        let start = nanos(executor.clock().monotonic());
        let (place, mut left) = {
            let mut backlog = self.backlog.lock();
            let place = backlog.join(bytes, start, cost);
            (place, backlog.left(place, start, cost))
        };
        if left < SLEEP_MIN || executor.help() {
            return;
        }
        let cause = usize::try_from(self.cause.load(Ordering::Relaxed)).unwrap_or(0);
        let mut now = start;
        while left > 0 && now - start < WAIT_MAX {
            std::thread::sleep(Duration::from_nanos(left.min(NAP_MAX)));
            now = nanos(executor.clock().monotonic()).max(start);
            if now == start {
                self.still.store(true, Ordering::Relaxed);
                break;
            }
            let mut backlog = self.backlog.lock();
            match self.cost() {
                Some(cost) => left = backlog.left(place, now, cost),
                None => {
                    backlog.clear();
                    break;
                }
            }
        }
        if let Some(counter) = self.delayed.get(cause) {
            counter.add(now - start);
        }
    }

    /// Why writers are delayed now, if they are.
    pub fn cause(&self) -> Option<&'static str> {
        let cause = usize::try_from(self.cause.load(Ordering::Relaxed)).ok()?;
        let is_delayed = self.cost.load(Ordering::Relaxed) > 0;
        Cause::ALL.get(cause).filter(|_| is_delayed).map(|cause| cause.name())
    }

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
    fn writers_pay_together_and_are_counted() {
        let executor = Threads::start(1, Arc::new(SystemClock::new())).unwrap();
        let pace = Pace::new();
        pace.pay(1 << 30, &executor);
        assert_eq!(pace.delays(), Delays::default(), "nothing is behind");
        pace.set_buffers(0.8);
        let start = executor.clock().monotonic();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                // 4 MB in all at 100 MB a second: 40 ms, whatever the number of writers.
                scope.spawn(|| (0..1000).for_each(|_| pace.pay(1000, &executor)));
            }
        });
        let took = executor.clock().monotonic().saturating_sub(start);
        assert!(took >= Duration::from_millis(30), "{took:?}");
        // Long writes pay for all of their bytes, too: 8 MB take 80 ms.
        let start = executor.clock().monotonic();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| pace.pay(1_000_000, &executor));
            }
        });
        let took = executor.clock().monotonic().saturating_sub(start);
        assert!(took >= Duration::from_millis(75), "{took:?}");
        // What one waits is counted. Many may wait less than they pay for: time passes between their writes.
        let before = pace.delays().buffers;
        pace.pay(4_000_000, &executor);
        let delays = pace.delays();
        assert!(delays.buffers >= before + Duration::from_millis(35), "{before:?} {delays:?}");
        assert_eq!((delays.runs, delays.space), Default::default());
        pace.set_buffers(0.3);
        pace.set_trees(4.0, 1.0);
        pace.pay(10_000_000, &executor);
        assert!(pace.delays().runs > Duration::ZERO);
    }

    #[test]
    fn a_flush_that_takes_longer_slows_writers() {
        let pace = Pace::new();
        pace.set_buffers(0.8);
        let before = pace.cost.load(Ordering::Relaxed);
        for second in 1..20 {
            pace.flush_began(Duration::from_secs(2 * second), 10 << 20);
            pace.flush_ended(Duration::from_secs(2 * second + 1));
        }
        let after = pace.cost.load(Ordering::Relaxed);
        // From the 100 MB a second that were assumed to the ten that were seen.
        assert!(after > before * 9 && after < before * 10, "{before} {after}");
        pace.flush_ended(Duration::from_secs(90));
        assert_eq!(pace.cost.load(Ordering::Relaxed), after, "none was under way");
    }
}

//! Progress of a run while it lasts, and figures for each interval of it.
//!
//! Concurrency: each thread counts on its own cache line. The watching thread reads the counters, and swaps
//! the worst latency of the interval with zero.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use base::invariant;
use serde::Serialize;

use super::Name;
use crate::figures::ratio;
use crate::store::{Counters, Store};

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Operations that ended; in a replay, the trace's own unit.
    pub done: u64,
    /// All operations of the run, if that is known in advance.
    pub total: Option<u64>,
    /// Time since the start of the run.
    pub elapsed: Duration,
}

/// An event of a run, for the caller.
#[derive(Clone, Debug)]
pub enum Event {
    /// Progress, several times a second.
    Tick(Tick),
    /// The figures of the last interval, as often as the options ask for.
    Interval(Interval),
}

/// The figures of one interval of a run. Field names are an interface that scripts parse.
#[derive(Clone, Debug, Serialize)]
pub struct Interval {
    /// The workload.
    pub bench: Name,
    /// Its end, seconds since the start of the run. No other kind of line has this field.
    pub at_seconds: f64,
    /// Its length, seconds.
    pub seconds: f64,
    /// Operations of all threads that ended in it.
    pub ops: u64,
    /// Operations per second.
    pub ops_per_sec: f64,
    /// The longest operation that ended in it, microseconds.
    pub worst_us: f64,
    /// Write stalls and delays in it, seconds, summed over writers.
    pub stall_seconds: f64,
    /// `stall_seconds` by reason.
    pub stalls: BTreeMap<&'static str, f64>,
    /// Bytes written to the device.
    pub device_write_bytes: u64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// Device space used at its end, bytes.
    pub space_bytes: u64,
    /// Memory charged at its end, bytes.
    pub memory_bytes: u64,
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<15} : at {:.1} s {:.0} ops/sec, worst {:.0} us, stalled {:.3} s, written {:.1} MB, \
             space {:.1} MB",
            self.bench,
            self.at_seconds,
            self.ops_per_sec,
            self.worst_us,
            self.stall_seconds,
            self.device_write_bytes as f64 / 1e6,
            self.space_bytes as f64 / 1e6
        )
    }
}

/// One thread's progress, on cache lines of its own because the thread writes it after every operation.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Progress {
    ops: AtomicU64,
    worst_nanos: AtomicU64,
}

impl Progress {
    #[inline]
    pub(super) fn count(&self, ops: u64, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if nanos > self.worst_nanos.load(Relaxed) {
            self.worst_nanos.fetch_max(nanos, Relaxed);
        }
        // The store comes last: a reader that sees the operation counted also sees its worst latency and
        // effects.
        self.ops.store(ops, Release);
    }

    pub(super) fn ops(&self) -> u64 {
        self.ops.load(Acquire)
    }
}

/// Cuts a run into intervals and takes their figures.
pub(super) struct Intervals<'a> {
    name: Name,
    store: &'a dyn Store,
    threads: &'a [Progress],
    every: Duration,
    began: Duration,
    ends: Duration,
    ops: u64,
    counters: Counters,
}

impl<'a> Intervals<'a> {
    pub(super) fn new(
        name: Name,
        store: &'a dyn Store,
        threads: &'a [Progress],
        every: Duration,
    ) -> Self {
        let counters = store.counters();
        Self { name, store, threads, every, began: Duration::ZERO, ends: every, ops: 0, counters }
    }

    /// The time left of the current interval.
    pub(super) fn left(&self, elapsed: Duration) -> Duration {
        self.ends.saturating_sub(elapsed)
    }

    /// The interval that ended by `elapsed`, if one did.
    pub(super) fn take(&mut self, elapsed: Duration) -> Option<Interval> {
        (elapsed >= self.ends).then(|| self.cut(elapsed))
    }

    /// The last, incomplete interval of the run; `None` if no operation ended in it.
    pub(super) fn last(&mut self, elapsed: Duration) -> Option<Interval> {
        Some(self.cut(elapsed)).filter(|interval| interval.ops > 0)
    }

    fn cut(&mut self, elapsed: Duration) -> Interval {
        // Operations are read before the counters, so the counters include every effect of an operation
        // counted here. A last interval without operations has no effects of any, so it can be dropped.
        let ops: u64 = self.threads.iter().map(Progress::ops).sum();
        invariant!(ops >= self.ops, "the count of operations only grows");
        let counters = self.store.counters();
        let since = counters.since(&self.counters);
        let worst = self.threads.iter().map(|thread| thread.worst_nanos.swap(0, Relaxed)).max();
        let seconds = elapsed.saturating_sub(self.began).as_secs_f64();
        let device = since.total();
        let interval = Interval {
            bench: self.name,
            at_seconds: elapsed.as_secs_f64(),
            seconds,
            ops: ops - self.ops,
            ops_per_sec: ratio((ops - self.ops) as f64, seconds).unwrap_or_default(),
            worst_us: worst.unwrap_or_default() as f64 / 1000.0,
            stall_seconds: since.stall().as_secs_f64(),
            stalls: since.stalls.iter().map(|(name, time)| (*name, time.as_secs_f64())).collect(),
            device_write_bytes: device.write_bytes,
            device_read_bytes: device.read_bytes,
            space_bytes: counters.space_bytes,
            memory_bytes: counters.memory_bytes,
        };
        self.began = elapsed;
        while self.ends <= elapsed && !self.every.is_zero() {
            self.ends = self.ends.saturating_add(self.every);
        }
        self.ops = ops;
        self.counters = counters;
        interval
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Direction, ScanVisitor};
    use base::Result;

    /// A store whose one thread stalls for a millisecond in each operation. Just after the second reading of
    /// the counters the thread does one more operation: the rates must not count it against that reading.
    struct Racing<'a> {
        thread: &'a Progress,
        asked: AtomicU64,
    }

    impl Store for Racing<'_> {
        fn counters(&self) -> Counters {
            let stall = Duration::from_millis(self.thread.ops());
            if self.asked.fetch_add(1, Relaxed) == 1 {
                self.thread.count(self.thread.ops() + 1, Duration::from_millis(1));
            }
            Counters { stalls: BTreeMap::from([("test", stall)]), ..Counters::default() }
        }

        fn put(&self, _: &[u8], _: &[u8], _: bool) -> Result<()> {
            unreachable!()
        }

        fn get(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> Result<bool> {
            unreachable!()
        }

        fn delete(&self, _: &[u8], _: bool) -> Result<()> {
            unreachable!()
        }

        fn scan(
            &self,
            _: Option<&[u8]>,
            _: Direction,
            _: usize,
            _: &mut ScanVisitor<'_>,
        ) -> Result<usize> {
            unreachable!()
        }

        fn flush(&self) -> Result<()> {
            unreachable!()
        }

        fn settle(&self) -> Result<()> {
            unreachable!()
        }

        fn compact(&self) -> Result<()> {
            unreachable!()
        }
    }

    /// An operation that ends while an interval is cut belongs to the next one, with all of its effects.
    #[test]
    fn intervals_lose_no_operation_between_them() {
        let second = Duration::from_secs(1);
        let threads = [Progress::default()];
        let store = Racing { thread: &threads[0], asked: AtomicU64::new(0) };
        let mut intervals = Intervals::new(Name::Overwrite, &store, &threads, second);
        threads[0].count(5, Duration::from_millis(3));
        let first = intervals.take(second).unwrap();
        let last = intervals.last(second).unwrap();
        assert_eq!((first.ops, last.ops), (5, 1));
        assert!((first.stall_seconds + last.stall_seconds - 0.006).abs() < 1e-9);
        assert!((first.worst_us - 3000.0).abs() < 1.0, "{first:?}");
    }
}

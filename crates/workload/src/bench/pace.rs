//! One thread's clock and counters: an operation ends where the next begins, so that one clock
//! read serves both. At a given rate the next begins at its time on the schedule instead, and its
//! latency is counted from there, however late the last one ended: a store that stalls is charged
//! for every operation it kept waiting.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use super::watch::Progress;
use super::{Kind, Run};
use crate::figures::Tally;

/// The longest sleep without a look at the stop flag.
const NAP: Duration = Duration::from_millis(50);

/// How long before its time a thread stops sleeping: a sleeper wakes up late by about this.
const WAKE: Duration = Duration::from_micros(80);

pub(super) struct Pace<'a> {
    run: &'a Run<'a>,
    /// When the last operation ended.
    last: Duration,
    /// When the current one began, or was to begin.
    begins: Duration,
    deadline: Duration,
    schedule: Option<Schedule>,
    progress: Option<&'a Progress>,
    pub(super) tally: Tally,
}

/// When operations are to begin, evenly spaced.
struct Schedule {
    first: Duration,
    nanos_apart: f64,
    count: u64,
}

impl Schedule {
    /// When the operation behind `count` more of them is to begin.
    fn next(&mut self, count: u64) -> Duration {
        self.count += count;
        let offset = Duration::from_nanos((self.count as f64 * self.nanos_apart) as u64);
        self.first.saturating_add(offset)
    }
}

impl<'a> Pace<'a> {
    /// Starts the clock of `thread`, which does its part of `rate` operations per second, or all it
    /// can.
    pub(super) fn start(run: &'a Run<'a>, thread: usize, tally: Tally) -> Self {
        let now = run.clock.monotonic();
        let deadline = run.deadline().map_or(Duration::MAX, |bound| now.saturating_add(bound));
        let schedule = run.rate(thread).map(|(rate, turn, turns)| {
            let nanos_apart = turns as f64 * 1e9 / rate;
            // Threads take turns, so that the whole load is even too.
            let first = Duration::from_nanos((nanos_apart * turn as f64 / turns as f64) as u64);
            Schedule { first: now.saturating_add(first), nanos_apart, count: 0 }
        });
        let progress = run.progress(thread);
        let mut pace = Self { run, last: now, begins: now, deadline, schedule, progress, tally };
        if let Some(first) = pace.schedule.as_ref().map(|schedule| schedule.first) {
            pace.wait_for(first);
        }
        pace
    }

    /// When the last operation ended.
    pub(super) const fn now(&self) -> Duration {
        self.last
    }

    /// Ends an operation that began when the last one ended; says whether to go on.
    #[inline]
    pub(super) fn lap(&mut self) -> bool {
        self.lap_since(self.begins)
    }

    /// As [`Pace::lap`], counted by its kind too.
    #[inline]
    pub(super) fn lap_as(&mut self, kind: Kind) -> bool {
        let began = self.begins;
        let go_on = self.lap_since(began);
        self.tally.count_kind(kind, self.last.saturating_sub(began));
        go_on
    }

    /// Ends an operation that began at `began`; says whether to go on.
    #[inline]
    pub(super) fn lap_since(&mut self, began: Duration) -> bool {
        self.end(began, 1)
    }

    /// Ends `count` operations that were one to the store; says whether to go on.
    #[inline]
    pub(super) fn lap_many(&mut self, count: u64) -> bool {
        self.end(self.begins, count)
    }

    #[inline]
    fn end(&mut self, began: Duration, count: u64) -> bool {
        self.last = self.run.clock.monotonic();
        let took = self.last.saturating_sub(began);
        self.tally.latencies.record_many(took, count);
        self.tally.ops += count;
        if let Some(progress) = self.progress {
            progress.count(self.tally.ops, took);
        }
        self.begins = self.last;
        if let Some(next) = self.schedule.as_mut().map(|schedule| schedule.next(count)) {
            self.wait_for(next);
        }
        self.last < self.deadline && !self.run.stop.load(Relaxed)
    }

    /// Waits until `time`, unless the run ends before.
    fn wait_for(&mut self, time: Duration) {
        self.begins = time;
        let until = time.min(self.deadline);
        loop {
            let left = until.saturating_sub(self.run.clock.monotonic());
            if left.is_zero() || self.run.stop.load(Relaxed) {
                break;
            }
            match left.checked_sub(WAKE) {
                Some(long) if !long.is_zero() => thread::sleep(long.min(NAP)),
                _ => thread::yield_now(),
            }
        }
        if until < time {
            // The operation would begin after the end.
            self.last = self.last.max(until);
        }
    }

    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }
}

//! One thread's clock and counters: an operation ends where the next begins, so that one clock
//! read serves both. At a given rate the next begins at its time on the schedule instead, and its
//! latency is counted from there, however late the last one ended: a store that stalls is charged
//! for every operation it kept waiting. Who waits sleeps: looking at the clock until a time that is
//! microseconds away would take a core from the store.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use super::watch::Progress;
use super::{Kind, Run};
use crate::figures::Tally;

/// The longest sleep without a look at the stop flag.
const NAP: Duration = Duration::from_millis(50);

/// A sleeper wakes up late by about this, which is not charged to the store; what it is later than
/// that is.
const WAKE: Duration = Duration::from_micros(80);

/// Operations that lie closer than this begin in bunches as far apart: a sleep for each would cost
/// more than they do.
const BUNCH: Duration = Duration::from_millis(1);

pub(super) struct Pace<'a> {
    run: &'a Run<'a>,
    /// When the last operation ended.
    last: Duration,
    /// When the current one began, or was to begin.
    begins: Duration,
    deadline: Duration,
    /// When the last sleep ended, at most [`WAKE`] behind its time; no operation that was due by then begins
    /// before.
    woke: Duration,
    schedule: Option<Schedule>,
    progress: Option<&'a Progress>,
    pub(super) tally: Tally,
}

/// When operations are to begin: evenly spaced, or in bunches that are.
struct Schedule {
    first: Duration,
    nanos_apart: f64,
    count: u64,
}

impl Schedule {
    /// The part of `rate` operations a second, from `now` on, of which each of `turns` threads does
    /// as many: they take turns, so that the whole load is even too.
    fn new(now: Duration, (rate, turn, turns): (f64, usize, usize)) -> Self {
        let nanos_apart = turns as f64 * 1e9 / rate;
        let bunches_apart = nanos_apart.max(BUNCH.as_nanos() as f64);
        let first = Duration::from_nanos((bunches_apart * turn as f64 / turns as f64) as u64);
        Self { first: now.saturating_add(first), nanos_apart, count: 0 }
    }

    /// When the operation behind `count` more of them is to begin.
    fn next(&mut self, count: u64) -> Duration {
        self.count += count;
        let mut nanos = (self.count as f64 * self.nanos_apart) as u64;
        let bunch = BUNCH.as_nanos() as u64;
        if self.nanos_apart < bunch as f64 {
            nanos = nanos.div_ceil(bunch).saturating_mul(bunch);
        }
        self.first.saturating_add(Duration::from_nanos(nanos))
    }
}

impl<'a> Pace<'a> {
    /// Starts the clock of `thread`, which does its part of `rate` operations per second, or all it
    /// can.
    pub(super) fn start(run: &'a Run<'a>, thread: usize, tally: Tally) -> Self {
        let now = run.clock.monotonic();
        let deadline = run.deadline().map_or(Duration::MAX, |bound| now.saturating_add(bound));
        let schedule = run.rate(thread).map(|part| Schedule::new(now, part));
        let progress = run.progress(thread);
        let (last, begins, woke) = (now, now, now);
        let mut pace = Self { run, last, begins, deadline, woke, schedule, progress, tally };
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
        let until = time.min(self.deadline);
        let mut now = self.run.clock.monotonic();
        if now < until {
            while now < until && !self.run.stop.load(Relaxed) {
                thread::sleep(until.saturating_sub(now).min(NAP));
                now = self.run.clock.monotonic();
            }
            self.woke = now.min(time.saturating_add(WAKE));
        }
        self.begins = time.max(self.woke);
        if until < time {
            // The operation would begin after the end.
            self.last = self.last.max(until);
        }
    }

    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of the first `count` operations, and how far they are apart in the mean.
    fn times(rate: f64, turn: usize, count: usize) -> Vec<Duration> {
        let mut schedule = Schedule::new(Duration::ZERO, (rate, turn, 4));
        let mut times = vec![schedule.first];
        times.extend((1..count).map(|_| schedule.next(1)));
        times
    }

    #[test]
    fn what_lies_close_begins_in_bunches_and_the_rate_is_kept() {
        for rate in [1000.0, 3999.0, 4001.0, 80_000.0, 3_000_000.0] {
            for turn in 0..4 {
                let times = times(rate, turn, 10_000);
                let apart = 4.0 / rate;
                for (number, time) in times.iter().enumerate() {
                    let even = times[0].as_secs_f64() + number as f64 * apart;
                    let late = time.as_secs_f64() - even;
                    let most = if apart < 1e-3 { 1e-3 } else { 1e-8 };
                    assert!((-1e-8..=most).contains(&late), "{rate} {turn}: {number} {late}");
                }
                let waits = times.windows(2).filter(|pair| pair[0] < pair[1]);
                assert!(waits.into_iter().all(|pair| pair[1] - pair[0] >= BUNCH), "{rate} {turn}");
            }
            // They take turns.
            assert!(times(rate, 1, 1)[0] - times(rate, 0, 1)[0] >= BUNCH / 5, "{rate}");
        }
    }
}

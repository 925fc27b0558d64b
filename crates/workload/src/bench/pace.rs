//! One thread's clock, schedule and counters.
//!
//! At full speed, an operation ends where the next one begins, so one clock read serves both. At a given
//! rate, an operation begins at its time on the schedule, and its latency counts from that time however late
//! the operation before it ended: a stalled store is charged for every operation that it delays (no
//! coordinated omission). A thread that waits sleeps, because spinning for microseconds would take a core
//! from the store.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use base::invariant;

use super::Kind;
use super::run::{RateShare, Run};
use super::watch::Progress;
use crate::figures::Tally;

/// The longest sleep between two looks at the stop flag.
const NAP: Duration = Duration::from_millis(50);

/// A sleeping thread wakes up about this late. This much is not charged to the store; a longer delay is.
const WAKE: Duration = Duration::from_micros(80);

/// Operations closer together than this begin in groups this far apart: a sleep per operation would cost more
/// than the operation.
const BUNCH: Duration = Duration::from_millis(1);

pub(super) struct Pace<'a> {
    run: &'a Run<'a>,
    /// End of the last operation.
    last: Duration,
    /// Actual or scheduled begin of the current operation.
    begins: Duration,
    deadline: Duration,
    /// End of the last sleep, at most [`WAKE`] after the time it was for. No operation that was due by then
    /// begins earlier.
    woke: Duration,
    schedule: Option<Schedule>,
    progress: Option<&'a Progress>,
    pub(super) tally: Tally,
}

/// The times at which operations begin: evenly spaced, or in evenly spaced groups.
struct Schedule {
    first: Duration,
    nanos_apart: f64,
    count: u64,
}

impl Schedule {
    /// The schedule of one of `turns` threads that offer a rate together, from `now` on. Each does an equal
    /// share, and they rotate, so that the sum of their loads is even too.
    fn new(now: Duration, share: RateShare) -> Self {
        let RateShare { ops_per_sec, turn, turns } = share;
        let nanos_apart = turns as f64 * 1e9 / ops_per_sec;
        let bunches_apart = nanos_apart.max(BUNCH.as_nanos() as f64);
        let first = Duration::from_nanos((bunches_apart * turn as f64 / turns as f64) as u64);
        Self { first: now.saturating_add(first), nanos_apart, count: 0 }
    }

    /// The begin of the next operation, after `count` more have ended.
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
    /// Starts the clock of `thread`, which follows its share of the offered rate or runs at full speed.
    pub(super) fn start(run: &'a Run<'a>, thread: usize, tally: Tally) -> Self {
        let now = run.clock.monotonic();
        let deadline = run.deadline().map_or(Duration::MAX, |bound| now.saturating_add(bound));
        let schedule = run.rate(thread).map(|share| Schedule::new(now, share));
        let progress = run.progress(thread);
        invariant!(progress.is_some(), "every thread of a run has its progress");
        let (last, begins, woke) = (now, now, now);
        let mut pace = Self { run, last, begins, deadline, woke, schedule, progress, tally };
        if let Some(first) = pace.schedule.as_ref().map(|schedule| schedule.first) {
            pace.wait_for(first);
        }
        pace
    }

    /// End of the last operation.
    pub(super) const fn now(&self) -> Duration {
        self.last
    }

    /// Ends an operation that began at the end of the last one or at its time. Returns whether to go on.
    #[inline]
    pub(super) fn lap(&mut self) -> bool {
        self.lap_since(self.begins)
    }

    /// As [`Pace::lap`], and counts the operation by its kind.
    #[inline]
    pub(super) fn lap_as(&mut self, kind: Kind) -> bool {
        let began = self.begins;
        let go_on = self.lap_since(began);
        self.tally.count_kind(kind, self.last.saturating_sub(began));
        go_on
    }

    /// Ends an operation that began at `began`. Returns whether to go on.
    #[inline]
    pub(super) fn lap_since(&mut self, began: Duration) -> bool {
        self.end(began, 1)
    }

    /// Ends `count` operations that were one call of the store. Returns whether to go on.
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

    /// Waits until `time`, or until the run ends.
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
            // The next operation would begin after the end of the run.
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

    /// Begins of the first `count` operations of one of 4 threads.
    fn times(rate: f64, turn: usize, count: usize) -> Vec<Duration> {
        let share = RateShare { ops_per_sec: rate, turn, turns: 4 };
        let mut schedule = Schedule::new(Duration::ZERO, share);
        let mut times = vec![schedule.first];
        times.extend((1..count).map(|_| schedule.next(1)));
        times
    }

    #[test]
    fn close_operations_begin_in_groups_and_the_rate_is_kept() {
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
            // The threads rotate.
            assert!(times(rate, 1, 1)[0] - times(rate, 0, 1)[0] >= BUNCH / 5, "{rate}");
        }
    }
}

//! One run of a workload: its threads, from their start to the last one's end.

use std::panic::resume_unwind;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::Duration;

use base::{Clock, Error, Result, Rng};

use super::gate::Gate;
use super::ledger::Ledger;
use super::watch::{Intervals, Progress};
use super::{Chooser, Event, Layout, Name, Options, Pace, Source, Tick, mixed, reads, writes};
use crate::figures::Tally;
use crate::{Sizes, Store, Values};

/// How often the caller hears of a run's progress.
const TICK: Duration = Duration::from_millis(100);

/// What the threads of one run share.
pub(super) struct Run<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) name: Name,
    pub(super) options: &'a Options,
    pub(super) layout: Layout,
    pub(super) values: Values,
    /// Of the values that are written.
    pub(super) sizes: Sizes,
    pub(super) ledger: &'a Ledger,
    /// Whether the ledger knows the whole store.
    pub(super) is_known: bool,
    pub(super) epoch: u8,
    pub(super) seed: u64,
    pub(super) source: Source<'a>,
    /// In a mixed workload, in place of the source.
    pub(super) chooser: Option<Chooser>,
    pub(super) clock: &'a dyn Clock,
    pub(super) gate: Gate,
    /// Ends the run: a thread failed, or the leaders are done.
    pub(super) stop: AtomicBool,
    /// Threads whose end is the run's.
    pub(super) leaders: AtomicUsize,
    /// Each thread's.
    pub(super) progress: Box<[Progress]>,
}

impl Run<'_> {
    pub(super) fn all_threads(&self, hear: &mut dyn FnMut(Event)) -> Result<(Tally, Duration)> {
        let began = self.clock.monotonic();
        let elapsed = || self.clock.monotonic().saturating_sub(began);
        let running = AtomicUsize::new(0);
        let watcher = thread::current();
        let every = self.options.report_interval;
        let mut intervals =
            every.map(|every| Intervals::new(self.name, self.store, &self.progress, every));
        let results: Vec<Result<Ended>> = thread::scope(|scope| {
            let mut handles = Vec::new();
            for thread in 0..self.progress.len() {
                let leaving = Leaving::new(&running, &watcher);
                let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                    let _leaving = leaving;
                    self.one_thread(thread)
                });
                match spawned {
                    Ok(handle) => handles.push(handle),
                    Err(error) => {
                        self.gate.give_up();
                        let place = format!("{} of {}", thread + 1, self.progress.len());
                        return vec![Err(Error::io("start a thread of the run", place, error))];
                    }
                }
            }
            while running.load(Acquire) > 0 {
                let left = intervals.as_ref().map(|intervals| intervals.left(elapsed()));
                thread::park_timeout(left.map_or(TICK, |left| left.min(TICK)));
                let now = elapsed();
                hear(Event::Tick(self.tick(now)));
                if running.load(Relaxed) > 0
                    && let Some(interval) = intervals.as_mut().and_then(|it| it.take(now))
                {
                    hear(Event::Interval(interval));
                }
            }
            let now = elapsed();
            hear(Event::Tick(self.tick(now)));
            if let Some(interval) = intervals.as_mut().and_then(|it| it.last(now)) {
                hear(Event::Interval(interval));
            }
            let joined = handles.into_iter().map(|handle| handle.join());
            joined.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let mut total = Tally::new()?;
        let (mut start, mut end) = (Duration::MAX, Duration::ZERO);
        for result in results {
            let ended = result?;
            total.merge(&ended.tally);
            start = start.min(ended.start);
            end = end.max(ended.end);
        }
        Ok((total, end.saturating_sub(start)))
    }

    fn one_thread(&self, thread: usize) -> Result<Ended> {
        let tally = Tally::of_kinds(&self.name.kinds());
        let rng = Rng::new(self.seed.wrapping_add(thread as u64 + 1));
        // Every thread passes here, or the others would wait forever.
        if !self.gate.pass() {
            return Err(Error::retry("threads of the run"));
        }
        let start = self.clock.monotonic();
        let outcome = tally.and_then(|tally| {
            let mut pace = Pace::start(self, thread, tally);
            let mix = self.name.mix().filter(|_| self.name.is_mixed());
            match (self.name, mix) {
                (_, Some(mix)) => mixed::run(self, mix, thread, rng, &mut pace)?,
                (Name::Compact, _) => self.compact(&mut pace)?,
                (Name::ReadWhileWriting, _) if self.is_background(thread) => {
                    writes::beside_readers(self, rng, &mut pace)?;
                }
                (name, _) if name.writes() => writes::run(self, thread, rng, &mut pace)?,
                _ => reads::run(self, thread, rng, &mut pace)?,
            }
            Ok(Ended { start, end: pace.now(), tally: pace.into_tally() })
        });
        let is_last = || !self.is_background(thread) && self.leaders.fetch_sub(1, Relaxed) == 1;
        if is_last() || outcome.is_err() {
            self.stop.store(true, Relaxed);
        }
        outcome
    }

    fn compact(&self, pace: &mut Pace<'_>) -> Result<()> {
        self.store.compact()?;
        pace.lap();
        Ok(())
    }

    /// Whether `thread` runs beside the leaders, until they are done.
    fn is_background(&self, thread: usize) -> bool {
        thread >= self.name.leaders(self.options.threads)
    }

    /// How long the run lasts, unless it does a number of operations.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.options
            .duration
            .filter(|_| !self.name.is_fill() && !matches!(self.name, Name::Compact | Name::Verify))
    }

    fn ops(&self) -> u64 {
        if self.name.is_fill() { self.options.num } else { self.options.ops() }
    }

    /// The operations per second that `thread` has a part in, its turn and the number of turns.
    pub(super) fn rate(&self, thread: usize) -> Option<(f64, usize, usize)> {
        if self.is_background(thread) {
            return self.options.write_rate.map(|rate| (rate, 0, 1));
        }
        let turns = self.name.leaders(self.options.threads);
        self.options.rate.map(|rate| (rate, thread, turns))
    }

    pub(super) fn progress(&self, thread: usize) -> Option<&Progress> {
        self.progress.get(thread)
    }

    /// The part of all operations that falls to `thread`: its first and one past its last.
    pub(super) fn share(&self, thread: usize) -> (u64, u64) {
        let threads = self.name.leaders(self.options.threads) as u128;
        let cut = |thread: usize| (u128::from(self.ops()) * thread as u128 / threads) as u64;
        (cut(thread), cut(thread + 1))
    }

    fn tick(&self, elapsed: Duration) -> Tick {
        let leaders = self.name.leaders(self.options.threads);
        let total = match (self.deadline(), self.name) {
            (Some(_), _) => None,
            (None, Name::Compact) => Some(1),
            (None, name) if name.is_scan() => Some(self.options.num * leaders as u64),
            (None, _) => Some(self.ops()),
        };
        let done = self.progress.iter().take(leaders).map(Progress::ops).sum();
        Tick { done, total, elapsed }
    }
}

/// One thread's part of a run.
struct Ended {
    start: Duration,
    end: Duration,
    tally: Tally,
}

/// Tells the watching thread, on return or panic, that one thread less is running.
struct Leaving<'a> {
    running: &'a AtomicUsize,
    watcher: thread::Thread,
}

impl<'a> Leaving<'a> {
    /// Of a thread that is about to run.
    fn new(running: &'a AtomicUsize, watcher: &thread::Thread) -> Self {
        running.fetch_add(1, Relaxed);
        Self { running, watcher: watcher.clone() }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Release);
        self.watcher.unpark();
    }
}

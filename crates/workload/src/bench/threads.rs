//! The threads of one run, from the start of the first to the end of the last.
//!
//! The caller's thread starts one thread for each leader and background thread, then watches: it passes
//! progress and interval figures to the caller's callback until no thread runs. An error or panic of one
//! thread ends all of them.

use std::panic::resume_unwind;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::{self, Scope, ScopedJoinHandle, Thread};
use std::time::Duration;

use base::{Error, Result, Rng};

use super::pace::Pace;
use super::run::Run;
use super::watch::{Event, Intervals};
use super::{Name, mixed, reads, writes};
use crate::figures::Tally;

/// The interval of [`Event::Tick`].
const TICK: Duration = Duration::from_millis(100);

/// Runs all threads of `run`, and returns the sum of their tallies and the time from the start of the first
/// thread to the end of the last.
pub(super) fn run(run: &Run<'_>, on_event: &mut dyn FnMut(Event)) -> Result<(Tally, Duration)> {
    let running = AtomicUsize::new(0);
    let watch = Watch::begin(run);
    let results = thread::scope(|scope| {
        let handles = spawn(run, scope, &running)?;
        watch.until_done(&running, on_event);
        let joined = handles.into_iter().map(ScopedJoinHandle::join);
        let results = joined.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)));
        Ok::<Vec<_>, Error>(results.collect())
    })?;
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

/// Starts the threads, or none: if one cannot be started, the gate sends the others home.
fn spawn<'scope>(
    run: &'scope Run<'_>,
    scope: &'scope Scope<'scope, '_>,
    running: &'scope AtomicUsize,
) -> Result<Vec<ScopedJoinHandle<'scope, Result<Ended>>>> {
    let watcher = thread::current();
    let mut handles = Vec::new();
    for thread in 0..run.progress.len() {
        let guard = RunningGuard::new(running, &watcher);
        let spawned = thread::Builder::new().spawn_scoped(scope, move || {
            let _guard = guard;
            one_thread(run, thread)
        });
        match spawned {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                run.gate.give_up();
                let place = format!("{} of {}", thread + 1, run.progress.len());
                return Err(Error::io("start a thread of the run", place, error));
            }
        }
    }
    Ok(handles)
}

/// The watching side of a run.
struct Watch<'a> {
    run: &'a Run<'a>,
    began: Duration,
    intervals: Option<Intervals<'a>>,
}

impl<'a> Watch<'a> {
    /// Starts the clock of progress and intervals. Called before any thread starts, so that the first
    /// interval misses nothing.
    fn begin(run: &'a Run<'a>) -> Self {
        let every = run.options.report_interval;
        let intervals =
            every.map(|every| Intervals::new(run.name, run.store, &run.progress, every));
        Self { run, began: run.clock.monotonic(), intervals }
    }

    fn elapsed(&self) -> Duration {
        self.run.clock.monotonic().saturating_sub(self.began)
    }

    /// Passes events to `on_event` until no thread runs.
    fn until_done(mut self, running: &AtomicUsize, on_event: &mut dyn FnMut(Event)) {
        while running.load(Acquire) > 0 {
            let elapsed = self.elapsed();
            let left = self.intervals.as_ref().map(|intervals| intervals.left(elapsed));
            thread::park_timeout(left.map_or(TICK, |left| left.min(TICK)));
            let now = self.elapsed();
            on_event(Event::Tick(self.run.tick(now)));
            if running.load(Relaxed) > 0
                && let Some(interval) =
                    self.intervals.as_mut().and_then(|intervals| intervals.take(now))
            {
                on_event(Event::Interval(interval));
            }
        }
        let now = self.elapsed();
        on_event(Event::Tick(self.run.tick(now)));
        if let Some(interval) = self.intervals.as_mut().and_then(|intervals| intervals.last(now)) {
            on_event(Event::Interval(interval));
        }
    }
}

fn one_thread(run: &Run<'_>, thread: usize) -> Result<Ended> {
    let tally = Tally::of_kinds(&run.name.kinds());
    let rng = Rng::new(run.seed.wrapping_add(thread as u64 + 1));
    // A thread without memory for its tally passes the gate too, or the others would wait forever.
    if !run.gate.pass() {
        return Err(Error::retry("threads of the run"));
    }
    let start = run.clock.monotonic();
    let outcome = tally.and_then(|tally| {
        let mut pace = Pace::start(run, thread, tally);
        operate(run, thread, rng, &mut pace)?;
        Ok(Ended { start, end: pace.now(), tally: pace.into_tally() })
    });
    let is_last_leader = || !run.is_background(thread) && run.leaders.fetch_sub(1, Relaxed) == 1;
    if is_last_leader() || outcome.is_err() {
        run.stop.store(true, Relaxed);
    }
    outcome
}

/// Does the operations of `thread`.
fn operate(run: &Run<'_>, thread: usize, rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    if run.name == Name::Compact {
        run.store.compact()?;
        pace.lap();
        return Ok(());
    }
    if run.name == Name::ReadWhileWriting && run.is_background(thread) {
        return writes::beside_readers(run, rng, pace);
    }
    match run.name.mix().filter(|_| run.name.is_mixed()) {
        Some(mix) => mixed::run(run, mix, thread, rng, pace),
        None if run.name.writes() => writes::run(run, thread, rng, pace),
        None => reads::run(run, thread, rng, pace),
    }
}

/// The outcome of one thread.
struct Ended {
    start: Duration,
    end: Duration,
    tally: Tally,
}

/// Counts one running thread. Its drop, on return or panic of the thread, wakes the watching thread.
struct RunningGuard<'a> {
    running: &'a AtomicUsize,
    watcher: Thread,
}

impl<'a> RunningGuard<'a> {
    /// Counts a thread before it is started, so that the count is not 0 before the last thread ends.
    fn new(running: &'a AtomicUsize, watcher: &Thread) -> Self {
        running.fetch_add(1, Relaxed);
        Self { running, watcher: watcher.clone() }
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Release);
        self.watcher.unpark();
    }
}

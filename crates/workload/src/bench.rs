//! The bench driver: db_bench's workloads over any [`Store`], every read verified.
//!
//! A [`Bench`] runs workloads one after the other on one store and remembers which keys it wrote,
//! in which run. So a read is held against what must be there: a lost key, a stale version and a
//! key that never was count as wrong, like a value that is not its key's.
//!
//! Concurrency: the threads of a run start together behind a barrier and share the store, the
//! ledger and a flag that stops them all when one fails. The caller's thread only watches.
//!
//! Cost: one clock read, one histogram entry and the making or checking of one value for each
//! operation; the ledger takes a bit for each key and unordered run of writes.

mod ledger;
mod name;
mod options;
mod pace;
mod reads;
mod report;
mod writes;

use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use base::{Clock, Result, Rng, SystemClock};

pub use name::Name;
pub use options::Options;
pub use report::Report;

use crate::figures::{Meter, Tally};
use crate::{Keys, Sampler, Store, Values};
use ledger::Ledger;
use pace::Pace;

/// How often the caller hears of a run's progress.
const TICK: Duration = Duration::from_millis(100);

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Done, in operations (a replay: in the trace's own unit).
    pub done: u64,
    /// To do in all, where that is known beforehand.
    pub total: Option<u64>,
    /// Since the start.
    pub elapsed: Duration,
}

/// Runs workloads on one store.
pub struct Bench<'a> {
    store: &'a dyn Store,
    options: Options,
    keys: Keys,
    values: Values,
    clock: SystemClock,
    ledger: Ledger,
    runs: u64,
}

impl<'a> Bench<'a> {
    /// Runs on `store`, which is empty unless `options.existing`.
    ///
    /// # Errors
    /// `Invalid` where an option is out of its range.
    pub fn new(store: &'a dyn Store, options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self {
            store,
            keys: Keys::new(options.key_bytes)?,
            values: Values::new(options.compression_ratio)?,
            clock: SystemClock::new(),
            ledger: Ledger::new(options.num, options.existing),
            options,
            runs: 0,
        })
    }

    /// Runs the workload `name`, telling `tick` of its progress.
    ///
    /// # Errors
    /// The store's first error; it stops all threads.
    pub fn run(&mut self, name: Name, tick: &mut dyn FnMut(Tick)) -> Result<Report> {
        self.runs += 1;
        let epoch = self.runs as u8;
        if name.writes() {
            self.ledger.begin(epoch, name.is_fill_in_order())?;
        }
        let run = Run {
            store: self.store,
            name,
            options: &self.options,
            keys: self.keys,
            values: self.values,
            ledger: &self.ledger,
            epoch,
            seed: self.options.seed.wrapping_add(self.runs << 32),
            sampler: Sampler::new(
                name.distribution(self.options.distribution),
                self.options.num,
                self.options.seed,
            )?,
            clock: &self.clock,
            barrier: Barrier::new(self.options.threads),
            stop: AtomicBool::new(false),
            done: (0..self.options.threads).map(|_| AtomicU64::new(0)).collect(),
        };
        let meter = Meter::start(self.store, &self.clock);
        let outcome = run.all_threads(tick);
        let (tally, elapsed) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                // Which of the writes under way took effect is unknown.
                self.ledger.forget();
                return Err(error);
            }
        };
        if name.is_fill_in_order() {
            self.ledger.complete();
        }
        let entry_bytes = (self.options.key_bytes + self.options.value_bytes) as u64;
        let live_bytes = self.ledger.live().map(|keys| keys * entry_bytes);
        let figures = meter.finish(&tally, elapsed, live_bytes)?;
        Ok(Report { bench: name, threads: self.options.threads, figures })
    }
}

/// What the threads of one run share.
struct Run<'a> {
    store: &'a dyn Store,
    name: Name,
    options: &'a Options,
    keys: Keys,
    values: Values,
    ledger: &'a Ledger,
    epoch: u8,
    seed: u64,
    sampler: Sampler,
    clock: &'a dyn Clock,
    barrier: Barrier,
    stop: AtomicBool,
    /// Operations of each thread, for the progress alone.
    done: Box<[AtomicU64]>,
}

impl Run<'_> {
    fn all_threads(&self, tick: &mut dyn FnMut(Tick)) -> Result<(Tally, Duration)> {
        let began = self.clock.monotonic();
        let running = AtomicUsize::new(self.options.threads);
        let watcher = thread::current();
        let results: Vec<Result<Ended>> = thread::scope(|scope| {
            let handles: Vec<_> = (0..)
                .zip(&self.done)
                .map(|(thread, done)| {
                    let leaving = Leaving { running: &running, watcher: watcher.clone() };
                    scope.spawn(move || {
                        let _leaving = leaving;
                        self.one_thread(thread, done)
                    })
                })
                .collect();
            while running.load(Relaxed) > 0 {
                thread::park_timeout(TICK);
                tick(self.tick(self.clock.monotonic().saturating_sub(began)));
            }
            tick(self.tick(self.clock.monotonic().saturating_sub(began)));
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

    fn one_thread(&self, thread: usize, done: &AtomicU64) -> Result<Ended> {
        let tally = Tally::new();
        let rng = Rng::new(self.seed.wrapping_add(thread as u64 + 1));
        // Every thread passes here, or the others would wait forever.
        self.barrier.wait();
        let mut pace = Pace::start(self, tally?, done);
        let start = pace.now();
        let outcome = match self.name {
            name if name.writes() => writes::run(self, thread, rng, &mut pace),
            _ => reads::run(self, thread, rng, &mut pace),
        };
        if outcome.is_err() {
            self.stop.store(true, Relaxed);
        }
        outcome?;
        Ok(Ended { start, end: pace.now(), tally: pace.into_tally() })
    }

    /// The part of `--num` operations that falls to `thread`: its first and one past its last.
    fn share(&self, thread: usize) -> (u64, u64) {
        let threads = self.options.threads as u128;
        let cut = |thread: usize| (u128::from(self.options.num) * thread as u128 / threads) as u64;
        (cut(thread), cut(thread + 1))
    }

    fn tick(&self, elapsed: Duration) -> Tick {
        let total = match (self.name.writes(), self.options.duration, self.name.is_scan()) {
            (true, _, _) | (false, None, false) => Some(self.options.num),
            (false, None, true) => Some(self.options.num * self.options.threads as u64),
            (false, Some(_), _) => None,
        };
        Tick { done: self.done.iter().map(|done| done.load(Relaxed)).sum(), total, elapsed }
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

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Relaxed);
        self.watcher.unpark();
    }
}

#[cfg(test)]
#[path = "bench_tests.rs"]
mod tests;

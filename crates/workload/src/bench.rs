//! The bench driver: runs the workloads of db_bench and YCSB and models of production stores on any
//! [`Store`], and verifies every read.
//!
//! A [`Bench`] runs workloads one after the other on one store. Its ledger knows which run wrote each key
//! last, so a lost key, a stale version, a key that was never written and a value of another key all count
//! as wrong.
//!
//! Concurrency: the threads of a run start together behind a gate. They share the store, the ledger and a
//! flag that stops all of them when one fails. The caller's thread only watches.
//!
//! Cost: each operation reads the clock once, adds one histogram entry, and makes or checks one value. The
//! ledger takes one bit per key for each run that writes out of order.
mod bits;
mod chooser;
mod draws;
mod gate;
mod layout;
mod ledger;
mod mix;
mod mixed;
mod name;
mod options;
mod pace;
mod reads;
mod report;
mod run;
mod threads;
mod watch;
mod writes;

use std::sync::atomic::{AtomicBool, AtomicUsize};

use base::{Error, Result, SystemClock};

pub use crate::kind::Kind;
pub use name::Name;
pub use options::Options;
pub use report::Report;
pub use watch::{Event, Interval, Tick};

use crate::figures::Meter;
use crate::trace::KeyTrace;
use crate::{Keys, Sampler, Sizes, Store, Values};
use chooser::Chooser;
use draws::{Draws, Replayed, Source};
use gate::Gate;
use layout::Layout;
use ledger::{Effect, Ledger, Version};
use pace::Pace;
use run::Run;
use watch::Progress;

/// The most keys that a run which ends by its duration can insert.
const INSERTS_MAX: u64 = 1 << 32;

/// Runs workloads on one store.
pub struct Bench<'a> {
    store: &'a dyn Store,
    options: Options,
    /// Gives the keys of a run, instead of the distribution.
    trace: Option<Replayed>,
    keys: Keys,
    /// Whether the keys of the store are scattered; `None` until the first run.
    is_scattered: Option<bool>,
    values: Values,
    clock: SystemClock,
    ledger: Ledger,
    runs: u64,
}

impl<'a> Bench<'a> {
    /// Makes a bench on `store`, which must be empty unless `options.existing` is set.
    ///
    /// # Errors
    /// `Invalid` if an option is out of its range.
    pub fn new(store: &'a dyn Store, options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self {
            store,
            trace: None,
            keys: Keys::new(options.key_bytes)?,
            is_scattered: None,
            values: Values::new(options.compression_ratio)?,
            clock: SystemClock::new(),
            ledger: Ledger::new(options.num, options.existing),
            options,
            runs: 0,
        })
    }

    /// From now on, runs that draw keys follow `trace` instead, access by access, and start over at its end.
    /// Number *n* of the trace means key *n* of the store.
    pub fn replay(&mut self, trace: KeyTrace) {
        self.trace = Some(Replayed::new(trace));
    }

    /// Checks that the workload `name` can run with `options`, and with the keys of `trace` if there is one.
    ///
    /// # Errors
    /// `Invalid` if it cannot.
    pub fn check(name: Name, options: &Options, trace: Option<&KeyTrace>) -> Result<()> {
        if let Some(trace) = trace {
            if trace.distinct() > options.num {
                return Err(Error::invalid("number of keys")
                    .expected(format_args!(
                        "at least the {} distinct keys of the trace",
                        trace.distinct()
                    ))
                    .got(options.num));
            }
            if name.load().is_some() {
                return Err(Error::invalid("trace")
                    .expected("a workload without its own distribution of keys")
                    .got(format_args!("`{name}`")));
            }
        }
        if options.rate.is_some() && !name.is_paced() {
            return Err(Error::invalid("rate")
                .expected("a workload of single operations")
                .got(format_args!("`{name}`")));
        }
        Ok(())
    }

    /// The workload that must fill the store before `name` runs: `Some` if `name` has such a load and the
    /// store is known to be empty.
    #[must_use]
    pub fn missing_load(&self, name: Name) -> Option<Name> {
        name.load().filter(|_| self.ledger.live() == Some(0))
    }

    /// Changes the options of the next runs. Number and size of keys, the compression ratio and `existing`
    /// must stay the same.
    ///
    /// # Errors
    /// `Invalid` if an option is out of its range or one of these changes.
    pub fn set_options(&mut self, options: Options) -> Result<()> {
        options.check()?;
        let content = |options: &Options| {
            (options.num, options.key_bytes, options.compression_ratio.to_bits(), options.existing)
        };
        if content(&options) != content(&self.options) {
            return Err(Error::invalid("options").expected("the same keys and compression ratio"));
        }
        self.options = options;
        Ok(())
    }

    /// Assumes that another process filled the store: that [`Bench::run`] of `load`, a fill in order, was the
    /// first run on an empty store with the same options. Reads are verified against that.
    ///
    /// # Errors
    /// `Invalid` if `load` is not a fill in order, or if a workload ran already.
    pub fn assume(&mut self, load: Name) -> Result<()> {
        if !load.is_fill_in_order() || self.runs > 0 {
            return Err(Error::invalid("load")
                .expected("a fill in order, as the first run")
                .got(load));
        }
        self.is_scattered = Some(load.layout().agree(None)?);
        self.runs = 1;
        self.ledger.begin_all(self.version(load));
        self.ledger.complete();
        Ok(())
    }

    /// The epoch and size of the values that the current run of `name` writes.
    fn version(&self, name: Name) -> Version {
        Version { epoch: self.runs as u8, bytes: self.sizes(name).fixed() }
    }

    /// The sizes of the values that `name` writes.
    fn sizes(&self, name: Name) -> Sizes {
        self.options.value_bytes.map_or_else(|| name.values(), Sizes::Fixed)
    }

    /// Runs the workload `name`, and calls `on_event` with its progress.
    ///
    /// # Errors
    /// `Invalid` as from [`Bench::check`], or if the keys of the store have another layout than the workload
    /// needs; otherwise the first error of the store, which stops all threads.
    pub fn run(&mut self, name: Name, on_event: &mut dyn FnMut(Event)) -> Result<Report> {
        Self::check(name, &self.options, self.trace.as_ref().map(|trace| &trace.keys))?;
        check_order(name, self.store.is_ordered())?;
        let is_scattered = name.layout().agree(self.is_scattered)?;
        self.is_scattered = Some(is_scattered);
        self.runs += 1;
        let version = self.version(name);
        self.open_layer(name, version)?;
        let threads = name.threads(self.options.threads);
        let chooser = name.mix().map(|mix| Chooser::new(mix, &self.options, self.ledger.end()));
        let chooser = chooser.filter(|_| name.is_mixed()).transpose()?;
        let run = Run {
            store: self.store,
            name,
            options: &self.options,
            layout: Layout::new(self.keys, is_scattered),
            values: self.values,
            sizes: self.sizes(name),
            ledger: &self.ledger,
            is_known: self.ledger.live().is_some(),
            epoch: version.epoch,
            seed: self.options.seed.wrapping_add(self.runs << 32),
            source: self.source(name)?,
            chooser,
            clock: &self.clock,
            gate: Gate::new(threads),
            stop: AtomicBool::new(false),
            leaders: AtomicUsize::new(name.leaders(self.options.threads)),
            progress: (0..threads).map(|_| Progress::default()).collect(),
        };
        let meter = Meter::start(self.store, &self.clock);
        let outcome = threads::run(&run, on_event);
        let (tally, elapsed) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                // Nobody knows which of the unfinished writes took effect.
                self.ledger.forget();
                return Err(error);
            }
        };
        if name.is_fill_in_order() {
            self.ledger.complete();
        }
        let live_bytes = self.ledger.live_bytes(self.options.key_bytes);
        let figures = meter.finish(&tally, elapsed, live_bytes, self.options.settle)?;
        Ok(Report { bench: name, threads, figures })
    }

    /// The source of the keys of `name`.
    fn source(&self, name: Name) -> Result<Source<'_>> {
        if let Some(trace) = self.trace.as_ref().filter(|_| name.takes_trace()) {
            return Ok(Source::Replayed(trace));
        }
        let Options { distribution, num, seed, .. } = self.options;
        Sampler::new(name.distribution(distribution), num, seed).map(Source::Drawn)
    }

    /// Opens the ledger's layer for the writes of the workload.
    fn open_layer(&mut self, name: Name, version: Version) -> Result<()> {
        let inserts = match self.options.duration {
            Some(_) => INSERTS_MAX,
            None => self.options.ops(),
        };
        match name {
            name if name.is_fill_in_order() => self.ledger.begin_all(version),
            Name::DeleteRandom => self.ledger.begin(Effect::Delete, false, 0)?,
            name if name.is_mixed() => self.ledger.begin(Effect::Put(version), true, inserts)?,
            name if name.writes() => self.ledger.begin(Effect::Put(version), false, 0)?,
            _ => {}
        }
        Ok(())
    }
}

/// Refuses a workload that needs an order of keys on a store without one.
///
/// # Errors
/// `Invalid` for such a workload.
pub fn check_order(name: Name, is_ordered: bool) -> Result<()> {
    if is_ordered || !name.needs_order() {
        return Ok(());
    }
    Err(Error::invalid("bench")
        .expected("a workload without scans: a hashed keyspace has no order of keys")
        .got(format_args!("`{name}`")))
}

#[cfg(test)]
#[path = "bench_tests.rs"]
mod tests;

#[cfg(test)]
mod draws_tests;

#[cfg(test)]
mod load_tests;

#[cfg(test)]
mod mixed_tests;

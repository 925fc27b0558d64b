//! The bench driver: db_bench's workloads, YCSB's and some of production over any [`Store`], every
//! read verified.
//!
//! A [`Bench`] runs workloads one after the other on one store and remembers which keys it wrote,
//! in which run. So a read is held against what must be there: a lost key, a stale version and a
//! key that never was count as wrong, like a value that is not its key's.
//!
//! Concurrency: the threads of a run start together behind a gate and share the store, the
//! ledger and a flag that stops them all when one fails. The caller's thread only watches.
//!
//! Cost: one clock read, one histogram entry and the making or checking of one value for each
//! operation; the ledger takes a bit for each key and unordered run of writes.

mod bits;
mod chooser;
mod draws;
mod gate;
mod kind;
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
mod watch;
mod writes;

use std::sync::atomic::{AtomicBool, AtomicUsize};

use base::{Error, Result, SystemClock};

pub use kind::Kind;
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

/// The most keys that a run of some duration can insert.
const INSERTS_MAX: u64 = 1 << 32;

/// Runs workloads on one store.
pub struct Bench<'a> {
    store: &'a dyn Store,
    options: Options,
    /// In place of the distribution.
    trace: Option<Replayed>,
    keys: Keys,
    /// Whether the store's keys are scattered, once that is known.
    is_scattered: Option<bool>,
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

    /// Has all runs from now on that draw keys ask for those of `trace` instead, one access after the
    /// other, over and over; its key of number *n* is the store's.
    pub fn replay(&mut self, trace: KeyTrace) {
        self.trace = Some(Replayed::new(trace));
    }

    /// Checks that the workload `name` can do what `options` ask for, with the keys of `trace` where there
    /// is one.
    ///
    /// # Errors
    /// `Invalid` where it cannot.
    pub fn check(name: Name, options: &Options, trace: Option<&KeyTrace>) -> Result<()> {
        if let Some(trace) = trace {
            if trace.distinct() > options.num {
                return Err(Error::invalid("number of keys")
                    .expected(format_args!("as many as the trace names: {}", trace.distinct()))
                    .got(options.num));
            }
            if name.load().is_some() {
                return Err(Error::invalid("trace")
                    .expected("a workload that has no way of its own to pick keys")
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

    /// The workload that has to run before `name`, where the store is empty and `name` needs it
    /// full.
    #[must_use]
    pub fn missing_load(&self, name: Name) -> Option<Name> {
        name.load().filter(|_| self.ledger.live() == Some(0))
    }

    /// Changes how the next runs go; how many keys there are, and what they and their values look
    /// like, stays.
    ///
    /// # Errors
    /// `Invalid` where an option is out of its range, or would change what is in the store.
    pub fn set_options(&mut self, options: Options) -> Result<()> {
        options.check()?;
        let content = |options: &Options| {
            (options.num, options.key_bytes, options.compression_ratio.to_bits(), options.existing)
        };
        if content(&options) != content(&self.options) {
            return Err(Error::invalid("options").expected("keys and values to stay alike"));
        }
        self.options = options;
        Ok(())
    }

    /// Takes the store to be as [`Bench::run`] of the fill in order `load`, the first run on an empty
    /// store with the same options, left it: reads are held against that. For a store that another
    /// process filled.
    ///
    /// # Errors
    /// `Invalid` where `load` is no fill in order, or where something ran already.
    pub fn assume(&mut self, load: Name) -> Result<()> {
        if !load.is_fill_in_order() || self.runs > 0 {
            return Err(Error::invalid("load").expected("a fill in order, first").got(load));
        }
        self.is_scattered = Some(load.layout().agree(None)?);
        self.runs = 1;
        self.ledger.begin_all(self.version(load));
        self.ledger.complete();
        Ok(())
    }

    /// What the current run of `name` writes.
    fn version(&self, name: Name) -> Version {
        Version { epoch: self.runs as u8, bytes: self.sizes(name).fixed() }
    }

    /// The sizes of the values that `name` writes.
    fn sizes(&self, name: Name) -> Sizes {
        self.options.value_bytes.map_or_else(|| name.values(), Sizes::Fixed)
    }

    /// Runs the workload `name`, telling `hear` how it goes.
    ///
    /// # Errors
    /// `Invalid` as [`Bench::check`], and where the store's keys are not as the workload needs
    /// them; the store's first error, which stops all threads.
    pub fn run(&mut self, name: Name, hear: &mut dyn FnMut(Event)) -> Result<Report> {
        Self::check(name, &self.options, self.trace.as_ref().map(|trace| &trace.keys))?;
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
        let outcome = run.all_threads(hear);
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
        let live_bytes = self.ledger.live_bytes(self.options.key_bytes);
        let figures = meter.finish(&tally, elapsed, live_bytes, self.options.settle)?;
        Ok(Report { bench: name, threads, figures })
    }

    /// Where `name` has its keys from.
    fn source(&self, name: Name) -> Result<Source<'_>> {
        if let Some(trace) = self.trace.as_ref().filter(|_| name.takes_trace()) {
            return Ok(Source::Replayed(trace));
        }
        let Options { distribution, num, seed, .. } = self.options;
        Sampler::new(name.distribution(distribution), num, seed).map(Source::Drawn)
    }

    /// Makes room in the ledger for what the workload is going to write.
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

#[cfg(test)]
#[path = "bench_tests.rs"]
mod tests;

#[cfg(test)]
mod draws_tests;

#[cfg(test)]
mod load_tests;

#[cfg(test)]
mod mixed_tests;

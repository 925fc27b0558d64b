//! The evaluation of SILT (Lim et al., SOSP 2011) on a `keep` keyspace: keys of 20 B, all as likely; a load,
//! overwrites through several rewrites of the base, a mix of 90 % reads and 10 % writes beside merges, and
//! lookups of existing and of missing keys with no merge running.
//!
//! Every answer is verified, as in every bench.

use std::time::Duration;

use base::{Error, Result};
use compact::plan::hashed::keep;
use serde::{Serialize, Serializer};

use super::figures::{HashedFigures, HashedMeter};
use super::predicted::Predicted;
use crate::bench::{Bench, Event, Name, Options, Tick};
use crate::{Engine, Figures};

/// Bytes of a key: a SHA-1, as in the paper.
const KEY_BYTES: usize = 20;

/// Most rewrites of the base: each run of overwrites has an epoch of its own.
const CYCLES_MAX: u32 = 100;

/// The options of the evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiltOptions {
    /// Live keys.
    pub num: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Threads of the phases after the load.
    pub threads: usize,
    /// Rewrites of the whole base that the overwrites cause, at least.
    pub cycles: u32,
    /// The length of each phase after the overwrites.
    pub duration: Duration,
    /// Seed of all random choices.
    pub seed: u64,
}

/// A phase of the evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every key is written once.
    Load,
    /// Keys are overwritten.
    Overwrite,
    /// 90 % reads, 10 % writes, beside the merges that the writes cause.
    Mixed,
    /// Lookups of keys that exist, with no merge running.
    Hits,
    /// Lookups of keys that do not exist, with no merge running.
    Misses,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 5] = [Self::Load, Self::Overwrite, Self::Mixed, Self::Hits, Self::Misses];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Overwrite => "overwrite",
            Self::Mixed => "mixed",
            Self::Hits => "hits",
            Self::Misses => "misses",
        }
    }

    const fn workload(self) -> Name {
        match self {
            Self::Load => Name::SiltLoad,
            Self::Overwrite => Name::Overwrite,
            Self::Mixed => Name::SiltMix,
            Self::Hits => Name::ReadRandom,
            Self::Misses => Name::ReadMissing,
        }
    }
}

impl Serialize for Phase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The result of one phase.
#[derive(Clone, Debug, Serialize)]
pub struct SiltReport {
    /// `silt`.
    pub bench: &'static str,
    /// The phase.
    pub phase: Phase,
    /// Threads.
    pub threads: usize,
    /// The figures of every bench.
    #[serde(flatten)]
    pub figures: Figures,
    /// The figures of hashed keyspaces.
    #[serde(flatten)]
    pub hashed: HashedFigures,
    /// The figures that the formulas predict.
    pub predicted: Predicted,
}

/// The evaluation on one store.
pub struct Silt<'a> {
    engine: &'a Engine,
    options: SiltOptions,
    bench: Bench<'a>,
}

impl<'a> Silt<'a> {
    /// An evaluation on `engine`, in an empty keyspace.
    ///
    /// # Errors
    /// `Invalid` if an option is out of its range.
    pub fn new(engine: &'a Engine, options: SiltOptions) -> Result<Self> {
        if !(1..=CYCLES_MAX).contains(&options.cycles) {
            return Err(Error::invalid("cycles")
                .expected(format_args!("1..={CYCLES_MAX}"))
                .got(options.cycles));
        }
        let bench = Bench::new(engine, Self::run_options(&options, Phase::Load))?;
        Ok(Self { engine, options, bench })
    }

    fn run_options(options: &SiltOptions, phase: Phase) -> Options {
        let share = keep::Options::default().run_share;
        // A rewrite of the base takes writes of `share` of it.
        let overwrites = options.num as f64 * share * f64::from(options.cycles);
        let is_timed = matches!(phase, Phase::Mixed | Phase::Hits | Phase::Misses);
        Options {
            num: options.num,
            ops: (phase == Phase::Overwrite).then_some(overwrites.ceil() as u64),
            key_bytes: KEY_BYTES,
            value_bytes: Some(options.value_bytes),
            compression_ratio: 1.0,
            threads: if phase == Phase::Load { 1 } else { options.threads },
            duration: is_timed.then_some(options.duration),
            // No merge of an earlier phase counts in the next.
            settle: true,
            seed: options.seed,
            ..Options::default()
        }
    }

    /// Runs `phase`; the phases must run in order. `on_tick` gets the progress.
    ///
    /// # Errors
    /// The first error of the store.
    pub fn run(&mut self, phase: Phase, on_tick: &mut dyn FnMut(Tick)) -> Result<SiltReport> {
        self.bench.set_options(Self::run_options(&self.options, phase))?;
        let mut meter = HashedMeter::start(self.engine);
        let report = self.bench.run(phase.workload(), &mut |event| {
            if let Event::Tick(tick) = event {
                meter.tick(tick.elapsed);
                on_tick(tick);
            }
        })?;
        let entry_bytes = (KEY_BYTES + self.options.value_bytes) as f64;
        let written = report.figures.written_bytes;
        let (hashed, predicted) = meter.finish(self.options.num, entry_bytes, written);
        let (threads, figures) = (report.threads, report.figures);
        Ok(SiltReport { bench: "silt", phase, threads, figures, hashed, predicted })
    }
}

//! The settings of a bench.

use std::time::Duration;

use base::limits::VALUE_BYTES_MAX;
use base::{Error, Result};

use crate::{Distribution, KEY_NUMBER_MAX, Keys, Values};

/// The most threads of a run.
const THREADS_MAX: usize = 4096;

/// The most lookups in flight from one thread.
const DEPTH_MAX: usize = 4096;

/// The most entries of one seek, and of one write.
const ENTRIES_MAX: usize = 1 << 16;

/// The least and most operations per second that can be asked for.
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 1e9;

/// The shortest interval to report: taking the counters takes time.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The settings of a bench, with the defaults of the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Keys that a fill writes, and others expect.
    pub num: u64,
    /// Operations of all but fills, over all threads; `num` where none is given.
    pub ops: Option<u64>,
    /// The size of a key, bytes.
    pub key_bytes: usize,
    /// The size of a value, bytes; the workload's own sizes where none is given.
    pub value_bytes: Option<usize>,
    /// What a codec makes of a value's size.
    pub compression_ratio: f64,
    /// Threads.
    pub threads: usize,
    /// Lookups in flight from each thread in `multireadrandom`.
    pub depth: usize,
    /// Entries read after each seek of `seekrandom`.
    pub entries: usize,
    /// Entries put together in one write, in fills and `overwrite`.
    pub batch: usize,
    /// How long all but fills run, instead of a number of operations.
    pub duration: Option<Duration>,
    /// Operations per second to offer, over all threads, instead of as many as the store takes.
    pub rate: Option<f64>,
    /// The same for the writer beside the readers of `readwhilewriting`.
    pub write_rate: Option<f64>,
    /// How often figures are taken while a run lasts.
    pub report_interval: Option<Duration>,
    /// Every run waits at its end until no background work is due.
    pub settle: bool,
    /// Which keys are asked for; the workload's own way where none is given, or uniformly.
    pub distribution: Option<Distribution>,
    /// Every write is synced.
    pub sync: bool,
    /// The store is not empty: what it holds is unknown, so a missing key is no mistake.
    pub existing: bool,
    /// Chooses the random keys. The same seed asks for the same keys.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            num: 1_000_000,
            ops: None,
            key_bytes: 16,
            value_bytes: None,
            compression_ratio: 0.5,
            threads: 1,
            depth: 32,
            entries: 1,
            batch: 1,
            duration: None,
            rate: None,
            write_rate: None,
            report_interval: None,
            settle: false,
            distribution: None,
            sync: false,
            existing: false,
            seed: 0,
        }
    }
}

impl Options {
    /// Operations of all but fills.
    pub(super) fn ops(&self) -> u64 {
        self.ops.unwrap_or(self.num)
    }

    /// Checks every setting, before a store is opened for them.
    ///
    /// # Errors
    /// `Invalid` for the first one out of range.
    pub fn check(&self) -> Result<()> {
        let within = |what: &'static str, got: u64, least: u64, most: u64| {
            if (least..=most).contains(&got) {
                return Ok(());
            }
            Err(Error::invalid(what).expected(format_args!("{least}..={most}")).got(got))
        };
        within("number of keys", self.num, 1, KEY_NUMBER_MAX)?;
        within("operations", self.ops(), 1, u64::MAX)?;
        within(
            "value size, bytes",
            self.value_bytes.unwrap_or_default() as u64,
            0,
            VALUE_BYTES_MAX as u64,
        )?;
        within("threads", self.threads as u64, 1, THREADS_MAX as u64)?;
        within("depth", self.depth as u64, 1, DEPTH_MAX as u64)?;
        within("entries of a seek", self.entries as u64, 1, ENTRIES_MAX as u64)?;
        within("entries of a write", self.batch as u64, 1, ENTRIES_MAX as u64)?;
        for (what, rate) in [("rate", self.rate), ("write rate", self.write_rate)] {
            if rate.is_some_and(|rate| !(RATE_MIN..=RATE_MAX).contains(&rate)) {
                return Err(Error::invalid(what)
                    .expected(format_args!("{RATE_MIN}..={RATE_MAX} operations per second"))
                    .got(rate.unwrap_or_default()));
            }
        }
        if self.report_interval.is_some_and(|every| every < INTERVAL_MIN) {
            return Err(Error::invalid("report interval")
                .expected(format_args!("at least {INTERVAL_MIN:?}"))
                .got(format_args!("{:?}", self.report_interval.unwrap_or_default())));
        }
        Keys::new(self.key_bytes)?;
        Values::new(self.compression_ratio).map(drop)
    }
}

//! The options of a bench.

use std::time::Duration;

use base::limits::VALUE_BYTES_MAX;
use base::{Error, Result};

use crate::{Distribution, KEY_NUMBER_MAX, Keys, Values};

/// The most threads of a run.
const THREADS_MAX: usize = 4096;

/// The most lookups in flight per thread.
const DEPTH_MAX: usize = 4096;

/// The most entries per seek, and per write.
const ENTRIES_MAX: usize = 1 << 16;

/// The range of rates, operations per second.
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 1e9;

/// The shortest report interval, because reading the counters takes time.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The options of a bench. Its defaults are those of the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The number of keys that a fill writes and that other workloads draw from.
    pub num: u64,
    /// Operations of all threads together, except in fills; `num` if `None`.
    pub ops: Option<u64>,
    /// The size of a key, bytes.
    pub key_bytes: usize,
    /// The size of a value, bytes; the workload's own sizes if `None`.
    pub value_bytes: Option<usize>,
    /// The size of a compressed value as a fraction of its size.
    pub compression_ratio: f64,
    /// Threads. Some workloads add a background thread, or use one thread only.
    pub threads: usize,
    /// Lookups in flight per thread in `multireadrandom`.
    pub depth: usize,
    /// Entries read per seek of `seekrandom`.
    pub entries: usize,
    /// Entries per write, in fills and `overwrite`.
    pub batch: usize,
    /// Ends the run after this time instead of after a number of operations, except in fills.
    pub duration: Option<Duration>,
    /// Offered load of all threads together, operations per second; full speed if `None`.
    pub rate: Option<f64>,
    /// `rate` of the writer in `readwhilewriting`.
    pub write_rate: Option<f64>,
    /// The interval between figures during a run; none are taken if `None`.
    pub report_interval: Option<Duration>,
    /// Each run ends only when no background work is due.
    pub settle: bool,
    /// The distribution of keys; the workload's own or uniform if `None`.
    pub distribution: Option<Distribution>,
    /// Every write is synced.
    pub sync: bool,
    /// The store is not empty and its content is unknown, so a missing key does not count as wrong.
    pub existing: bool,
    /// Seed of the random keys. The same seed draws the same keys.
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
    /// Operations of all threads together, except in fills.
    pub(super) fn ops(&self) -> u64 {
        self.ops.unwrap_or(self.num)
    }

    /// Checks the range of every option, before a store is opened.
    ///
    /// # Errors
    /// `Invalid` for the first option out of range.
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

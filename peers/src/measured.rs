//! What is kept of one step of one run, and what several runs say together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use workload::bench::Report;
use workload::{Hits, LatencySummary, Operations};

/// The figures of one step, every store's counted in the same way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Operations per second, the time to settle included where the step waits for it.
    pub(crate) ops_per_sec: f64,
    /// Half of the operations took no longer, microseconds.
    pub(crate) p50_us: f64,
    /// 99 of 100.
    pub(crate) p99_us: f64,
    /// 999 of 1000.
    pub(crate) p999_us: f64,
    /// All.
    pub(crate) max_us: f64,
    /// Processor time of the process, seconds a million operations.
    pub(crate) cpu_seconds_per_million: f64,
    /// Processor time of the step, seconds.
    pub(crate) cpu_seconds: f64,
    /// Reads of the device an operation: of the whole machine while the step ran.
    pub(crate) device_reads_per_op: f64,
    /// Bytes read from the device an operation, by the process.
    pub(crate) read_bytes_per_op: f64,
    /// Bytes written to the device for each byte of keys and values written, by the process.
    pub(crate) write_amplification: Option<f64>,
    /// The most resident memory, bytes.
    pub(crate) peak_rss_bytes: f64,
    /// What the files take on the device, bytes.
    pub(crate) space_bytes: f64,
    /// Lookups that gave a value, as a part of all.
    pub(crate) found: Option<f64>,
    /// Lookups that memory or a tier below it answered, as a part of all, where the store counts them.
    #[serde(default)]
    pub(crate) cached: Option<f64>,
    /// Keys and values that a compaction went through for each second of processor time, MB.
    pub(crate) compacted_mb_per_cpu_second: Option<f64>,
    /// Answers that cannot be right.
    pub(crate) wrong: u64,
    /// Of a step of several kinds of operations, each one's.
    #[serde(default)]
    pub(crate) kinds: BTreeMap<String, OfKind>,
}

/// The figures of one kind of operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfKind {
    /// Operations per second.
    pub(crate) ops_per_sec: f64,
    /// Half of them took no longer, microseconds.
    pub(crate) p50_us: f64,
    /// 99 of 100.
    pub(crate) p99_us: f64,
    /// 999 of 1000.
    pub(crate) p999_us: f64,
}

impl Measured {
    /// Of one report. `device_reads` were counted while it ran; `raw_bytes` is what was
    /// written before it, and a compaction goes through.
    pub(crate) fn new(
        report: &Report,
        device_reads: u64,
        space_bytes: u64,
        raw_bytes: u64,
    ) -> Self {
        let figures = &report.figures;
        let ops = (figures.ops as f64).max(1.0);
        let lookups = (figures.found + figures.missing) as f64;
        let written = figures.written_bytes as f64;
        let Hits { row, page, scm, flash } = figures.hits;
        let hits = row + page + scm + flash;
        let is_compaction = report.bench == workload::bench::Name::Compact;
        Self {
            ops_per_sec: if figures.settled {
                figures.ops_per_sec_settled
            } else {
                figures.ops_per_sec
            },
            p50_us: figures.latency_us.p50,
            p99_us: figures.latency_us.p99,
            p999_us: figures.latency_us.p999,
            max_us: figures.latency_us.max,
            cpu_seconds_per_million: figures.cpu_seconds * 1e6 / ops,
            cpu_seconds: figures.cpu_seconds,
            device_reads_per_op: device_reads as f64 / ops,
            read_bytes_per_op: figures.process_read_bytes as f64 / ops,
            write_amplification: (written > 0.0)
                .then(|| figures.process_write_bytes as f64 / written),
            peak_rss_bytes: figures.peak_rss_bytes as f64,
            space_bytes: space_bytes as f64,
            found: (lookups > 0.0).then(|| figures.found as f64 / lookups),
            cached: (hits > 0).then(|| (hits - figures.hits.flash) as f64 / hits as f64),
            compacted_mb_per_cpu_second: (is_compaction && figures.cpu_seconds > 0.0)
                .then(|| raw_bytes as f64 / 1e6 / figures.cpu_seconds),
            wrong: figures.wrong,
            kinds: figures
                .operations
                .iter()
                .map(|(kind, of)| (kind.name().to_owned(), of.into()))
                .collect(),
        }
    }
}

impl From<&Operations> for OfKind {
    fn from(of: &Operations) -> Self {
        let LatencySummary { p50, p99, p999, .. } = of.latency_us;
        Self { ops_per_sec: of.ops_per_sec, p50_us: p50, p99_us: p99, p999_us: p999 }
    }
}

/// What the runs of one store in one case gave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoreResult {
    /// Every option, and its value.
    pub(crate) options: Vec<String>,
    /// Each step's figures, run by run.
    pub(crate) steps: BTreeMap<String, Vec<Measured>>,
    /// Runs that ended otherwise, and how.
    pub(crate) failures: Vec<String>,
}

/// What a case gave: one file in `results`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CaseResult {
    /// The case.
    pub(crate) case: String,
    /// `full`, `quick` or `tiny`.
    pub(crate) scale: String,
    /// The command that made it.
    pub(crate) command: String,
    /// When the last run ended, UTC.
    pub(crate) date: String,
    /// The commit, with `+` where the tree had changes.
    pub(crate) commit: String,
    /// Processor, cores, memory, system.
    pub(crate) machine: String,
    /// How memory was bounded.
    pub(crate) bound: String,
    /// Steps, in their order.
    pub(crate) steps: Vec<String>,
    /// By store, in their order.
    pub(crate) stores: Vec<(String, StoreResult)>,
}

/// The median, the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl StoreResult {
    /// The spread of a figure over the runs of a step, if any has it.
    pub(crate) fn spread(
        &self,
        step: &str,
        figure: impl Fn(&Measured) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.steps.get(step)?.iter().filter_map(figure).collect())
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self { median: (lower + upper) / 2.0, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_between_the_least_and_the_greatest() {
        let spread = |values: &[f64]| Spread::of(values.to_vec());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0, 1.0, 9.0]), Some(Spread { median: 3.0, least: 1.0, most: 9.0 }));
        assert_eq!(spread(&[4.0, 2.0]), Some(Spread { median: 3.0, least: 2.0, most: 4.0 }));
    }
}

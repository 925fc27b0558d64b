//! The stored figures of one step of one run, and the results of a case. `xtask/src/results/case.rs` reads
//! them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use workload::{Figures, Hits, InsertsAlone, LatencySummary, Operations, WanFigures};

/// The figures of one step, measured the same way for every store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Operations per second; if the step settles, the time to settle is included.
    pub(crate) ops_per_sec: f64,
    /// Median latency, microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile of the latency, microseconds.
    pub(crate) p99_us: f64,
    /// 99.9th percentile of the latency, microseconds.
    pub(crate) p999_us: f64,
    /// Greatest latency, microseconds.
    pub(crate) max_us: f64,
    /// Processor time of the process, seconds per million operations.
    pub(crate) cpu_seconds_per_million: f64,
    /// Processor time of the step, seconds.
    pub(crate) cpu_seconds: f64,
    /// Device reads per operation, counted for the whole machine during the step.
    pub(crate) device_reads_per_op: f64,
    /// Bytes that the process read from the device, per operation.
    pub(crate) read_bytes_per_op: f64,
    /// Bytes that the process wrote to the device, per byte of keys and values written.
    pub(crate) write_amplification: Option<f64>,
    /// Peak resident memory, bytes.
    pub(crate) peak_rss_bytes: f64,
    /// Device space of the files, bytes.
    pub(crate) space_bytes: f64,
    /// The share of lookups that found a value.
    pub(crate) found: Option<f64>,
    /// The share of lookups that DRAM or the tier below it answered, if the store counts them.
    #[serde(default)]
    pub(crate) cached: Option<f64>,
    /// Keys and values that a compaction processed per second of processor time, MB.
    pub(crate) compacted_mb_per_cpu_second: Option<f64>,
    /// Wrong answers.
    pub(crate) wrong: u64,
    /// Bytes of index and filters for each key, if the store knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index_bytes_per_key: Option<f64>,
    /// The rate of the stream that a WAN optimizer cuts into chunks, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) megabits_per_second: Option<f64>,
    /// Operations per second in each second of the step, if it is a timeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rates: Vec<f64>,
    /// Figures by kind, in a step with several kinds of operations.
    #[serde(default)]
    pub(crate) kinds: BTreeMap<String, OfKind>,
}

/// The figures of one kind of operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfKind {
    /// Operations per second.
    pub(crate) ops_per_sec: f64,
    /// Mean latency, microseconds.
    #[serde(default)]
    pub(crate) mean_us: f64,
    /// Median latency, microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile of the latency, microseconds.
    pub(crate) p99_us: f64,
    /// 99.9th percentile of the latency, microseconds.
    pub(crate) p999_us: f64,
}

impl Measured {
    /// The figures of one run. `device_reads` were counted during the step; `raw_bytes` were written
    /// before it, and are the input of a compaction.
    pub(crate) fn new(
        figures: &Figures,
        is_compaction: bool,
        device_reads: u64,
        space_bytes: u64,
        raw_bytes: u64,
    ) -> Self {
        let ops = (figures.ops as f64).max(1.0);
        let lookups = (figures.found + figures.missing) as f64;
        let written = figures.written_bytes as f64;
        let Hits { row, page, scm, flash } = figures.hits;
        let hits = row + page + scm + flash;
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
            rates: Vec::new(),
            index_bytes_per_key: None,
            megabits_per_second: None,
            kinds: figures
                .operations
                .iter()
                .map(|(kind, of)| (kind.name().to_owned(), of.into()))
                .collect(),
        }
    }
}

impl Measured {
    /// The figures of a run of the WAN optimizer. `device_reads` were counted during it.
    pub(crate) fn of_wan(wan: &WanFigures, device_reads: u64, space_bytes: u64) -> Self {
        let figures = &wan.figures;
        let mut measured = Self::new(figures, false, device_reads, space_bytes, 0);
        measured.megabits_per_second = Some(wan.megabits_per_second);
        // A run settles, but the stream ends with its last chunk.
        measured.ops_per_sec = figures.ops_per_sec;
        let rate = |count: u64| count as f64 / figures.seconds.max(f64::MIN_POSITIVE);
        for (kind, ops_per_sec, latency) in [
            ("insert", wan.inserts_per_sec, wan.insert_us),
            ("lookup", rate(figures.ops), figures.latency_us),
            ("lookup that hits", rate(figures.found), wan.hit_us),
            ("lookup that misses", rate(figures.missing), wan.miss_us),
        ] {
            measured.kinds.insert(kind.to_owned(), OfKind::new(ops_per_sec, latency));
        }
        // Its mean and its rate count the flush at the end.
        let InsertsAlone { mean_us, us, .. } = wan.inserts_alone;
        let alone = OfKind { mean_us, ..OfKind::new(1e6 / mean_us.max(f64::MIN_POSITIVE), us) };
        measured.kinds.insert("insert without a lookup, flushed at the end".to_owned(), alone);
        measured
    }
}

impl OfKind {
    fn new(ops_per_sec: f64, latency: LatencySummary) -> Self {
        let LatencySummary { mean, p50, p99, p999, .. } = latency;
        Self { ops_per_sec, mean_us: mean, p50_us: p50, p99_us: p99, p999_us: p999 }
    }
}

impl From<&Operations> for OfKind {
    fn from(of: &Operations) -> Self {
        Self::new(of.ops_per_sec, of.latency_us)
    }
}

/// The results of one store in one case.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct StoreResult {
    /// Every option with its value.
    pub(crate) options: Vec<String>,
    /// The figures of each step, by run.
    pub(crate) steps: BTreeMap<String, Vec<Measured>>,
    /// Failed runs, with the reasons.
    pub(crate) failures: Vec<String>,
}

/// The results of a case: one file in `results`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct CaseResult {
    /// The case.
    pub(crate) case: String,
    /// What the case does.
    pub(crate) summary: String,
    /// `full`, `quick` or `tiny`.
    pub(crate) scale: String,
    /// The command that produced the results.
    pub(crate) command: String,
    /// The end of the last run, UTC.
    pub(crate) date: String,
    /// The commit, followed by `+` if the tree had changes.
    pub(crate) commit: String,
    /// Processor, cores, memory and operating system.
    pub(crate) machine: String,
    /// The kind of memory bound.
    pub(crate) bound: String,
    /// The steps, in their order.
    pub(crate) steps: Vec<String>,
    /// The results by store, in the order of the stores.
    pub(crate) stores: Vec<(String, StoreResult)>,
}

//! The result of one run: one or more lines of text for people, one JSON object for scripts.

use std::fmt;

use serde::Serialize;

use super::Name;
use crate::LatencySummary;
use crate::figures::{Figures, Operations};

/// The result of one run. It serializes to the object that scripts parse. It displays as one line in the form
/// of db_bench's, and one more line for each kind of operation if there are several.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The workload.
    pub bench: Name,
    /// Threads.
    pub threads: usize,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bench, threads, figures } = self;
        let Figures { ops, seconds, ops_per_sec, found, missing, wrong, latency_us, .. } = figures;
        // As in db_bench: the time that one thread takes for one of its operations.
        let micros = if *ops == 0 { 0.0 } else { seconds * 1e6 * *threads as f64 / *ops as f64 };
        write!(
            f,
            "{bench:<15} : {micros:11.3} micros/op {ops_per_sec:.0} ops/sec {seconds:.3} seconds \
             {ops} operations;"
        )?;
        let bytes = figures.written_bytes + figures.read_bytes;
        if *seconds > 0.0 && bytes > 0 {
            write!(f, " {:6.1} MB/s", bytes as f64 / 1e6 / seconds)?;
        }
        if found + missing > 0 {
            write!(f, " ({found} of {} found)", found + missing)?;
        }
        write!(
            f,
            " p50 {:.2} p99 {:.2} p99.9 {:.2} max {:.2} us",
            latency_us.p50, latency_us.p99, latency_us.p999, latency_us.max
        )?;
        if let Some(reads) = figures.device_reads_per_get.filter(|_| !bench.writes()) {
            write!(f, " {reads:.3} device reads/get")?;
        }
        if let Some(amplification) = figures.write_amplification {
            write!(f, " write amplification {amplification:.2}")?;
        }
        if figures.settled {
            let Figures { settle_seconds, ops_per_sec_settled, .. } = figures;
            write!(f, " settled in {settle_seconds:.3} seconds, {ops_per_sec_settled:.0} ops/sec")?;
        }
        if *wrong > 0 {
            write!(f, " {wrong} WRONG")?;
        }
        for (kind, operations) in &figures.operations {
            let Operations { count, ops_per_sec, latency_us } = operations;
            let LatencySummary { mean, p50, p95, p99, p999, max } = latency_us;
            write!(
                f,
                "\n  {:<13} : {count} operations {ops_per_sec:.0} ops/sec mean {mean:.2} p50 {p50:.2} \
                 p95 {p95:.2} p99 {p99:.2} p99.9 {p999:.2} max {max:.2} us",
                kind.name()
            )?;
        }
        Ok(())
    }
}

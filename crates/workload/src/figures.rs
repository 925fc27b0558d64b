//! What a run is measured by: the figures every report carries, and the meter that takes them.
//!
//! Processor time, device traffic and space include the flush after a run that wrote, and on demand
//! all background work that it left behind; seconds and rates do not, but for the rates that say so.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Clock, Result};
use serde::Serialize;

use crate::bench::Kind;
use crate::latency::{Latencies, LatencySummary};
use crate::pages::PageCounts;
use crate::process;
use crate::scm::{Emulation, ScmCounts};
use crate::store::{Counters, Hits, Store, Traffic};

/// Device traffic of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Device {
    /// All of it.
    #[serde(flatten)]
    pub total: Traffic,
    /// The same by purpose.
    pub by_purpose: BTreeMap<&'static str, Traffic>,
}

/// The figures of one kind of operation in a mixed run.
#[derive(Clone, Debug, Serialize)]
pub struct Operations {
    /// How many.
    pub count: u64,
    /// Of them per second of wall time.
    pub ops_per_sec: f64,
    /// Latency, microseconds.
    pub latency_us: LatencySummary,
}

/// The figures of one run. Field names are an interface that scripts parse.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Operations; a scan counts the entries it read.
    pub ops: u64,
    /// Wall time, from the first thread's start to the last one's end.
    pub seconds: f64,
    /// Operations per second of wall time.
    pub ops_per_sec: f64,
    /// Lookups that gave a value.
    pub found: u64,
    /// Lookups that gave none.
    pub missing: u64,
    /// Of the lookups and scans of keys that were not made to miss, the part that found its key: of a seek
    /// or a scan, as its first entry. None without any.
    pub found_share: Option<f64>,
    /// Answers that cannot be right: a value that is not its key's, a stale version, a key that
    /// was written and is gone, or never written and there. Must be 0.
    pub wrong: u64,
    /// Latency of an operation, microseconds.
    pub latency_us: LatencySummary,
    /// The same of each kind of operation, in a run of several.
    pub operations: BTreeMap<Kind, Operations>,
    /// Device traffic, settling included.
    pub device: Device,
    /// Device reads that callers waited for, for each lookup.
    pub device_reads_per_get: Option<f64>,
    /// Bytes written to the device for each byte of key and value written, settling included, as the
    /// store counts them, or the system where it does not.
    pub write_amplification: Option<f64>,
    /// Device space taken at the end, settling included, bytes.
    pub space_bytes: u64,
    /// Device space for each byte of key and value in the store.
    pub space_amplification: Option<f64>,
    /// Processor time of the whole process, user and system, settling included.
    pub cpu_seconds: f64,
    /// The part of its time, of all its processors, that the machine was idle and waited for a device,
    /// settling included.
    pub io_wait_share: f64,
    /// Bytes that the process caused to be read from devices, settling included, as the system
    /// counts them: the same for every store, mappings and the page cache included.
    pub process_read_bytes: u64,
    /// The same, written.
    pub process_write_bytes: u64,
    /// Resident memory at the end, without memory shared with files in memory, as storage-class memory is.
    pub rss_bytes: u64,
    /// The most resident memory during the run.
    pub peak_rss_bytes: u64,
    /// Memory charged to the store's budget at the end of the operations.
    pub memory_bytes: u64,
    /// How long writers were held back, summed over writers.
    pub stall_seconds: f64,
    /// The same by reason.
    pub stalls: BTreeMap<&'static str, f64>,
    /// How long the store took after the operations: to flush, and where `settled`, to do all the
    /// background work that was left.
    pub settle_seconds: f64,
    /// Whether no background work was left at the end.
    pub settled: bool,
    /// Operations per second of wall time, `settle_seconds` included.
    pub ops_per_sec_settled: f64,
    /// Bytes of keys and values written.
    pub written_bytes: u64,
    /// Bytes of keys and values read.
    pub read_bytes: u64,
    /// Where reads were answered.
    pub hits: Hits,
    /// Lookups of pages by tier and kind, where the store counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageCounts>,
    /// What the tier of storage-class memory did, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scm: Option<ScmCounts>,
    /// What emulating it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulation: Option<Emulation>,
}

/// What a thread counts while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub ops: u64,
    /// Point lookups and seeks: what device reads are divided by.
    pub lookups: u64,
    pub found: u64,
    pub missing: u64,
    /// Lookups and scans of keys that were not made to miss, and of those the ones that found the key.
    pub due: u64,
    pub met: u64,
    pub wrong: u64,
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub latencies: Latencies,
    /// Those of a run of several kinds of operations, by kind.
    pub kinds: BTreeMap<Kind, Latencies>,
}

impl Tally {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            ops: 0,
            lookups: 0,
            found: 0,
            missing: 0,
            due: 0,
            met: 0,
            wrong: 0,
            written_bytes: 0,
            read_bytes: 0,
            latencies: Latencies::new()?,
            kinds: BTreeMap::new(),
        })
    }

    /// A tally of a run of these kinds of operations.
    pub(crate) fn of_kinds(kinds: &[Kind]) -> Result<Self> {
        let mut tally = Self::new()?;
        for kind in kinds {
            tally.kinds.insert(*kind, Latencies::new()?);
        }
        Ok(tally)
    }

    /// Counts a lookup of a key that was not made to miss.
    #[inline]
    pub(crate) fn count_due(&mut self, is_met: bool) {
        self.due += 1;
        self.met += u64::from(is_met);
    }

    /// Counts an operation by its kind.
    #[inline]
    pub(crate) fn count_kind(&mut self, kind: Kind, took: Duration) {
        if let Some(latencies) = self.kinds.get_mut(&kind) {
            latencies.record(took);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.ops += other.ops;
        self.lookups += other.lookups;
        self.found += other.found;
        self.missing += other.missing;
        self.due += other.due;
        self.met += other.met;
        self.wrong += other.wrong;
        self.written_bytes += other.written_bytes;
        self.read_bytes += other.read_bytes;
        self.latencies.merge(&other.latencies);
        for (kind, latencies) in &other.kinds {
            match self.kinds.get_mut(kind) {
                Some(own) => own.merge(latencies),
                None => drop(self.kinds.insert(*kind, latencies.clone())),
            }
        }
    }
}

/// Takes the readings before and after a run.
pub(crate) struct Meter<'a> {
    store: &'a dyn Store,
    clock: &'a dyn Clock,
    before: Counters,
    cpu_before: Duration,
    io_before: process::Io,
    processors_before: process::Processors,
}

impl<'a> Meter<'a> {
    pub(crate) fn start(store: &'a dyn Store, clock: &'a dyn Clock) -> Self {
        process::reset_peak();
        let (cpu_before, io_before) = (process::cpu_time(), process::io());
        let (before, processors_before) = (store.counters(), process::processors());
        Self { store, clock, before, cpu_before, io_before, processors_before }
    }

    /// Flushes the store if anything was `tally`ed as written, waits for all of its background work
    /// if it is to `settle`, and sums up. `live_bytes` is what
    /// the driver knows the store to hold; where it does not know, the store is asked.
    pub(crate) fn finish(
        self,
        tally: &Tally,
        elapsed: Duration,
        live_bytes: Option<u64>,
        settle: bool,
    ) -> Result<Figures> {
        let memory_bytes = self.store.counters().memory_bytes;
        let rss_bytes = process::resident().now;
        let settle_start = self.clock.monotonic();
        if tally.written_bytes > 0 {
            self.store.flush()?;
        }
        if settle {
            self.store.settle()?;
        }
        let settling = self.clock.monotonic().saturating_sub(settle_start);
        let cpu = process::cpu_time().saturating_sub(self.cpu_before);
        let io = process::io().since(self.io_before);
        let counted = self.store.counters().since(&self.before);
        let device = counted.total();
        let counts_itself = !counted.device.is_empty();
        let device_writes = if counts_itself { device.write_bytes } else { io.write_bytes };
        let stall_seconds = counted.stall().as_secs_f64();
        let live_bytes = live_bytes.or(counted.logical_bytes);
        let seconds = elapsed.as_secs_f64();
        let rate = |ops: u64, seconds| ratio(ops as f64, seconds).unwrap_or_default();
        let operations = tally.kinds.iter().map(|(kind, latencies)| {
            let count = latencies.count();
            let ops_per_sec = rate(count, seconds);
            (*kind, Operations { count, ops_per_sec, latency_us: latencies.summary() })
        });
        Ok(Figures {
            ops: tally.ops,
            seconds,
            ops_per_sec: rate(tally.ops, seconds),
            operations: operations.collect(),
            found: tally.found,
            missing: tally.missing,
            found_share: ratio(tally.met as f64, tally.due as f64),
            wrong: tally.wrong,
            latency_us: tally.latencies.summary(),
            device_reads_per_get: ratio(counted.foreground_read_ops as f64, tally.lookups as f64),
            write_amplification: ratio(device_writes as f64, tally.written_bytes as f64),
            space_amplification: live_bytes
                .and_then(|live| ratio(counted.space_bytes as f64, live as f64)),
            device: Device { total: device, by_purpose: counted.device },
            cpu_seconds: cpu.as_secs_f64(),
            io_wait_share: process::processors().io_wait_since(self.processors_before),
            process_read_bytes: io.read_bytes,
            process_write_bytes: io.write_bytes,
            rss_bytes,
            peak_rss_bytes: process::resident().peak,
            memory_bytes,
            space_bytes: counted.space_bytes,
            stall_seconds,
            stalls: counted.stalls.iter().map(|(name, t)| (*name, t.as_secs_f64())).collect(),
            settle_seconds: settling.as_secs_f64(),
            settled: settle,
            ops_per_sec_settled: rate(tally.ops, seconds + settling.as_secs_f64()),
            written_bytes: tally.written_bytes,
            read_bytes: tally.read_bytes,
            hits: counted.hits,
            pages: counted.pages,
            scm: counted.scm,
            emulation: counted.emulation,
        })
    }
}

/// `part / whole`, or `None` where there is nothing to divide by.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then_some(part / whole)
}

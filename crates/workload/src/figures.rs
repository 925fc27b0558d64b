//! The figures of a run, which every report carries, and the meter that takes them.
//!
//! Processor time, device traffic and space include the flush after a run that wrote and, if the options ask
//! to settle, all background work that the run left. Seconds and rates exclude both, except for the ones that
//! say otherwise.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Clock, Result, invariant};
use serde::Serialize;

use crate::compaction::CompactionPlaces;
use crate::kind::Kind;
use crate::latency::{Latencies, LatencySummary};
use crate::pages::PageCounts;
use crate::process;
use crate::scm::{Emulation, ScmCounts};
use crate::store::{Counters, Hits, Store, Traffic};

/// Device traffic of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Device {
    /// Traffic of all purposes together.
    #[serde(flatten)]
    pub total: Traffic,
    /// Traffic by purpose.
    pub by_purpose: BTreeMap<&'static str, Traffic>,
}

/// The figures of one kind of operation in a mixed run.
#[derive(Clone, Debug, Serialize)]
pub struct Operations {
    /// The number of operations.
    pub count: u64,
    /// The operations per second of wall time.
    pub ops_per_sec: f64,
    /// Latency, microseconds.
    pub latency_us: LatencySummary,
}

/// The figures of one run. Field names are an interface that scripts parse.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Operations; in a scan of the whole store, entries read.
    pub ops: u64,
    /// Wall time from the start of the first thread to the end of the last, seconds.
    pub seconds: f64,
    /// Operations per second of wall time.
    pub ops_per_sec: f64,
    /// Lookups that found a value.
    pub found: u64,
    /// Lookups that found none.
    pub missing: u64,
    /// The share of lookups and scans that found their key, of those whose key was not chosen to be missing.
    /// A seek or scan must find it as its first entry. `None` if there were none of these.
    pub found_share: Option<f64>,
    /// Wrong answers: a value of another key, a stale version, a written key that is missing, or a key that
    /// was never written. Must be 0.
    pub wrong: u64,
    /// Latency of an operation, microseconds.
    pub latency_us: LatencySummary,
    /// Latency and rate of each kind of operation, in a run of several kinds.
    pub operations: BTreeMap<Kind, Operations>,
    /// Device traffic, settling included.
    pub device: Device,
    /// Device reads that callers waited for, per lookup.
    pub device_reads_per_get: Option<f64>,
    /// Bytes written to the device per byte of keys and values written, settling included. Counted by the
    /// store, or by the operating system if the store does not count.
    pub write_amplification: Option<f64>,
    /// Device space used at the end, settling included, bytes.
    pub space_bytes: u64,
    /// Device space per byte of keys and values in the store.
    pub space_amplification: Option<f64>,
    /// Processor time of the whole process, user and system, settling included.
    pub cpu_seconds: f64,
    /// The share of the machine's processor time, over all processors, that was idle waiting for a device,
    /// settling included.
    pub io_wait_share: f64,
    /// Bytes that the process caused to be read from devices, settling included, as the operating system
    /// counts them, memory mappings and the page cache included: comparable between stores.
    pub process_read_bytes: u64,
    /// As `process_read_bytes`, for bytes written.
    pub process_write_bytes: u64,
    /// Resident memory at the end, bytes, without shared memory, which stands for storage-class memory.
    pub rss_bytes: u64,
    /// The peak of resident memory during the run, bytes.
    pub peak_rss_bytes: u64,
    /// Memory charged against the store's memory limit at the end of the operations, bytes.
    pub memory_bytes: u64,
    /// Write stalls and delays, seconds, summed over writers.
    pub stall_seconds: f64,
    /// `stall_seconds` by reason.
    pub stalls: BTreeMap<&'static str, f64>,
    /// Time after the operations, seconds: the flush and, if `settled`, the background work that was left.
    pub settle_seconds: f64,
    /// Whether the run waited until no background work was left.
    pub settled: bool,
    /// Operations per second of wall time, `settle_seconds` included.
    pub ops_per_sec_settled: f64,
    /// Bytes of keys and values written.
    pub written_bytes: u64,
    /// Bytes of keys and values read.
    pub read_bytes: u64,
    /// Reads by the tier that answered them.
    pub hits: Hits,
    /// Page lookups by tier and kind, if the store counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageCounts>,
    /// Counters of the SCM tier, if the store has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scm: Option<ScmCounts>,
    /// The cost of emulating the SCM device, if it is emulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulation: Option<Emulation>,
    /// Where merges were done, settling included, if the store counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CompactionPlaces>,
}

/// The counters of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub ops: u64,
    /// Point lookups and seeks: the divisor of device reads.
    pub lookups: u64,
    pub found: u64,
    pub missing: u64,
    /// Lookups and scans of keys that were not chosen to be missing.
    pub due: u64,
    /// Those of them that found their key.
    pub met: u64,
    pub wrong: u64,
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub latencies: Latencies,
    /// Latencies by kind, in a run of several kinds of operations.
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

    /// A tally for a run of these kinds of operations.
    pub(crate) fn of_kinds(kinds: &[Kind]) -> Result<Self> {
        let mut tally = Self::new()?;
        for kind in kinds {
            tally.kinds.insert(*kind, Latencies::new()?);
        }
        Ok(tally)
    }

    /// Counts a lookup of a key that was not chosen to be missing.
    #[inline]
    pub(crate) fn count_due(&mut self, is_met: bool) {
        self.due += 1;
        self.met += u64::from(is_met);
    }

    /// Counts an operation by its kind, which must be one that the tally was made for.
    #[inline]
    pub(crate) fn count_kind(&mut self, kind: Kind, took: Duration) {
        let latencies = self.kinds.get_mut(&kind);
        debug_assert!(latencies.is_some(), "the tally has every kind of its run");
        if let Some(latencies) = latencies {
            latencies.record(took);
        }
    }

    /// Checks the relations of the counters at the end of a run.
    fn check(&self) {
        invariant!(self.met <= self.due, "a key that was found is one that was looked for");
        let of_kinds: u64 = self.kinds.values().map(Latencies::count).sum();
        let is_complete = self.kinds.is_empty() || of_kinds == self.ops;
        invariant!(is_complete, "each operation of a mixed run counts as one kind");
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

/// Reads the counters before and after a run, and makes figures of their difference.
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

    /// Flushes the store if `tally` has writes, waits for all background work if `settle` is set, and
    /// computes the figures. `live_bytes` is the size of the content as the driver knows it; if it does not,
    /// the store is asked.
    pub(crate) fn finish(
        self,
        tally: &Tally,
        elapsed: Duration,
        live_bytes: Option<u64>,
        settle: bool,
    ) -> Result<Figures> {
        tally.check();
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
            compaction: counted.compaction.map(|compaction| CompactionPlaces {
                host_cpu_seconds: cpu.as_secs_f64(),
                ..compaction
            }),
        })
    }
}

/// `part / whole`, or `None` if `whole` is 0.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then_some(part / whole)
}

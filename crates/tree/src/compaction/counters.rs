//! Statistics of compaction.

use std::collections::BTreeMap;
use std::time::Duration;

use compact::offload::{Decision, WorkerStatistics};
use compact::{VersionCounts, plan};
use parking_lot::Mutex;

/// Statistics of compaction since the store was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CompactionStatistics {
    /// Merges that are running now.
    pub running: usize,
    /// Merges that were installed.
    pub done: u64,
    /// Merges that failed.
    pub failed: u64,
    /// Why the last merge failed, until one succeeds; or that there is no space for the planned one.
    pub failing: Option<String>,
    /// Merges that were cancelled because the store was closed or the keyspace dropped.
    pub cancelled: u64,
    /// Trivial moves: tables that changed their run without being rewritten.
    pub moved: u64,
    /// Tables that were dropped as a whole, because no reader could see any version in them.
    pub dropped: u64,
    /// Merges by the planner's reason: count, bytes read, bytes written.
    pub by_reason: Vec<(&'static str, u64, u64, u64)>,
    /// Versions that merges read, and those they dropped.
    pub entries: DroppedEntries,
    /// Pages that merges copied unchanged (block passthrough).
    pub pages_passed: u64,
    /// The compaction debt of all keyspaces, bytes.
    pub debt_bytes: u64,
    /// Tables that are left out of merges because they are damaged.
    pub damaged_tables: usize,
    /// Merges of those in `done` that workers ran.
    pub remote: u64,
    /// Attempts of workers that failed or were cancelled.
    pub fallbacks: u64,
    /// Processor time of steps of merges in this process, verification included.
    pub host_cpu: Duration,
    /// Bytes of outputs of workers that verification read.
    pub verified_bytes: u64,
    /// The last places of merges, newest last, with the reasons; those of the process, so all its stores
    /// together.
    pub decisions: Vec<Decision>,
    /// The workers; those of the process, so all its stores together.
    pub workers: Vec<WorkerStatistics>,
}

impl CompactionStatistics {
    /// Bytes of all merges' inputs.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.by_reason.iter().map(|(_, _, read, _)| read).sum()
    }

    /// Bytes of all merges' outputs.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.by_reason.iter().map(|(_, _, _, written)| written).sum()
    }
}

/// Versions that merges read and dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedEntries {
    /// Versions read.
    pub read: u64,
    /// A newer version hides it from every reader.
    pub superseded: u64,
    /// A range delete hides it from every reader.
    pub range_deleted: u64,
    /// Tombstones with no older version below them.
    pub deleted: u64,
    /// Expired, with no older version below.
    pub expired: u64,
    /// Merge operands that were combined into one value.
    pub merged: u64,
    /// Not retained by a partial discard of a window.
    pub evicted: u64,
}

impl DroppedEntries {
    fn of(counts: VersionCounts) -> Self {
        let VersionCounts { read, superseded, range_deleted, deleted, expired, .. } = counts;
        let VersionCounts { merged, evicted, .. } = counts;
        Self { read, superseded, range_deleted, deleted, expired, merged, evicted }
    }
}

/// The result of an installed merge.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The planner's reason.
    pub reason: plan::Reason,
    /// The tables that were written.
    pub outputs: Vec<base::TableId>,
    /// Bytes of inputs that were read.
    pub bytes_read: u64,
    /// Bytes of the tables that were written.
    pub bytes_written: u64,
    /// Bytes of the value file that was written.
    pub values_bytes: u64,
    /// Versions read and dropped.
    pub counts: VersionCounts,
    /// Pages that were copied unchanged.
    pub pages_passed: u64,
    /// Whether a worker ran it.
    pub remote: bool,
    /// Bytes of its outputs that verification read, if a worker ran it.
    pub verified_bytes: u64,
    /// For a merge into the oldest data of the keyspace: its bytes.
    pub turnover: Option<TurnoverBytes>,
}

/// The bytes of a merge into the oldest data, separated values included: they show how much of newer runs
/// supersedes older versions.
#[derive(Clone, Copy, Debug)]
pub struct TurnoverBytes {
    /// Bytes of the inputs above the oldest run.
    pub newer: u64,
    /// Bytes of the inputs in the oldest run.
    pub oldest: u64,
    /// Bytes of the outputs.
    pub outputs: u64,
}

/// Sums over all merges. One short lock per merge.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Totals>);

#[derive(Debug, Default)]
struct Totals {
    failed: u64,
    cancelled: u64,
    moved: u64,
    dropped: u64,
    by_reason: BTreeMap<plan::Reason, (u64, u64, u64)>,
    counts: VersionCounts,
    pages_passed: u64,
    remote: u64,
    verified_bytes: u64,
    host_cpu: Duration,
}

impl Counters {
    /// Counts processor time of a step.
    pub(super) fn stepped(&self, cpu: Duration) {
        self.0.lock().host_cpu += cpu;
    }

    pub(super) fn merged(&self, merged: &Merged) {
        let mut totals = self.0.lock();
        let (count, read, written) = totals.by_reason.entry(merged.reason).or_default();
        *count += 1;
        *read += merged.bytes_read;
        *written += merged.bytes_written + merged.values_bytes;
        totals.counts += merged.counts;
        totals.pages_passed += merged.pages_passed;
        totals.remote += u64::from(merged.remote);
        totals.verified_bytes += merged.verified_bytes;
    }

    pub(super) fn failed(&self) {
        self.0.lock().failed += 1;
    }

    pub(super) fn cancelled(&self) {
        self.0.lock().cancelled += 1;
    }

    pub(super) fn moved(&self) {
        self.0.lock().moved += 1;
    }

    pub(super) fn dropped(&self) {
        self.0.lock().dropped += 1;
    }

    /// The sums. The state of running jobs is left for the caller to fill in.
    pub(super) fn statistics(&self) -> CompactionStatistics {
        let totals = self.0.lock();
        let by_reason = totals.by_reason.iter();
        CompactionStatistics {
            done: totals.by_reason.values().map(|(count, ..)| count).sum(),
            failed: totals.failed,
            cancelled: totals.cancelled,
            moved: totals.moved,
            dropped: totals.dropped,
            by_reason: by_reason.map(|(why, (n, r, w))| (why.name(), *n, *r, *w)).collect(),
            entries: DroppedEntries::of(totals.counts),
            pages_passed: totals.pages_passed,
            remote: totals.remote,
            verified_bytes: totals.verified_bytes,
            host_cpu: totals.host_cpu,
            ..CompactionStatistics::default()
        }
    }
}

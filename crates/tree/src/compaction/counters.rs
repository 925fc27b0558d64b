//! What compaction did, in numbers.

use std::collections::BTreeMap;

use compact::{VersionCounts, plan};
use parking_lot::Mutex;

/// What compaction did since the store was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CompactionStatistics {
    /// Merges running now.
    pub running: usize,
    /// Merges that were installed.
    pub done: u64,
    /// Merges that failed, and why the last one did, until one succeeds; or that there is no space
    /// for what is to be merged.
    pub failed: u64,
    /// See `failed`.
    pub failing: Option<String>,
    /// Merges given up because the store was closed, or the keyspace dropped.
    pub cancelled: u64,
    /// Tables whose place changed without a rewrite.
    pub moved: u64,
    /// Tables that went as a whole, with nothing in them that anyone could still read.
    pub dropped: u64,
    /// Merges by reason: how many, bytes read, bytes written.
    pub by_reason: Vec<(&'static str, u64, u64, u64)>,
    /// Versions that merges read, and those they left out.
    pub entries: DroppedEntries,
    /// Pages that passed through merges as they were.
    pub pages_passed: u64,
    /// Bytes still to be merged until every keyspace is settled.
    pub debt_bytes: u64,
    /// Tables kept out of merges because one met damage in them.
    pub damaged_tables: usize,
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

/// Versions that merges read and left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedEntries {
    /// Read.
    pub read: u64,
    /// Hidden from every reader by a newer version.
    pub superseded: u64,
    /// Hidden from every reader by a range delete.
    pub range_deleted: u64,
    /// Deletes with nothing left under them.
    pub deleted: u64,
    /// Expired, with nothing under them.
    pub expired: u64,
    /// Merge operands that became one value.
    pub merged: u64,
}

impl From<VersionCounts> for DroppedEntries {
    fn from(counts: VersionCounts) -> Self {
        let VersionCounts { read, superseded, range_deleted, deleted, expired, merged, .. } =
            counts;
        Self { read, superseded, range_deleted, deleted, expired, merged }
    }
}

/// How a merge ended.
#[derive(Clone, Debug)]
pub struct Merged {
    pub reason: plan::Reason,
    pub outputs: Vec<base::TableId>,
    pub bytes_read: u64,
    /// Of tables.
    pub bytes_written: u64,
    /// Of value files.
    pub values_bytes: u64,
    pub counts: VersionCounts,
    pub pages_passed: u64,
    /// What inputs above the oldest run hold, in it, and what the outputs hold, bytes; where that is the
    /// keyspace's oldest.
    pub turnover: Option<(u64, u64, u64)>,
}

/// Adds up what merges did. One short lock a merge.
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
}

impl Counters {
    pub(super) fn merged(&self, merged: &Merged) {
        let mut totals = self.0.lock();
        let (count, read, written) = totals.by_reason.entry(merged.reason).or_default();
        *count += 1;
        *read += merged.bytes_read;
        *written += merged.bytes_written + merged.values_bytes;
        totals.counts += merged.counts;
        totals.pages_passed += merged.pages_passed;
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

    /// The totals; what jobs are doing now is left to be filled in.
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
            entries: totals.counts.into(),
            pages_passed: totals.pages_passed,
            ..CompactionStatistics::default()
        }
    }
}

//! The planner's input: plain data that describes a tree, made by the engine from its current version.

use std::sync::Arc;

use base::{RunId, Seqno, TableId};
use bytes::Bytes;

use super::Demand;
use crate::Horizon;

/// Files below this length have fewer than ten split keys, because there is one per partition of some hundred
/// pages.
const SHORT_BYTES: u64 = 4 << 20;

/// A table file. Immutable: made once per table and shared by all summaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSummary {
    /// The table's id.
    pub id: TableId,
    /// Length of the file, bytes.
    pub bytes: u64,
    /// Versions of keys in the file, including tombstones.
    pub entries: u64,
    /// Tombstones in the file.
    pub deletes: u64,
    /// Range deletes in the file.
    pub range_deletes: u64,
    /// Expiry of the last entry to expire, Unix milliseconds; 0: some entry never expires.
    pub latest_expiry: u64,
    /// The newest sequence number in the file.
    pub seqno_max: Seqno,
    /// The first key and the last key of the file; empty if they are not known.
    pub first_key: Bytes,
    /// See `first_key`.
    pub last_key: Bytes,
    /// Keys behind the first one at which the file may be cut, with the file's bytes before each; both
    /// ascend.
    pub splits: Vec<(Bytes, u64)>,
    /// Value files that the table points into, with the bytes it uses of each.
    pub values: Vec<(TableId, u64)>,
    /// Versions kept only for reads older than the version that supersedes them.
    pub superseded: Superseded,
}

/// Superseded versions that a flush or a merge kept in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Superseded {
    /// Approximate bytes of these versions in the file, and of the separated values that they point at.
    pub bytes: u64,
    /// Sequence number of the oldest of these versions.
    pub oldest: Seqno,
    /// The newest sequence number that supersedes one of these versions.
    pub by: Seqno,
}

impl Superseded {
    /// Bytes that a merge frees: all, or none while a read may need one of these versions.
    #[must_use]
    pub fn garbage(&self, readers: &Horizon) -> u64 {
        if self.bytes == 0 || readers.needs(self.oldest, self.by) { 0 } else { self.bytes }
    }
}

impl FileSummary {
    /// Memory of the summary, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let splits = self.splits.iter().map(|(key, _)| key.len() + size_of::<(Bytes, u64)>());
        size_of::<Self>() + splits.sum::<usize>() + self.values.len() * size_of::<(TableId, u64)>()
    }

    /// Bytes of separated values that the table points at.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        self.values.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Whether the file has too few split keys to locate its bytes.
    pub(super) const fn is_short(&self) -> bool {
        self.bytes < SHORT_BYTES
    }

    /// Whether the file is short and the separated values that it points at are larger than itself.
    pub(super) fn is_of_pointers(&self) -> bool {
        self.is_short() && self.value_bytes() > self.bytes
    }
}

/// The key range of a table file that a run uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The file.
    pub file: Arc<FileSummary>,
    /// 0 for a flushed table; outputs of merges have higher levels.
    pub level: u8,
    /// First key of the range.
    pub first: Bytes,
    /// The range ends before this key; `None`: it has no upper bound.
    pub end: Option<Bytes>,
    /// Whether the table is quarantined: no job reads it, and nothing moves past it.
    pub damaged: bool,
}

impl Piece {
    /// Whether all entries have expired at `now_ms`, Unix milliseconds.
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.file.latest_expiry != 0 && self.file.latest_expiry <= now_ms
    }

    /// Whether every entry is a tombstone.
    pub(super) fn is_all_deletes(&self) -> bool {
        self.file.deletes == self.file.entries
    }
}

/// A piece with all its keys covered by a range delete in a newer run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// The piece's run.
    pub run: RunId,
    /// The position of the piece in its run.
    pub piece: usize,
    /// The oldest sequence number in the piece's file.
    pub oldest: Seqno,
    /// The sequence number of the range delete, or the newest of several that cover the piece together: from
    /// it on no reader sees the piece.
    pub by: Seqno,
}

/// A run: pieces that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// A larger id is newer.
    pub id: RunId,
    /// The pieces, ascending by key.
    pub pieces: Vec<Piece>,
}

/// The rectangle of a running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The newest run of the job.
    pub newest: RunId,
    /// The oldest run of the job, which its outputs join.
    pub oldest: RunId,
    /// First key of the job.
    pub first: Bytes,
    /// The job's key range ends before this key; `None`: it has no upper bound.
    pub end: Option<Bytes>,
    /// Bytes that the job may still write.
    pub bytes: u64,
}

/// A manual compaction: a key range that a user wants merged into one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManualRange {
    /// First key of the range.
    pub first: Bytes,
    /// The range ends before this key; `None`: it has no upper bound.
    pub end: Option<Bytes>,
    /// The newest run when the user asked. Later runs are left out, so that the work ends.
    pub newest: RunId,
}

/// A value file that tables point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueFileSummary {
    /// The value file's id.
    pub id: TableId,
    /// Bytes of all values written to the file.
    pub bytes: u64,
    /// Whether the file is not to be collected, because its values are damaged.
    pub excluded: bool,
}

/// The tables of one keyspace at one instant, and everything else that the planner considers.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The runs that are not empty, newest first.
    pub runs: Vec<RunSummary>,
    /// The pieces that range deletes hide.
    pub hidden: Vec<Hidden>,
    /// The value files that tables point into.
    pub values: Vec<ValueFileSummary>,
    /// Rectangles of running jobs. Their inputs are still in `runs`.
    pub busy: Vec<Area>,
    /// Free bytes on the device; `None` if unknown.
    pub free_bytes: Option<u64>,
    /// The current time, Unix milliseconds: entries with an earlier expiry are garbage.
    pub now_ms: u64,
    /// The sequence numbers of open reads. Tombstones up to the oldest, and versions that no read needs, can
    /// be dropped.
    pub readers: Horizon,
    /// Whether the keyspace had no writes for a while: the tree may settle.
    pub quiet: bool,
    /// Whether range deletes take so much memory that a column with some is merged for that alone.
    pub range_deletes_pressing: bool,
    /// A user's manual compaction, if any.
    pub manual: Option<ManualRange>,
    /// Approximate bytes of a flushed table.
    pub unit_bytes: u64,
    /// Bytes of a table file beside its entries, at least.
    pub overhead_bytes: u64,
    /// Share of the bytes in newer runs that supersede older versions, 0 to 1: see [`super::Turnover`].
    pub superseding: f64,
    /// Rates of reads and writes.
    pub demand: Demand,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            values: Vec::new(),
            busy: Vec::new(),
            hidden: Vec::new(),
            free_bytes: None,
            now_ms: 0,
            readers: Horizon::new(vec![Seqno::MAX]),
            quiet: false,
            range_deletes_pressing: false,
            manual: None,
            unit_bytes: 16 << 20,
            overhead_bytes: 0,
            superseding: 1.0,
            demand: Demand::default(),
        }
    }
}

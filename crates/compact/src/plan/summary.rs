//! What the planner knows of a tree: plain data, made by the engine from its version in force.

use std::sync::Arc;

use base::{RunId, Seqno, TableId};
use bytes::Bytes;

use super::Demand;
use super::columns::SMALL_BYTES;
use crate::Horizon;

/// A table file. Immutable: made once for each table and shared by all summaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSummary {
    /// Its identity.
    pub id: TableId,
    /// Its length, bytes.
    pub bytes: u64,
    /// Versions of keys in it, those that delete among them.
    pub entries: u64,
    /// Versions that delete their key.
    pub deletes: u64,
    /// Deletes of ranges of keys.
    pub range_deletes: u64,
    /// When the last entry expires, Unix milliseconds; 0: some entry never does.
    pub latest_expiry: u64,
    /// The newest sequence number in it.
    pub seqno_max: Seqno,
    /// Keys with the bytes of the file before them, ascending in both: where it may be cut.
    pub splits: Vec<(Bytes, u64)>,
    /// Value files it points into, with the bytes it uses of each.
    pub values: Vec<(TableId, u64)>,
    /// Versions in it that were kept for who reads before what supersedes them.
    pub superseded: Superseded,
}

/// Superseded versions of a table that a flush or a merge kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Superseded {
    /// About the bytes of the file that they take, and of the long values that they point at.
    pub bytes: u64,
    /// The oldest of them.
    pub oldest: Seqno,
    /// The newest version or range delete that supersedes one of them.
    pub by: Seqno,
}

impl Superseded {
    /// The bytes that a merge frees: all, or none while somebody may need one of them.
    #[must_use]
    pub fn garbage(&self, readers: &Horizon) -> u64 {
        if self.bytes == 0 || readers.needs(self.oldest, self.by) { 0 } else { self.bytes }
    }
}

impl FileSummary {
    /// The bytes of the long values it points at.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        self.values.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Whether it is short and holds more by pointing at it than itself.
    pub(super) fn is_of_pointers(&self) -> bool {
        self.bytes < SMALL_BYTES && self.value_bytes() > self.bytes
    }
}

/// What a run has of a table file: its keys from `first` on and before `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The file.
    pub file: Arc<FileSummary>,
    /// 0 for what a flush wrote; a merge's outputs lie deeper.
    pub level: u8,
    /// The first key that may be in it.
    pub first: Bytes,
    /// The key before which it ends; `None`: it goes on to the last key there is.
    pub end: Option<Bytes>,
    /// Known to be damaged: it is no input of any job, and nothing moves past it.
    pub damaged: bool,
}

impl Piece {
    /// Whether all that is left of it expired by `now_ms`, Unix milliseconds.
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.file.latest_expiry != 0 && self.file.latest_expiry <= now_ms
    }

    /// Whether it holds nothing but deletes.
    pub(super) fn is_all_deletes(&self) -> bool {
        self.file.deletes == self.file.entries
    }
}

/// Tables that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// A larger one is newer.
    pub id: RunId,
    /// By first key.
    pub pieces: Vec<Piece>,
}

/// The rectangle that a running job works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The newest of its runs.
    pub newest: RunId,
    /// The oldest of its runs, where its outputs go.
    pub oldest: RunId,
    /// Its first key.
    pub first: Bytes,
    /// The key before which it ends; `None`: it goes on to the last key there is.
    pub end: Option<Bytes>,
    /// Bytes it may still write.
    pub bytes: u64,
}

/// A range that a user belongs_to_slice merged down into one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManualRange {
    /// Its first key.
    pub first: Bytes,
    /// The key before which it ends; `None`: it goes on to the last key there is.
    pub end: Option<Bytes>,
    /// The newest run when it was manual_runs for: later ones are left, so that the work has an end.
    pub newest: RunId,
}

/// A value file that tables point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueFileSummary {
    /// Its identity.
    pub id: TableId,
    /// The bytes of all values written to it.
    pub bytes: u64,
    /// It is not to be collected: it is damaged.
    pub excluded: bool,
}

/// One keyspace's tables at one moment, and what else decides what to do with them.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The runs that hold anything, newest first.
    pub runs: Vec<RunSummary>,
    /// The value files that tables point into.
    pub values: Vec<ValueFileSummary>,
    /// Where jobs are running. What they take in is still in `runs`.
    pub busy: Vec<Area>,
    /// Space left on the device, bytes, where it is known.
    pub free_bytes: Option<u64>,
    /// Now, Unix milliseconds: what expires by then is garbage.
    pub now_ms: u64,
    /// The sequence numbers at which anyone reads: deletes up to the oldest can be dropped, and versions
    /// that none of them needs.
    pub readers: Horizon,
    /// Nobody has written for a while: time to settle.
    pub quiet: bool,
    /// What a user manual_runs for.
    pub manual: Option<ManualRange>,
    /// About the size of a flushed table, bytes.
    pub unit_bytes: u64,
    /// The share of what newer runs hold that supersedes older versions, 0 to 1: see
    /// [`super::Turnover`].
    pub superseding: f64,
    /// How much it is read and written.
    pub demand: Demand,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            values: Vec::new(),
            busy: Vec::new(),
            free_bytes: None,
            now_ms: 0,
            readers: Horizon::new(vec![Seqno::MAX]),
            quiet: false,
            manual: None,
            unit_bytes: 16 << 20,
            superseding: 1.0,
            demand: Demand::default(),
        }
    }
}

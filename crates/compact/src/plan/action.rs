//! The planner's answers: drop, move or merge.

use std::fmt;

use base::{RunId, TableId};
use bytes::Bytes;

use super::Piece;

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Pieces to drop without reading them: every entry expired or is a tombstone, and no older piece lies
    /// below.
    Drop(Vec<(RunId, Piece)>),
    /// Pieces to move to older runs without reading them (trivial moves). One manifest record.
    Move(Vec<Move>),
    /// A merge.
    Merge(Merge),
}

/// A trivial move of one piece.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The piece.
    pub piece: Piece,
    /// Its run.
    pub from: RunId,
    /// The older run that it joins.
    pub into: RunId,
}

/// A merge of one rectangle: all pieces of the runs from the newest input to `into` within a key range.
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// Inputs by run, newest run first. Pieces are clipped to the key range and ascend by key.
    pub inputs: Vec<(RunId, Vec<Piece>)>,
    /// First key of the range.
    pub first: Bytes,
    /// The key range ends before this key; `None`: it has no upper bound.
    pub end: Option<Bytes>,
    /// The run of the outputs: the oldest input run.
    pub into: RunId,
    /// The level of the outputs.
    pub level: u8,
    /// Whether no piece older than the inputs lies in the key range.
    pub oldest: bool,
    /// The reason for the merge.
    pub reason: Reason,
    /// Approximate bytes of the inputs.
    pub bytes: u64,
    /// Maximum length of an output table, bytes.
    pub table_bytes: u64,
    /// Filter bits per key of the outputs.
    pub filter_bits: f32,
    /// Value files with live values that the merge copies so that the files become obsolete; ascending.
    pub collect: Vec<TableId>,
}

impl Merge {
    /// The newest input run.
    #[must_use]
    pub fn newest(&self) -> RunId {
        self.inputs.first().map_or(self.into, |(run, _)| *run)
    }
}

/// The reason for a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Too many runs of one level overlap.
    Runs,
    /// Scans would gain more from fewer runs than the merge costs.
    Reads,
    /// Superseded versions take too much space.
    Space,
    /// Too many entries are tombstones or expired.
    Deletes,
    /// A user asked for it.
    Manual,
    /// The tree has no writes, so it is merged to few runs.
    Settle,
    /// Most of a value file is dead.
    Values,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Runs,
        Self::Reads,
        Self::Space,
        Self::Deletes,
        Self::Manual,
        Self::Settle,
        Self::Values,
    ];

    /// The reason in one word, for statistics and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Reads => "reads",
            Self::Space => "space",
            Self::Deletes => "deletes",
            Self::Manual => "manual",
            Self::Settle => "settle",
            Self::Values => "values",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

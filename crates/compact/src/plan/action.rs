//! What the planner answers.

use std::fmt;

use base::{RunId, TableId};
use bytes::Bytes;

use super::Piece;

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Pieces whose every entry expired or deletes, with nothing older below: they go as they are.
    Drop(Vec<(RunId, Piece)>),
    /// Pieces that sink to older runs without meeting anything: one record, no data is read.
    Move(Vec<Move>),
    /// A merge.
    Merge(Merge),
}

/// A piece that changes its run.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// What moves.
    pub piece: Piece,
    /// Where it is.
    pub from: RunId,
    /// Where it goes: older.
    pub into: RunId,
}

/// A merge of one rectangle: all that the runs from the newest to `into` hold in a range of keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// Inputs by run, newest run first; pieces cut to the range, in the order of their keys.
    pub inputs: Vec<(RunId, Vec<Piece>)>,
    /// The range's first key.
    pub first: Bytes,
    /// The key before which the range ends; `None`: it goes on to the last key there is.
    pub end: Option<Bytes>,
    /// The run of the outputs: the oldest of the inputs'.
    pub into: RunId,
    /// The level of the outputs.
    pub level: u8,
    /// Whether nothing older lies below: the outputs are of the tree's oldest run there.
    pub oldest: bool,
    /// Why.
    pub reason: Reason,
    /// About the bytes of its inputs.
    pub bytes: u64,
    /// The longest output table, bytes.
    pub table_bytes: u64,
    /// Filter bits for each key of the outputs.
    pub filter_bits: f32,
    /// Value files whose live values it copies, so that they can go; ascending.
    pub collect: Vec<TableId>,
}

impl Merge {
    /// The newest of its runs.
    #[must_use]
    pub fn newest(&self) -> RunId {
        self.inputs.first().map_or(self.into, |(run, _)| *run)
    }
}

/// Why a merge is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Too many runs of one level lie one above the other.
    Runs,
    /// So much is scanned that fewer runs save more than merging them takes.
    Reads,
    /// Superseded versions take too much space.
    Space,
    /// Many entries are deletes, or expired.
    Deletes,
    /// A user manual_runs for it.
    Manual,
    /// Nobody writes: time to settle.
    Settle,
    /// Most of a value file is dead.
    Values,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Runs,
        Self::Reads,
        Self::Space,
        Self::Deletes,
        Self::Manual,
        Self::Settle,
        Self::Values,
    ];

    /// One word for statistics and reports.
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

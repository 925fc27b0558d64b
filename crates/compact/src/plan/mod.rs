//! The compaction planner: a pure function from a summary of the tree to the next compaction.
//!
//! The engine makes a [`Summary`] of a keyspace when something changed, asks [`plan`] for the next action and
//! runs it. Several jobs may run at once, each in its own [`Area`]. The planner reads no clock and draws no
//! random number: equal summaries give equal plans. Any thread may call it.
//!
//! # Model
//! A tree is a list of runs ordered by age. Tables of one run do not overlap. If two runs overlap, the newer
//! one holds the newer versions (I4). A merge takes one rectangle, the pieces of age-contiguous runs within a
//! key range, and writes its outputs to the oldest of these runs. So two large runs are merged by a series of
//! small jobs, called *slices*. Each slice is useful by itself, an interrupted series continues later, and no
//! job needs the free space of a whole run.
//!
//! # Policy
//! The planner divides the key space into *columns*: key ranges in which the same pieces overlap. A get
//! searches one column, so the planner bounds the number of pieces in each column. It has these reasons to
//! merge ([`Reason`]):
//!
//! - Runs: compaction is tiered. If a column holds [`Options::fanout`] pieces of one level, they are merged
//!   into one piece of the next level. A run far longer than the others of its level is left out.
//! - Reads: a level is merged before it is full if that saves readers more time than the merge takes
//!   ([`Demand`]).
//! - Space: if the tree takes more than [`Options::space_max`] times its live content, the adjacent columns
//!   that free most for their cost are merged down to the oldest run. Merging column after column needs half
//!   the space of merging whole runs at the same cost: only the next column holds its full share of garbage,
//!   and the column merged last holds none. Versions kept for a snapshot count as content while a snapshot
//!   needs any of them in their table, and as garbage afterwards ([`Superseded`]).
//! - Deletes, Values: a column holds many tombstones or expired entries; a value file is mostly dead.
//! - Settle: a tree without writes is merged in small steps until it has few runs
//!   ([`Options::settled_runs`]).
//! - Manual: a user asked for it.
//!
//! docs/decisions/005-compaction.md compares this tree shape with others. Related work: tiering, leveling and
//! lazy leveling are compared in "Dostoevsky" (Dayan and Idreos, 2018); newer, smaller runs get more filter
//! bits as in "Monkey" (Dayan et al., 2017); choosing by space freed per byte of work is the cleaner of "LFS"
//! (Rosenblum and Ousterhout, 1991).
//!
//! # Cost
//! O(pieces x depth) time and memory: a few milliseconds for a thousand tables with little overlap, about 25
//! ms on a busy machine for 600 tables that overlap forty deep.

mod action;
mod candidate;
mod columns;
mod cut_files;
mod debt;
mod demand;
pub mod hashed;
mod options;
mod pick;
mod placed;
mod slice;
mod summary;
mod tree_layout;
mod trivial;
mod turnover;
mod value_files;
mod window;

#[cfg(test)]
#[allow(clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod dense_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
mod space_tests;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests;

pub use action::{Merge, Move, Plan, Reason};
pub use debt::Debt;
pub use demand::{Demand, DemandMeter, UsageCounters};
pub use options::{Options, filter_bits};
pub use summary::{
    Area, FileSummary, Hidden, ManualRange, Piece, RunSummary, Summary, Superseded,
    ValueFileSummary,
};
pub use tree_layout::TreeLayout;
pub use turnover::Turnover;

/// The next action for the tree; `None` if there is nothing to do now.
#[must_use]
pub fn plan(summary: &Summary, options: &Options) -> Option<Plan> {
    TreeLayout::new(summary, options).plan()
}

/// The compaction debt: the work left until the tree is settled.
#[must_use]
pub fn debt(summary: &Summary, options: &Options) -> Debt {
    TreeLayout::new(summary, options).debt()
}

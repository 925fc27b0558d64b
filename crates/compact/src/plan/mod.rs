//! Planning: which tables should be merged next, as a pure function of a summary of the tree.
//!
//! The engine makes a [`Summary`] of a keyspace whenever something changed, asks [`plan`] what to do
//! next and does it; several jobs may run at once, each in its own [`Area`]. Nothing here reads a
//! clock or draws a random number: the same summary gives the same plan.
//!
//! # The model
//! A tree is runs, ordered by age; tables of one run do not overlap, and where two runs overlap the
//! newer holds the newer versions (I4). A merge takes one rectangle, the pieces of age-contiguous runs
//! within a range of keys, and puts its outputs in the oldest of these runs. So a merge of two large
//! runs is a series of small jobs, *slices*, each of which is worth having; an interrupted series goes
//! on where it was, and no job needs the free space of a whole run.
//!
//! # The policy
//! The planner looks at the tree in *columns*: ranges of keys in which the same pieces lie one above
//! the other. A get looks through one column, so a column is what has to stay low. Runs are tiered_candidate:
//! where a column holds [`Options::fanout`] pieces of one level they become one of the next; a run far longer
//! than the others of its level is none of it. It is merged before where readers gain more by it than it
//! takes ([`Demand`]). The space
//! that superseded versions take is bounded apart from it: where the tree takes more than
//! [`Options::space_max`] times its content, the columns beside each other that give most back for what
//! it costs are merged down to the oldest run. Merging column after column keeps the tree at half the
//! space of one that merges whole runs at the same cost, since only the next column holds the full share
//! of garbage and the last one none. What was kept for snapshots is garbage of the table that holds it once
//! no snapshot needs any of it ([`Superseded`]), and content before. A tree that nobody writes to goes on,
//! in small steps, to a settled layout of few runs ([`Options::settled_runs`]). docs/performance.md has the
//! shapes that were compared.
//!
//! Related: tiering, leveling and lazy leveling are compared in "Dostoevsky" (Dayan and Idreos, 2018);
//! more filter bits for smaller runs are "Monkey" (Dayan et al., 2017); choosing by what a byte of
//! work gives back is the cleaner of "LFS" (Rosenblum and Ousterhout, 1991).
//!
//! # Cost
//! O(pieces x depth) time and memory: a few milliseconds for a thousand tables of which few lie over each
//! other, some 25 on a busy machine for 600 that lie forty deep.

mod action;
mod candidate;
mod columns;
mod cut_files;
mod demand;
mod options;
mod slice;
mod summary;
mod tree_layout;
mod trivial;
mod turnover;
mod value_files;
mod window;

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests;

pub use action::{Merge, Move, Plan, Reason};
pub use demand::{Demand, DemandMeter, UsageCounters};
pub use options::{Options, filter_bits};
pub use summary::{
    Area, FileSummary, ManualRange, Piece, RunSummary, Summary, Superseded, ValueFileSummary,
};
pub use tree_layout::{Debt, TreeLayout};
pub use turnover::Turnover;

/// What to do next with the tree, if anything.
#[must_use]
pub fn plan(summary: &Summary, options: &Options) -> Option<Plan> {
    TreeLayout::new(summary, options).plan()
}

/// What is left to do until the tree is settled.
#[must_use]
pub fn debt(summary: &Summary, options: &Options) -> Debt {
    TreeLayout::new(summary, options).debt()
}

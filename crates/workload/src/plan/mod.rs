//! What DRAM and storage-class memory would buy: mixes of both, weighed by a workload's miss-ratio curves.
//!
//! Three steps, each without the others' knowledge: a [`Demand`] says what a workload asks of memory (from
//! a trace by [`survey()`], or made of what an open store measured), [`Prices`] say what things cost and how
//! fast they are, [`plan()`] puts both together. docs/planning.md tells users what it assumes.

mod demand;
mod mix;
mod planner;
mod prices;
mod survey;

pub use demand::{Behind, Demand, Reads};
pub use mix::{Limit, Mix, Outcome};
pub use planner::{Plan, Planned, Question, Target, plan};
pub use prices::{Prices, Processor, Server, Tier};
pub use survey::{Layout, survey};

#[cfg(test)]
#[path = "../plan_tests.rs"]
mod tests;

//! Capacity planning: mixes of DRAM and storage-class memory, rated by a workload's miss-ratio curves.
//!
//! There are three independent parts. A [`Demand`] describes the workload, and comes from a trace by
//! [`survey()`] or from the statistics of an open store. [`Prices`] give cost and speed of the hardware.
//! [`plan()`] combines both. docs/planning.md tells users the assumptions.

mod demand;
mod mix;
mod planner;
mod prices;
mod requests;
mod survey;

pub use demand::{BehindRowCache, Demand, Reads};
pub use mix::{Limit, Mix, Outcome};
pub use planner::{Plan, Planned, Question, Target, plan};
pub use prices::{ObjectStore, Prices, Processor, Server, Tier};
pub use requests::Requests;
pub use survey::{Layout, survey};

#[cfg(test)]
#[path = "../plan_tests.rs"]
mod tests;

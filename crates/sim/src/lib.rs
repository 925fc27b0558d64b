//! TerraceDB internals: deterministic simulation of a store, its device, its clock and its users.
//!
//! A seed determines a [`Script`]: a sequence of steps with interleaved users, background work that advances
//! only when a step says so, a clock that jumps, a device that fails, an SCM tier that loses and garbles
//! pages, workers that merge over a faulty wire, and processes that die. Nothing else has an influence: there
//! is one thread, no machine clock and no real device. So a seed always gives the same history, down to the
//! last device operation, and a failing script can be repeated and shrunk.
//!
//! ```text
//! seed -> Script -> run: World { Faulty device, TierStorage, ManualClock, Stepper, Db }
//!                          compares each answer with a History (the model)
//!                          -> Report, or Failure -> shrink
//! ```
//!
//! The model: the writes in order, which of them were acknowledged, and which must survive a power cut. After
//! a crash the store must hold a prefix of the writes that includes all promised ones (I2, I11). Every other
//! answer must equal the model's.
//!
//! Outside the levels of docs/ARCHITECTURE.md: it may use every crate, and no crate uses it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing simulation is caught, reported with its seed, and shrunk"
)]

mod cells;
mod compare;
mod digest;
mod faults;
mod history;
mod maintenance;
mod opening;
mod process;
mod reads;
mod run;
mod script;
mod settings;
mod shrink;
mod step_error;
mod tier;
mod tier_steps;
mod tier_storage;
mod transactions;
mod users;
mod workers;
mod world;
mod writes;

pub use run::{Failure, Report, run, run_with, steps};
pub use script::{Action, Script, Step};
pub use settings::{CompactionStyle, TierSettings, Variant};
pub use shrink::shrink;
pub use tier::TierSums;
pub use workers::OffloadSums;

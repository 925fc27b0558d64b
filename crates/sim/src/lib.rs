//! TerraceDB internals: deterministic simulation of a store, its device, its time and its users.
//!
//! A seed gives a [`Script`]: the steps that a store lives through on a simulated device, with users
//! that interleave, background work that takes a step when a generator says so, a clock that jumps,
//! a device that fails, a tier below DRAM that loses and garbles what it likes, and processes that die.
//! Nothing else decides anything: one thread, no machine clock, no real device. So a seed gives the same
//! history each time, to the last device operation, and what fails can be run again and made shorter.
//!
//! ```text
//!   seed -> Script -> run: World { Faulty device, TierStorage of a tier, ManualClock, Stepper, Db }
//!                          each answer is held against a History (the model)
//!                          -> Report, or Failure -> shrink
//! ```
//!
//! The model: the writes in their order, which of them were acknowledged, and which were promised to
//! survive a power cut. What a crash leaves must be a prefix of the writes that is no shorter than
//! the promise (I2, I11); every other answer must be the model's own.
//!
//! Stands beside the levels of docs/ARCHITECTURE.md: it may use everything, nothing uses it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a simulation that breaks is caught, told with its seed, and made shorter"
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
mod world;
mod writes;

pub use run::{Failure, Report, run, run_with, steps};
pub use script::{Action, Script, Step};
pub use settings::{CompactionStyle, TierSettings, Variant};
pub use shrink::shrink;
pub use tier::TierSums;

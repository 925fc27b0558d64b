//! Simulations of crashes, faults and time: `crates/sim`, for as long as one likes.

use crate::Result;
use crate::command::{self, cargo};

/// Runs the simulator, optimised, with assertions on: `[--hours H] [--seed S] [--all] ...`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let profile = [
        "profile.long.inherits='release'",
        "profile.long.debug-assertions=true",
        "profile.long.overflow-checks=true",
    ];
    let settings = profile.into_iter().flat_map(|setting| ["--config", setting]);
    let mut command = cargo(["run", "--package", "terrace-sim", "--profile", "long"]);
    command.args(settings).arg("--").args(arguments);
    command::run(command)
}

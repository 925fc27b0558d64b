//! Simulations of crashes, faults and time: `crates/sim`, for as long as one likes.

use std::env;
use std::process::Command;

use crate::Result;
use crate::command::{self, cargo};

/// Runs the simulator that the tests left beside this program for a minute, from `seed` on. (`cargo run`
/// of one package would build everything anew, with that package's features alone.)
pub(crate) fn run_briefly(seed: &str) -> Result {
    let mut simulator = Command::new(env::current_exe()?.with_file_name("terrace-sim"));
    simulator.args(["--seed", seed, "--seconds", "60"]);
    command::run(simulator)
}

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

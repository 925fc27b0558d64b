//! Simulations of crashes, faults and time by `crates/sim`.

use std::env;
use std::process::Command;

use crate::Result;
use crate::command::{self, cargo};

/// Runs the simulator for a minute, from `seed` on. The build of the tests left the program beside this one;
/// `cargo run --package` would rebuild its dependencies, because one package alone selects other features.
pub(crate) fn run_briefly(seed: &str) -> Result {
    let mut simulator = Command::new(env::current_exe()?.with_file_name("terrace-sim"));
    simulator.args(["--seed", seed, "--seconds", "60"]);
    command::run(simulator)
}

/// Runs the simulator with `[--hours H] [--seed S] [--all] ...`, optimised, with assertions on.
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

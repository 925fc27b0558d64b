//! The tests: the default ones, which anyone runs at any time, and all of them.

use std::process::Command;

use crate::Result;
use crate::command::{self, cargo, cargo_nightly, succeeds};
use crate::metadata::packages;

/// The feature that puts a crate's concurrent code on shuttle's scheduler, and the name its tests
/// begin with.
const SHUTTLE: &str = "shuttle";

/// The crates whose unsafe code or orderings Miri can check, and which of their tests: those that make no
/// system calls.
const MIRI_CRATES: [(&str, &[&str]); 3] = [
    ("terrace-arena", &[]),
    ("terrace-media", &["--lib", "scm::slots"]),
    ("terrace-cache", &["--lib", "row_sets::group"]),
];

/// Runs the default tests, on shuttle's scheduler too where a crate asks for it: minutes, no
/// setting needed.
pub(crate) fn run(arguments: &[&str]) -> Result {
    if !arguments.is_empty() {
        return command::run(cargo(["test", "--workspace"].iter().chain(arguments).copied()));
    }
    run_all(None)
}

/// The same with one seed for whatever is random, unless another is set: what must pass before a merge judges
/// the change, and not what chance finds in the rest. That is for every other run of the tests to find.
pub(crate) fn run_fixed(seed: &str) -> Result {
    run_all(std::env::var_os("TERRACE_SEED").is_none().then_some(seed))
}

fn run_all(seed: Option<&str>) -> Result {
    let run = |mut command: Command| {
        command.envs(seed.map(|seed| ("TERRACE_SEED", seed)));
        command::run(command)
    };
    run(cargo(["test", "--workspace"]))?;
    for package in packages()? {
        if package.features.contains_key(SHUTTLE) {
            let name = package.name.as_str();
            run(cargo(["test", "--package", name, "--features", SHUTTLE, SHUTTLE]))?;
        }
    }
    Ok(())
}

/// Runs the tests of unsafe code under Miri.
pub(crate) fn run_miri(arguments: &[&str]) -> Result {
    if !succeeds(cargo_nightly(["miri", "--version"])) {
        return Err("this needs Miri:\n\
             \x20 rustup toolchain install nightly --profile minimal --component miri,rust-src"
            .into());
    }
    for (name, tests) in MIRI_CRATES {
        let words = ["miri", "test", "--package", name];
        command::run(cargo_nightly(words.iter().chain(tests).chain(arguments).copied()))?;
    }
    Ok(())
}

/// Runs every test: ignored ones too, and more rounds where a test loops (`TERRACE_LONG=1`).
///
/// Optimised, or the rounds would be few; with assertions and overflow checks, or they would
/// prove little.
pub(crate) fn run_long(arguments: &[&str]) -> Result {
    let profile = [
        "profile.long.inherits='release'",
        "profile.long.debug-assertions=true",
        "profile.long.overflow-checks=true",
    ];
    let settings = profile.into_iter().flat_map(|setting| ["--config", setting]);
    let mut command = cargo(["test", "--workspace", "--profile", "long"]);
    command.args(settings).args(arguments);
    if !arguments.contains(&"--") {
        command.arg("--");
    }
    command.arg("--include-ignored").env("TERRACE_LONG", "1");
    command::run(command)
}

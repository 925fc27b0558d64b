//! The tests: the default ones, which anyone runs at any time, and all of them.

use crate::Result;
use crate::command::{self, cargo, cargo_nightly, succeeds};
use crate::metadata::packages;
use crate::suite::Suite;

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
/// setting needed. All of them, whatever fails, and says what they came to.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let mut suite = Suite::new();
    if arguments.is_empty() {
        run_all(&mut suite, None)?;
    } else {
        let words = ["test", "--workspace", "--no-fail-fast"];
        suite.run("tests", cargo(words.iter().chain(arguments).copied()));
    }
    suite.end("test")
}

/// The same as a part of `suite`, with one seed for whatever is random, unless another is set: what must
/// pass before a merge judges the change, and not what chance finds in the rest. That is for every other run
/// of the tests to find. Whether the tests were built.
pub(crate) fn run_fixed(suite: &mut Suite, seed: &str) -> Result<bool> {
    run_all(suite, std::env::var_os("TERRACE_SEED").is_none().then_some(seed))
}

fn run_all(suite: &mut Suite, seed: Option<&str>) -> Result<bool> {
    let test = |arguments: &[&str]| {
        let mut command = cargo(["test", "--no-fail-fast"].iter().chain(arguments).copied());
        command.envs(seed.map(|seed| ("TERRACE_SEED", seed)));
        command
    };
    let mut run = |name: &str, with: &str, arguments: &[&str]| {
        suite.tests(name, with, test(arguments), test(arguments))
    };
    if !run("tests", "", &["--workspace"]) {
        return Ok(false);
    }
    for package in packages()? {
        if package.features.contains_key(SHUTTLE) {
            let name = package.name.as_str();
            let arguments = ["--package", name, "--features", SHUTTLE, SHUTTLE];
            run(&format!("shuttle tests of {name}"), " on shuttle", &arguments);
        }
    }
    Ok(true)
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
    let mut command = cargo(["test", "--workspace", "--no-fail-fast", "--profile", "long"]);
    command.args(settings).args(arguments);
    if !arguments.contains(&"--") {
        command.arg("--");
    }
    command.arg("--include-ignored").env("TERRACE_LONG", "1");
    let mut suite = Suite::new();
    suite.run("tests", command);
    suite.end("long")
}

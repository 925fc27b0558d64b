//! The tests: the default ones, which take minutes, the long ones, and those under Miri.

use std::ffi::OsString;

use crate::command::{self, cargo, cargo_nightly, succeeds};
use crate::metadata::packages;
use crate::suite::Suite;
use crate::{Result, redis};

/// The feature that runs a crate's concurrent code on shuttle's scheduler. Names of tests that need it begin
/// with the same word.
const SHUTTLE: &str = "shuttle";

/// The feature of the program that its default build lacks.
pub(crate) const REMOTE: &str = "terrace/remote";

/// Crates with unsafe code or atomic orderings, and the arguments that select their tests without system
/// calls, which Miri cannot run.
const MIRI_CRATES: [(&str, &[&str]); 3] = [
    ("terrace-arena", &[]),
    ("terrace-media", &["--lib", "scm::slots"]),
    ("terrace-cache", &["--lib", "row_sets::group"]),
];

/// Runs the default tests, and the shuttle tests of each crate that has the feature. All run even if some
/// fail; a summary follows.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let mut suite = Suite::new();
    if arguments.is_empty() {
        run_all(&mut suite, &[])?;
    } else {
        let words = ["test", "--workspace", "--features", REMOTE, "--no-fail-fast"];
        suite.run("tests", cargo(words.iter().chain(arguments).copied()));
    }
    suite.finish("test")
}

/// Runs the default tests as a part of `suite`, and returns whether they were built. Random tests use `seed`,
/// unless `TERRACE_SEED` is set: a fixed seed keeps a random failure in old code from failing an unrelated
/// change. Every other run of the tests uses new seeds. Programs of Redis to compare with are downloaded.
pub(crate) fn run_with_seed(suite: &mut Suite, seed: &str) -> Result<bool> {
    let mut settings = vec![];
    if std::env::var_os("TERRACE_SEED").is_none() {
        settings.push(("TERRACE_SEED", seed.into()));
    }
    if let Some(programs) = redis::programs() {
        settings.push(("TERRACE_REDIS_SERVER", programs.join("redis-server").into()));
    }
    run_all(suite, &settings)
}

fn run_all(suite: &mut Suite, settings: &[(&str, OsString)]) -> Result<bool> {
    let test = |arguments: &[&str]| {
        let mut command = cargo(["test", "--no-fail-fast"].iter().chain(arguments).copied());
        command.envs(settings.iter().map(|(name, value)| (name, value)));
        command
    };
    let mut run = |name: &str, suffix: &str, arguments: &[&str]| {
        suite.build_and_run(name, suffix, test(arguments), test(arguments))
    };
    if !run("tests", "", &["--workspace", "--features", REMOTE]) {
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
    if let Some(missing) = missing_miri() {
        return Err(missing.into());
    }
    for (name, tests) in MIRI_CRATES {
        let words = ["miri", "test", "--package", name];
        command::run(cargo_nightly(words.iter().chain(tests).chain(arguments).copied()))?;
    }
    Ok(())
}

/// Says how to get Miri, if it is missing.
pub(crate) fn missing_miri() -> Option<&'static str> {
    let missing = "this needs Miri: rustup toolchain install nightly --profile minimal \
                   --component miri,rust-src";
    (!succeeds(cargo_nightly(["miri", "--version"]))).then_some(missing)
}

/// Runs every test, ignored ones too. `TERRACE_LONG=1` raises the number of rounds of tests that loop.
///
/// The build is optimised for more rounds in the same time, with assertions and overflow checks on.
pub(crate) fn run_long(arguments: &[&str]) -> Result {
    let profile = [
        "profile.long.inherits='release'",
        "profile.long.debug-assertions=true",
        "profile.long.overflow-checks=true",
    ];
    let settings = profile.into_iter().flat_map(|setting| ["--config", setting]);
    let words =
        ["test", "--workspace", "--features", REMOTE, "--no-fail-fast", "--profile", "long"];
    let mut command = cargo(words);
    command.args(settings).args(arguments);
    if !arguments.contains(&"--") {
        command.arg("--");
    }
    command.arg("--include-ignored").env("TERRACE_LONG", "1");
    let mut suite = Suite::new();
    suite.run("tests", command);
    suite.finish("long")
}

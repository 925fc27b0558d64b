//! The tests: the default ones, which anyone runs at any time, and all of them.

use crate::Result;
use crate::command::{self, cargo};

/// Runs the default tests: minutes, no setting needed.
pub(crate) fn run(arguments: &[&str]) -> Result {
    command::run(cargo(["test", "--workspace"].iter().chain(arguments).copied()))
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

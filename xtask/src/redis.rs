//! `terrace serve` beside what Redis's users have: Redis's own test suite, and client programs and libraries.

mod bench;
mod clients;
mod server;
mod suite;

use std::path::{Path, PathBuf};

use crate::command::{self, cargo};
use crate::{Result, debian, workspace};

pub(crate) use bench::run as run_bench;
pub(crate) use clients::run as run_clients;
pub(crate) use suite::run as run_suite;

/// The program `terrace` of a debug build.
const PROGRAM: &str = "target/debug/terrace";

/// What runs before each merge: units of the suite, and a library.
const UNITS: [&str; 3] = ["unit/type/string", "unit/type/hash", "unit/multi"];
const CLIENTS: [&str; 1] = ["redis-py"];

/// Programs of Redis 7.0 with the libraries that a bare machine lacks.
const PACKAGES: [&str; 5] =
    ["redis-tools", "redis-server", "libatomic1", "libjemalloc2", "liblzf1"];

/// Builds the server.
pub(crate) fn build() -> Result<PathBuf> {
    command::run(cargo(["build", "--package", "terrace"]))?;
    Ok(built())
}

/// Builds the server as users run it.
pub(crate) fn build_release() -> Result<PathBuf> {
    command::run(cargo(["build", "--release", "--package", "terrace"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| workspace::root().join("target"));
    Ok(target.join("release/terrace"))
}

/// The server that was built before.
fn built() -> PathBuf {
    workspace::root().join(PROGRAM)
}

/// Tests the program that the tests were built with.
pub(crate) fn run_brief() -> Result {
    both(&built(), &UNITS, &CLIENTS)
}

/// Tests with everything that there is.
pub(crate) fn run_long() -> Result {
    both(&build()?, &[], &[])
}

fn both(program: &Path, units: &[&str], clients: &[&str]) -> Result {
    let (suite, clients) = (run_suite(program, units), run_clients(program, clients));
    suite.and(clients)
}

/// Redis's programs, of Debian; `None`, said on standard error, without a network.
pub(crate) fn programs() -> Option<PathBuf> {
    let programs = debian::programs(&PACKAGES);
    programs.inspect_err(|error| eprintln!("! no programs of Redis: {error}")).ok()
}

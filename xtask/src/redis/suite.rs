//! Redis's own test suite against `terrace serve`.
//!
//! The suite is that of Redis 7.0, in Tcl. It runs against an external server with the tests that need
//! Redis's internals left out by tags. `suite.skip` names the other tests that are left out, each
//! with its reason; the list only shrinks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::server::Server;
use crate::command;
use crate::{Result, debian, workspace};

/// All units.
const UNITS: [&str; 9] = [
    "unit/type/string",
    "unit/type/hash",
    "unit/type/set",
    "unit/type/zset",
    "unit/type/list",
    "unit/multi",
    "unit/expire",
    "unit/scan",
    "unit/keyspace",
];

/// Tests that need a server started by the suite, replicas, Redis's internals, or another memory limit than
/// that of the start.
const TAGS: &str = "-needs:repl -needs:debug -needs:pfdebug -needs:reset -needs:config-maxmemory \
                    -large-memory -slow -external:skip";

/// Tests that count on the end of a test that is left out: they run apart, on an empty server. Units, and
/// patterns of the suite.
const APART: [(&str, &str); 1] = [("unit/keyspace", "/^MOVE ")];

/// Between a test and its reason in the skip file.
const REASON: &str = "  ## ";

/// Runs units of the suite: `[UNIT..]`, or all. Without the suite or Tcl, says so and succeeds.
pub(crate) fn run(program: &Path, units: &[&str]) -> Result {
    let (suite, tclsh) = match suite().and_then(|suite| Ok((suite, tclsh()?))) {
        Ok(found) => found,
        Err(missing) => {
            eprintln!("! suite of Redis 7.0 not run: {missing}");
            return Ok(());
        }
    };
    let work = workspace::root().join("target/redis/suite");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    let skip = work.join("skip");
    let apart = APART.map(|(_, pattern)| pattern.to_owned());
    fs::write(&skip, [skipped()?, apart.to_vec()].concat().join("\n"))?;
    let none = work.join("skip-none");
    fs::write(&none, "")?;
    let units = if units.is_empty() { &UNITS } else { units };
    let whole = units.iter().map(|unit| (*unit, None));
    let apart = APART.iter().filter(|(unit, _)| units.contains(unit));
    let runs = whole.chain(apart.map(|(unit, pattern)| (*unit, Some(*pattern))));
    let mut failed = Vec::new();
    for (number, (unit, only)) in runs.enumerate() {
        // A server a run: one that fails leaves nothing behind for the next.
        let data = work.join(number.to_string());
        let mut server = Server::start(program, &data, &[])?;
        let skip = if only.is_some() { &none } else { &skip }.display().to_string();
        let mut tests = Command::new(&tclsh);
        tests.current_dir(&suite).args(["tests/test_helper.tcl", "--host", "127.0.0.1"]);
        tests.args(["--port", &server.port, "--ignore-encoding", "--ignore-digest"]);
        tests.args(["--tags", TAGS, "--skipfile", &skip, "--single", unit]);
        tests.args(only.into_iter().flat_map(|pattern| ["--only", pattern]));
        command::show(&tests);
        let status = tests.status()?;
        if !status.success() {
            failed.push(unit);
        }
        server.stop()?;
    }
    fs::remove_dir_all(&work)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("units of the suite of Redis failed: {}", failed.join(", ")).into()),
    }
}

/// The folder of Redis's source with its tests: that of `REDIS_SOURCE`, or of Debian.
fn suite() -> Result<PathBuf> {
    let named = std::env::var_os("REDIS_SOURCE").map(PathBuf::from);
    let folder = named.map_or_else(|| debian::source("redis"), Ok)?;
    match folder.join("tests/test_helper.tcl").exists() {
        true => Ok(folder),
        false => Err(format!("{} has no tests", folder.display()).into()),
    }
}

/// The shell of Tcl: the one that is installed, or that of Debian.
fn tclsh() -> Result<PathBuf> {
    let mut installed = Command::new("tclsh");
    installed.stdin(Stdio::null());
    match command::succeeds(installed) {
        true => Ok("tclsh".into()),
        false => Ok(debian::programs(&["tcl8.6", "libtcl8.6"])?.join("tclsh8.6")),
    }
}

/// The names of the tests that are left out. A line without a reason is an error.
fn skipped() -> Result<Vec<String>> {
    let path = workspace::root().join("xtask/src/redis/suite.skip");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    lines
        .map(|line| {
            let named = line.split_once(REASON).filter(|(_, reason)| !reason.trim().is_empty());
            let (name, _) = named.ok_or_else(|| format!("no reason for: {line}"))?;
            Ok(name.to_owned())
        })
        .collect()
}

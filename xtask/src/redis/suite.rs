//! Redis's own test suite against `terrace serve`.
//!
//! The suite is that of Redis 7.0, in Tcl. It runs against an external server with the tests that need
//! Redis's internals left out by tags. `redis-suite.skip` names the other tests that are left out, each
//! with its reason; the list only shrinks.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::command::{self, cargo};
use crate::{Result, workspace};

/// The units that run by default.
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

/// Runs units of the suite: `[UNIT..]`. Without the suite or `tclsh`, says so and succeeds.
pub(crate) fn run(units: &[&str]) -> Result {
    let Some(suite) = suite() else {
        eprintln!(
            "skipped: the suite of Redis 7.0 is not at hand. Unpack its source into target/redis-suite\n\
             (`apt-get source redis` of Debian 12), or name its folder in REDIS_SOURCE"
        );
        return Ok(());
    };
    let mut shell = Command::new("tclsh");
    shell.stdin(Stdio::null());
    if !command::succeeds(shell) {
        eprintln!("skipped: tclsh is not installed (apt-get install tcl)");
        return Ok(());
    }
    command::run(cargo(["build", "-p", "terrace"]))?;
    let target = workspace::root().join("target");
    let work = target.join("redis-suite-work");
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
        let mut server = Server::start(&target.join("debug/terrace"), &data)?;
        let skip = if only.is_some() { &none } else { &skip }.display().to_string();
        let mut tests = tclsh(
            &suite,
            &[
                "--host",
                "127.0.0.1",
                "--port",
                &server.port,
                "--ignore-encoding",
                "--ignore-digest",
            ],
        );
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

/// The folder of Redis's source with its tests.
fn suite() -> Option<PathBuf> {
    let named = std::env::var_os("REDIS_SOURCE").map(PathBuf::from);
    let folder = workspace::root().join("target/redis-suite");
    let unpacked = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    named.into_iter().chain(unpacked).find(|path| path.join("tests/test_helper.tcl").exists())
}

fn tclsh(suite: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("tclsh");
    command.arg("tests/test_helper.tcl").args(arguments).current_dir(suite);
    command
}

/// The names of the tests that are left out. A line without a reason is an error.
fn skipped() -> Result<Vec<String>> {
    let path = workspace::root().join("xtask/redis-suite.skip");
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

struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(program: &Path, data: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--memory", "256MiB", "--data"])
            .arg(data);
        command::show(&command);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let port = line.trim().rsplit_once(':').map(|(_, port)| port.to_owned());
        // Also a server without an address ends.
        let server = Self { port: port.clone().unwrap_or_default(), child };
        port.map(|_| server).ok_or_else(|| "terrace serve did not start".into())
    }

    fn stop(&mut self) -> Result {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also when a step failed before.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

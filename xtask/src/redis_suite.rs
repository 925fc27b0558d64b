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

/// Tests that need a server started by the suite, replicas, or Redis's internals.
const TAGS: &str =
    "-needs:repl -needs:debug -needs:pfdebug -needs:reset -large-memory -slow -external:skip";

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
    if !command::succeeds(tclsh(&suite, &["--help"])) {
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
    fs::write(&skip, skipped()?.join("\n"))?;
    let units = if units.is_empty() { &UNITS } else { units };
    let mut failed = Vec::new();
    for unit in units {
        // A server a unit: one that fails leaves nothing behind for the next.
        let data = work.join(unit.replace('/', "-"));
        let mut server = Server::start(&target.join("debug/terrace"), &data)?;
        let skip = skip.display().to_string();
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
        command::show(&tests);
        let status = tests.status()?;
        if !status.success() {
            failed.push(*unit);
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
        match line.trim().rsplit_once(':') {
            Some((_, port)) => Ok(Self { port: port.to_owned(), child }),
            None => Err("terrace serve did not start".into()),
        }
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

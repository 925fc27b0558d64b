//! The bindings. C: the header, and a program that is compiled and run. Python: the wheel is built and
//! installed in a bare virtual environment, and its tests, the examples of its documents and its type stubs
//! are checked.

use std::process::Command;

use crate::Result;
use crate::command::{self, cargo, succeeds};
use crate::workspace;

const PACKAGE: &str = "bindings/python";

/// Environments and wheels, below the folder of build results.
const WORK: &str = "target/python";

/// Ten lines that a new user would write, for the bare environment.
const FIRST_LINES: &str = "\
import sys, tempfile, terracedb
path = tempfile.mkdtemp()
db = terracedb.open(path + '/store', memory='64MiB')
db[b'k'] = b'v'
db.keyspace('users').update({b'ada': b'London'})
db.backup(path + '/backups')
db.close()
terracedb.restore(path + '/backups', path + '/restored')
with terracedb.open(path + '/restored') as db:
    sys.exit(0 if (db[b'k'], db.keyspace('users')[b'ada']) == (b'v', b'London') else 1)
";

/// Tests both.
pub(crate) fn run() -> Result {
    c(&[])?;
    python()
}

/// Tests C with the long tests: Go over the library, and sanitizers.
pub(crate) fn run_long() -> Result {
    c(&["--", "--include-ignored"])
}

fn c(arguments: &[&str]) -> Result {
    let words = ["test", "--locked", "--quiet", "--manifest-path", "bindings/c/Cargo.toml"];
    let mut tests = cargo(words.iter().chain(arguments).copied());
    // The crates of the workspace are built already.
    tests.env("CARGO_TARGET_DIR", workspace::root().join("target"));
    command::run(tests)
}

/// Builds the wheel and runs the tests. Without Python, or without a network to install the test tools, it
/// says so and passes.
fn python() -> Result {
    let tools = format!("{WORK}/tools");
    let tool = |name: &str| format!("{}/{tools}/bin/{name}", workspace::root().display());
    if !succeeds(program(
        "python3",
        &["-c", "import venv, ensurepip, sys; sys.exit(sys.version_info < (3, 11))"],
    )) {
        eprintln!("! Python package not tested: python3 3.11 with venv is missing");
        return Ok(());
    }
    command::run(program("python3", &["-m", "venv", &tools]))?;
    let wanted = format!("{PACKAGE}/requirements-test.txt");
    if !succeeds(program(&tool("pip"), &["install", "--quiet", "--requirement", &wanted])) {
        eprintln!("! Python package not tested: {wanted} cannot be installed");
        return Ok(());
    }
    let wheels = format!("{WORK}/wheels");
    let _ = std::fs::remove_dir_all(workspace::root().join(&wheels));
    let manifest = format!("{PACKAGE}/Cargo.toml");
    let arguments =
        ["build", "--locked", "--profile", "dev", "--out", &wheels, "--manifest-path", &manifest];
    let mut build = program(&tool("maturin"), &arguments);
    build.env("CARGO_TARGET_DIR", workspace::root().join("target"));
    command::run(build)?;
    let bare = format!("{WORK}/bare");
    command::run(program("python3", &["-m", "venv", "--clear", &bare]))?;
    let install = [
        "install",
        "--quiet",
        "--force-reinstall",
        "--no-index",
        "--find-links",
        &wheels,
        "terracedb",
    ];
    command::run(program(&format!("{}/{bare}/bin/pip", workspace::root().display()), &install))?;
    let python = format!("{}/{bare}/bin/python", workspace::root().display());
    command::run(program(&python, &["-c", FIRST_LINES]))?;
    command::run(program(&tool("pip"), &install))?;
    let tests = format!("{PACKAGE}/tests");
    let readme = format!("{PACKAGE}/README.md");
    let pytest =
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--doctest-glob=*.md", &tests, &readme];
    command::run(program(&tool("python"), &pytest))?;
    let settings = format!("{PACKAGE}/pyproject.toml");
    let stubs = [
        "-m",
        "mypy.stubtest",
        "terracedb",
        "--ignore-disjoint-bases",
        "--mypy-config-file",
        &settings,
    ];
    command::run(program(&tool("python"), &stubs))
}

fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments);
    command
}

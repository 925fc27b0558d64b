//! Client programs and libraries against `terrace serve`: `crates/server/clients`.
//!
//! Each is installed below `target/redis` and runs with RESP2 and with RESP3. One whose tools or packages are
//! not at hand is left out, and that is said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::server::Server;
use crate::command::{self, succeeds};
use crate::{Result, workspace};

const SOURCES: &str = "crates/server/clients";
const WORK: &str = "target/redis";
const PASSWORD: &str = "secret";
const PROTOCOLS: [&str; 2] = ["2", "3"];

/// The programs, by the names of their folders.
const CLIENTS: [(&str, Prepare); 5] = [
    ("redis-py", redis_py),
    ("ioredis", ioredis),
    ("go-redis", go_redis),
    ("jedis", jedis),
    ("redis-cli", redis_cli),
];

/// Installs a program in a folder that has a copy of its source.
type Prepare = fn(&Path) -> Result<Steps>;

/// The command of a program for a port and a protocol.
type Steps = Box<dyn Fn(&str, &str) -> Command>;

/// Runs `[CLIENT..]`, or all.
pub(crate) fn run(program: &Path, names: &[&str]) -> Result {
    if let Some(unknown) = names.iter().find(|name| CLIENTS.iter().all(|(it, _)| it != *name)) {
        let known = CLIENTS.map(|(name, _)| name).join(", ");
        return Err(format!("no client {unknown}: there are {known}").into());
    }
    let mut failed = Vec::new();
    for (name, prepare) in CLIENTS {
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        let folder = workspace::root().join(WORK).join(name);
        fs::create_dir_all(&folder)?;
        copy(&workspace::root().join(SOURCES).join(name), &folder)?;
        let steps = match prepare(&folder) {
            Ok(steps) => steps,
            Err(missing) => {
                eprintln!("! {name} not tested: {missing}");
                continue;
            }
        };
        let data = folder.join("data");
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        let mut server = Server::start(program, &data, &["--requirepass", PASSWORD])?;
        for protocol in PROTOCOLS {
            let mut command = steps(&server.port, protocol);
            command::show(&command);
            if !command.current_dir(&folder).status()?.success() {
                failed.push(format!("{name} with RESP{protocol}"));
            }
        }
        server.stop()?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("clients failed: {}", failed.join(", ")).into()),
    }
}

/// Copies the files of a folder and those below it.
fn copy(from: &Path, to: &Path) -> Result {
    for entry in fs::read_dir(from)? {
        let (path, target) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

/// Runs a step of an installation in `folder`.
fn install(folder: &Path, program: impl Into<PathBuf>, arguments: &[&str]) -> Result {
    let mut command = Command::new(program.into());
    command.args(arguments);
    command::run_in(folder, command)
}

fn with_arguments(mut command: Command, port: &str, protocol: &str) -> Command {
    command.args([port, protocol]);
    command
}

fn redis_py(folder: &Path) -> Result<Steps> {
    let mut python = Command::new("python3");
    python.args(["-c", "import venv, ensurepip"]);
    if !succeeds(python) {
        return Err("python3 with venv is missing".into());
    }
    install(folder, "python3", &["-m", "venv", "environment"])?;
    let bin = folder.join("environment/bin");
    install(folder, bin.join("pip"), &["install", "--quiet", "--requirement", "requirements.txt"])?;
    Ok(Box::new(move |port, protocol| {
        let mut command = Command::new(bin.join("python"));
        command.arg("steps.py");
        with_arguments(command, port, protocol)
    }))
}

fn ioredis(folder: &Path) -> Result<Steps> {
    install(folder, "npm", &["install", "--silent", "--no-audit", "--no-fund"])?;
    Ok(Box::new(|port, protocol| {
        let mut command = Command::new("node");
        command.arg("steps.js");
        with_arguments(command, port, protocol)
    }))
}

fn go_redis(folder: &Path) -> Result<Steps> {
    install(folder, "go", &["mod", "tidy"])?;
    install(folder, "go", &["build", "-o", "steps", "."])?;
    let program = folder.join("steps");
    Ok(Box::new(move |port, protocol| with_arguments(Command::new(&program), port, protocol)))
}

fn jedis(folder: &Path) -> Result<Steps> {
    install(folder, "mvn", &["--quiet", "--batch-mode", "compile"])?;
    Ok(Box::new(|port, protocol| {
        let mut command = Command::new("mvn");
        command.args(["--quiet", "--batch-mode", "exec:java"]);
        command.arg(format!("-Dexec.args={port} {protocol}"));
        command
    }))
}

fn redis_cli(folder: &Path) -> Result<Steps> {
    let programs = super::programs().ok_or("Debian's packages are not at hand")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", programs.display());
    let script = folder.join("steps.sh");
    Ok(Box::new(move |port, protocol| {
        let mut command = Command::new(&script);
        command.env("PATH", &path);
        with_arguments(command, port, protocol)
    }))
}

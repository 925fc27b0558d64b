//! The processes of `bench offload`: hosts that run one configuration each, and workers.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base::StoreId;
use terracedb::{Error, Result};

use super::{Configuration, Measured, json_of};
use crate::interrupt;
use crate::worker::EngineReport;

/// The core of hosts, and that of workers.
pub(super) const HOST_CORE: usize = 0;
const WORKER_CORE: usize = 1;

/// Memory of a worker's memo.
const MEMO: &str = "2GiB";

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Error::io("find", "this program", error))
}

/// Runs one configuration in a process of its own.
pub(super) fn run_child(configuration: &Configuration) -> Result<Measured> {
    let directory = &configuration.directory;
    if directory.exists() {
        std::fs::remove_dir_all(directory)
            .map_err(|error| Error::io("remove", directory.display(), error))?;
    }
    std::fs::create_dir(directory)
        .map_err(|error| Error::io("create", directory.display(), error))?;
    let options = json_of(configuration)?;
    let failed = |error| Error::io("start", "a host process", error);
    let mut command = Command::new(this_program()?);
    command.args(["bench", "offload", "--child", &options]).stdout(Stdio::piped());
    let child = command.spawn().map_err(failed)?;
    let ending = interrupt::Child::of(&child);
    let output = child.wait_with_output().map_err(failed)?;
    drop(ending);
    let failed = || Error::retry("host process").at(&options);
    if !output.status.success() {
        return Err(failed().got(output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).map_err(|error| failed().caused_by(error))
}

/// A worker process, killed when dropped, and by a signal that ends this process.
pub(super) struct WorkerProcess {
    child: Child,
    _ending: interrupt::Child,
    pub(super) address: String,
    report: PathBuf,
}

impl WorkerProcess {
    /// Starts a worker with a quota in percent of a core, which can open the store in `root`.
    pub(super) fn start(
        scratch: &Path,
        root: &Path,
        quota: f64,
        is_emulated: bool,
    ) -> Result<Self> {
        if !root.exists() {
            std::fs::create_dir(root)
                .map_err(|error| Error::io("create", root.display(), error))?;
        }
        let number = StoreId::random()?.0 as u32;
        let socket = format!("unix:{}", scratch.join(format!("w{number:08x}")).display());
        let report = scratch.join(format!("engine{number:08x}"));
        let mut command = Command::new(this_program()?);
        command
            .args(["worker", "--listen", &socket, "--memory", "512MiB", "--slots", "4"])
            .arg("--root")
            .arg(format!("store={}", root.display()))
            .args(["--cpu-quota", &quota.to_string(), "--core", &WORKER_CORE.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if is_emulated {
            command.args(["--engine", "emulated:bf2", "--memo", MEMO, "--engine-report"]);
            command.arg(&report);
        }
        let fail = |error| Error::io("start", "a worker process", error);
        let child = command.spawn().map_err(fail)?;
        let ending = interrupt::Child::of(&child);
        let mut started = Self { child, _ending: ending, address: socket, report };
        let mut line = String::new();
        if let Some(stdout) = started.child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(fail)?;
        }
        match line.trim().strip_prefix("listening at ") {
            Some(_) => Ok(started),
            None => {
                Err(Error::retry("worker process").expected("a line with its address").got(line))
            }
        }
    }

    /// The counters of its engine; zeros without one.
    pub(super) fn engine(&self) -> EngineReport {
        // The worker writes it a few times a second.
        std::thread::sleep(3 * EngineReport::INTERVAL);
        let file = File::open(&self.report).ok();
        file.and_then(|file| serde_json::from_reader(file).ok()).unwrap_or_default()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

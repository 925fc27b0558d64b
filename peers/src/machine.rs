//! The provenance of a result: machine, time and commit.

use std::process::Command;

/// Processor, cores, memory and operating system.
pub(crate) fn describe() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let memory: u64 = after(&read("/proc/meminfo"), "MemTotal")
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processor = after(&read("/proc/cpuinfo"), "model name");
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{processor}, {cores} cores, {} GiB, Linux {}", memory >> 20, kernel.trim())
}

/// The current time, UTC.
pub(crate) fn date() -> String {
    output("date", &["-u", "+%Y-%m-%d %H:%M"])
}

/// The commit of the working tree, followed by `+` if the tree has changes.
pub(crate) fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short", "HEAD"]);
    let changes =
        output("git", &["status", "--porcelain", "--untracked-files=no", "crates", "peers"]);
    if changes.is_empty() { commit } else { commit + "+" }
}

/// The output of a program; empty if it cannot be run.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

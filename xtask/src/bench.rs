//! The benchmarks: a standard set on a fresh store, so that figures of two commits compare.

use crate::Result;
use crate::command::{self, cargo};

/// Fill in random order, then read what is there, what is not, in order, and many at once.
const STANDARD: [&str; 15] = [
    "fillrandom",
    "readrandom",
    "readmissing",
    "multireadrandom",
    "seekrandom",
    "readseq",
    "readreverse",
    "overwrite",
    "fillsync",
    "--num",
    "2000000",
    "--duration",
    "10",
    "--memory",
    "256MiB",
];

/// Runs `terrace bench` with `arguments`, or the standard set where there are none.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let arguments = if arguments.is_empty() { &STANDARD } else { arguments };
    command::run(cargo(["run", "--release", "--", "bench"].iter().chain(arguments).copied()))
}

//! The benchmarks: a standard set on fresh stores, so that results of two commits are comparable.

mod compare;

use crate::Result;
use crate::command::{self, cargo};

/// A fill in random order, then reads of present and of missing keys, batches of reads, scans and overwrites.
const READS: &str = "fillrandom readrandom readmissing multireadrandom seekrandom readseq \
                     readreverse overwrite --num 2000000 --duration 10 --memory 256MiB";

/// Synced writes. They are few, because each waits for the device.
const SYNCS: &str = "fillsync --num 10000 --memory 256MiB";

/// Runs `terrace bench` with `arguments`, or the standard set if there are none. `--compare REV` runs this
/// tree beside another revision.
pub(crate) fn run(arguments: &[&str]) -> Result {
    if let ["--compare", rest @ ..] = arguments {
        return compare::run(rest);
    }
    if !arguments.is_empty() {
        return terrace_bench(arguments);
    }
    for set in [READS, SYNCS] {
        terrace_bench(&set.split_whitespace().collect::<Vec<_>>())?;
    }
    Ok(())
}

fn terrace_bench(arguments: &[&str]) -> Result {
    command::run(cargo(["run", "--release", "--", "bench"].iter().chain(arguments).copied()))
}

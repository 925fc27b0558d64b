//! The benchmarks: a standard set on fresh stores, so that figures of two commits compare.

use crate::Result;
use crate::command::{self, cargo};

/// Fill in random order, then read what is there, what is not, many at once, and in order.
const READS: &str = "fillrandom readrandom readmissing multireadrandom seekrandom readseq \
                     readreverse overwrite --num 2000000 --duration 10 --memory 256MiB";

/// Synced writes take as long as the device needs, so there are fewer.
const SYNCS: &str = "fillsync --num 10000 --memory 256MiB";

/// Runs `terrace bench` with `arguments`, or the standard set where there are none.
pub(crate) fn run(arguments: &[&str]) -> Result {
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

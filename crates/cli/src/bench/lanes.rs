//! `terrace bench lanes`: the log's lanes beside other designs, on emulated devices in virtual time, with the
//! same figures on every machine; then a resident keyspace beside other stores in real time, with this
//! machine's memory as storage-class memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use terracedb::{Error, Result};
use workload::lanes::{DeviceName, Mix, RealOptions, ReportOptions, real, report};

use super::print;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::parsers::{mix, one_of, seconds};
use crate::shared_args::OutputArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The emulated device [default: optane-dimm; with --full, both]
    #[arg(long, value_name = "NAME", value_parser = one_of(DeviceName::ALL, DeviceName::name))]
    profile: Option<DeviceName>,
    /// Every point: 1 to 224 threads, 1 to 4 devices, and the mixes a, b, c, d and f of YCSB. It takes
    /// minutes [default: the load with 24 and 64 threads, and 1 to 4 devices with 64 to 224 threads]
    #[arg(long)]
    full: bool,
    /// Mixes of YCSB beside the load, such as a,c; e is refused, because it needs scans
    /// [default: none; with --full, all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = mix)]
    workloads: Vec<Mix>,
    /// Operations measured in each run
    #[arg(long, value_name = "N", default_value_t = 40_000, value_parser = operations)]
    ops: u32,
    /// A directory in memory, or on storage-class memory, for the runs in real time
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scm: PathBuf,
    /// A directory on flash for the runs in real time [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Seconds of each run in real time; 0 leaves them out
    #[arg(long, value_name = "S", value_parser = real_seconds, default_value = "1")]
    duration: Duration,
    /// Entries of each store in the runs in real time
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    num: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs of fewer operations have hardly begun; longer ones give the same figures.
fn operations(text: &str) -> std::result::Result<u32, String> {
    let bounds = 1000..=10_000_000;
    let found = text.parse().ok().filter(|ops| bounds.contains(ops));
    found.ok_or_else(|| "expected a number from 1000 to 10000000".to_owned())
}

/// Seconds, or 0.
fn real_seconds(text: &str) -> std::result::Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { seconds(text) }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut out = Output::new();
    let json = args.output.json;
    let devices = match args.profile {
        Some(device) => vec![device],
        None if args.full => DeviceName::ALL.to_vec(),
        None => vec![DeviceName::OptaneDimm],
    };
    let mixes = match args.full && args.workloads.is_empty() {
        true => Mix::MIXED.to_vec(),
        false => args.workloads.clone(),
    };
    let options = ReportOptions { ops: args.ops as usize, devices, mixes, is_full: args.full };
    let mut summary = report(&options, &mut |line| print(&mut out, line, json))?;
    if !args.duration.is_zero() {
        let (memory, flash) = (scratch(Some(&args.scm))?, scratch(args.data.as_deref())?);
        let options = RealOptions {
            entries: args.num,
            duration: args.duration,
            memory: memory.path(),
            flash: flash.path(),
        };
        let figures = real(&options, &mut |line| print(&mut out, line, json))?;
        summary.synced_puts_over_flash = Some(figures.synced_puts_over_flash);
        summary.dram_bytes_per_entry = Some(figures.dram_bytes_per_entry);
    }
    print(&mut out, &summary, json)?;
    Ok(Outcome::Done)
}

/// A temporary directory in `parent`.
fn scratch(parent: Option<&Path>) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("terrace-lanes-");
    let made = match parent {
        Some(parent) => builder.tempdir_in(parent),
        None => builder.tempdir(),
    };
    let place = || parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
    made.map_err(|error| Error::io("create a directory in", place().display(), error))
}

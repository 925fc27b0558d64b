//! `terrace bench lanes`: the log's lanes beside other designs, on emulated devices in virtual time. It opens
//! no store, and its figures are the same on every machine.

use terracedb::Result;
use workload::lanes::report;

use super::print;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::shared_args::OutputArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Operations measured in each run
    #[arg(long, value_name = "N", default_value_t = 40_000, value_parser = operations)]
    ops: u32,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs of fewer operations have hardly begun; longer ones give the same figures.
fn operations(text: &str) -> std::result::Result<u32, String> {
    let bounds = 1000..=10_000_000;
    let found = text.parse().ok().filter(|ops| bounds.contains(ops));
    found.ok_or_else(|| "expected a number from 1000 to 10000000".to_owned())
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut out = Output::new();
    report(args.ops as usize, &mut |line| print(&mut out, line, args.output.json))?;
    Ok(Outcome::Done)
}

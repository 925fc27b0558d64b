//! `terrace replay`: runs a trace against a store as if the store were a cache.

use std::path::PathBuf;

use terracedb::{Error, Result};
use workload::replay::{Options, run as replay};
use workload::trace::{Format, Trace, YcsbSize, open_ycsb};

use crate::measured_store::{MeasuredStore, MeasuredStoreArgs, StoreMust};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::parsers::one_of;
use crate::progress::Progress;
use crate::shared_args::OutputArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace: uncompressed, .xz or .zst
    file: PathBuf,
    /// The trace's format [default: by the ending of the file's name]
    #[arg(long, value_name = "NAME", value_parser = one_of(Format::ALL, Format::name))]
    format: Option<Format>,
    /// Bytes of every value, in place of the trace's sizes [default: the trace's sizes, else 100]
    #[arg(long, value_name = "B")]
    value_size: Option<usize>,
    /// Records to load first, with --format ycsb [default: the file's recordcount]
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// Operations to run, with --format ycsb [default: the file's operationcount]
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Seed of all random choices, with --format ycsb
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Stop after N accesses
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    store: MeasuredStoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut trace = open(args)?;
    let store = MeasuredStore::open(&args.store, StoreMust::BeEither)?;
    let mut out = Output::new();
    if !args.output.json {
        out.line(store.banner())?;
        out.flush()?;
    }
    let options = Options { value_bytes: args.value_size, limit: args.limit, ..Options::default() };
    let progress = Progress::new("replay");
    let report = replay(store.engine(), &mut *trace, &options, &mut |tick| {
        progress.show(tick.done, tick.total);
    })?;
    drop(progress);
    if args.output.json {
        let line = serde_json::to_string(&report);
        out.line(line.map_err(|e| Error::invalid("report").caused_by(e))?)?;
    } else {
        out.line(&report)?;
    }
    out.flush()?;
    store.save_statistics()?;
    if report.figures.wrong > 0 {
        return Err(Error::corrupt("answers")
            .expected("the value of the key in every answer")
            .got(report.figures.wrong));
    }
    Ok(Outcome::Done)
}

/// Opens the trace; `--records` and `--operations` resize a YCSB workload.
fn open(args: &Args) -> Result<Box<dyn Trace>> {
    let Args { records, operations, .. } = *args;
    let format = Format::asked_or_of_name(args.format, &args.file)?;
    if format == Format::Ycsb {
        return open_ycsb(&args.file, YcsbSize { records, operations }, args.seed);
    }
    for (flag, given) in [("--records", records), ("--operations", operations)] {
        if given.is_some() {
            return Err(Error::invalid(flag)
                .expected("--format ycsb; a recorded trace has a fixed length, which --limit cuts")
                .got(format_args!("--format {format}")));
        }
    }
    format.open(&args.file)
}

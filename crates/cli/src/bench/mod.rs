//! `terrace bench`: runs workloads on one store and reports throughput, latency and device use.

mod key_trace;
mod lanes;
mod offload;
mod silt;
mod tiers;
mod wan;

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use terracedb::hashed::HashedPolicy;
use terracedb::{Error, Result};
use workload::Distribution;
use workload::bench::{Bench, Event, Name, Options, Report, check_order};
use workload::trace::KeyTrace;

use crate::measured_store::{MeasuredStore, MeasuredStoreArgs, StoreMust};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::parsers::{distribution, one_of, seconds};
use crate::progress::Progress;
use crate::shared_args::OutputArgs;
use key_trace::KeyTraceArgs;

/// Subcommands of `bench`.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run one workload on several tier configurations and compare them
    Tiers(tiers::Args),
    /// Compare designs of a log on storage-class memory, on emulated devices in virtual time
    Lanes(lanes::Args),
    /// Compare compaction in this process with compaction, or compression alone, at a worker
    Offload(offload::Args),
    /// Run the evaluation of SILT on a hashed keyspace, beside what its formulas predict
    Silt(silt::Args),
    /// Run a WAN optimizer on a hashed keyspace: fingerprints of chunks are looked up, and inserted if new
    Wan(wan::Args),
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Workloads to run on one store, in this order
    #[arg(required = true, value_name = "NAME", value_parser = one_of(Name::ALL, Name::name))]
    names: Vec<Name>,
    /// Number of keys that fills and loads write and other workloads expect
    /// [default: 1000000, or the distinct keys of --trace]
    #[arg(long, value_name = "N")]
    num: Option<u64>,
    /// Operations of each workload except fills and loads, unless --duration is given
    /// [default: --num, or the accesses of --trace]
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Bytes of a key [default: set by the first workload: 16; ycsb 24, mixgraph and blobmeta 48, chat 27,
    /// hivecache 24]
    #[arg(long, value_name = "B")]
    key_size: Option<usize>,
    /// Bytes of a value [default: set by the workload: 100; ycsb 1000; other mixes vary]
    #[arg(long, value_name = "B")]
    value_size: Option<usize>,
    /// Compressed size of a value as a fraction of its size
    #[arg(long, value_name = "R", default_value_t = 0.5)]
    compression_ratio: f64,
    /// Number of threads
    #[arg(long, value_name = "T", default_value_t = 1)]
    threads: usize,
    /// Lookups in flight per thread, in multireadrandom
    #[arg(long, value_name = "D", default_value_t = 32)]
    depth: usize,
    /// Entries read after each seek, in seekrandom
    #[arg(long, value_name = "N", default_value_t = 1)]
    entries: usize,
    /// Entries per write batch, in fills and overwrite
    #[arg(long, value_name = "N", default_value_t = 1)]
    batch: usize,
    /// Seconds after which a workload ends; fills always write --num keys
    #[arg(long, value_name = "S", value_parser = seconds)]
    duration: Option<Duration>,
    /// Offered load, in operations per second of all threads, even if the store is slower. Latency counts
    /// from the time at which an operation was due. Operations due within one millisecond start together
    /// [default: as fast as the store answers]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Offered load of the writer in readwhilewriting, in operations per second
    #[arg(long, value_name = "N")]
    write_rate: Option<f64>,
    /// Print throughput, maximum latency, write stalls, bytes written and space every S seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    report_interval: Option<Duration>,
    /// After each workload, wait for all background work, and include that time in the report
    #[arg(long)]
    settle: bool,
    /// After the last workload, read the whole store and compare it with all that was written
    #[arg(long)]
    verify: bool,
    /// How workloads other than fills choose keys: uniform, zipfian, zipfian:THETA, latest
    /// [default: set by the mix, else uniform]
    #[arg(long, value_name = "NAME", value_parser = distribution)]
    distribution: Option<Distribution>,
    #[command(flatten)]
    trace: KeyTraceArgs,
    /// Make every write durable before it returns
    #[arg(long)]
    sync: bool,
    /// Use the store in --data that an earlier fill with the same options left
    #[arg(long, requires = "data")]
    existing: bool,
    /// Use a hashed keyspace: keep, window=SIZE, window=SIZE,clock; workloads that scan are refused
    /// [default: an ordered keyspace]
    #[arg(long, value_name = "KIND", value_parser = str::parse::<HashedPolicy>)]
    keyspace: Option<HashedPolicy>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    store: MeasuredStoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    /// Whether the command reads a trace.
    pub(crate) const fn reads_trace(&self) -> bool {
        self.trace.is_given()
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    match &args.command {
        Some(Command::Tiers(args)) => return tiers::run(args),
        Some(Command::Lanes(args)) => return lanes::run(args),
        Some(Command::Offload(args)) => return offload::run(args),
        Some(Command::Silt(args)) => return silt::run(args),
        Some(Command::Wan(args)) => return wan::run(args),
        None => {}
    }
    let trace = args.trace.read()?;
    let options = options(args, trace.as_ref());
    options.check()?;
    args.names.iter().try_for_each(|name| Bench::check(*name, &options, trace.as_ref()))?;
    let must = if args.existing { StoreMust::Exist } else { StoreMust::BeNew };
    args.names.iter().try_for_each(|name| check_order(*name, args.keyspace.is_none()))?;
    if args.verify {
        check_order(Name::Verify, args.keyspace.is_none())?;
    }
    let store = MeasuredStore::open_as(&args.store, must, args.keyspace.clone())?;
    let mut bench = Bench::new(store.engine(), options)?;
    let mut out = Output::new();
    if !args.output.json {
        out.line(format_args!("{}, seed {}", store.banner(), args.seed))?;
        if let Some(trace) = &trace {
            let (accesses, distinct) = (trace.accesses(), trace.distinct());
            out.line(format_args!("trace of {accesses} accesses, {distinct} distinct keys"))?;
        }
        out.flush()?;
    }
    if let Some(trace) = trace {
        bench.replay(trace);
    }
    let wrong = run_workloads(&mut bench, args, &mut out)?;
    store.save_statistics()?;
    if wrong > 0 {
        return Err(Error::corrupt("answers")
            .expected("the value of the key in every answer")
            .got(wrong));
    }
    Ok(Outcome::Done)
}

fn options(args: &Args, trace: Option<&KeyTrace>) -> Options {
    let first = args.names.first().map(|name| name.key_bytes());
    Options {
        num: args.num.or(trace.map(KeyTrace::distinct)).unwrap_or(Options::default().num),
        ops: args.ops.or(trace.map(KeyTrace::accesses)),
        key_bytes: args.key_size.or(first).unwrap_or(Options::default().key_bytes),
        value_bytes: args.value_size,
        compression_ratio: args.compression_ratio,
        threads: args.threads,
        depth: args.depth,
        entries: args.entries,
        batch: args.batch,
        duration: args.duration,
        rate: args.rate,
        write_rate: args.write_rate,
        report_interval: args.report_interval,
        settle: args.settle,
        distribution: args.distribution,
        sync: args.sync,
        existing: args.existing,
        seed: args.seed,
    }
}

/// Runs and prints all workloads, each after the load that it needs. Returns the number of wrong answers.
fn run_workloads(bench: &mut Bench<'_>, args: &Args, out: &mut Output) -> Result<u64> {
    let mut wrong = 0;
    let last = args.verify.then_some(Name::Verify);
    for name in args.names.iter().copied().chain(last) {
        for name in bench.missing_load(name).into_iter().chain([name]) {
            let report = run_workload(bench, name, args, out)?;
            print(out, &report, args.output.json)?;
            wrong += report.figures.wrong;
        }
    }
    Ok(wrong)
}

/// Runs one workload, with a progress bar and the lines of `--report-interval`.
fn run_workload(
    bench: &mut Bench<'_>,
    name: Name,
    args: &Args,
    out: &mut Output,
) -> Result<Report> {
    let progress = Progress::new(name.name());
    let mut printed = Ok(());
    let report = bench.run(name, &mut |event| match event {
        Event::Tick(tick) => match (tick.total, args.duration) {
            (None, Some(duration)) => progress.show_time(tick.elapsed, duration),
            (total, _) => progress.show(tick.done, total),
        },
        Event::Interval(interval) => {
            if printed.is_ok() {
                printed = print(out, &interval, args.output.json);
            }
        }
    })?;
    printed.map(|()| report)
}

/// Prints one line and flushes it, because the next line may take minutes.
pub(super) fn print<T: Display + Serialize>(
    out: &mut Output,
    report: &T,
    json: bool,
) -> Result<()> {
    if json {
        let line = serde_json::to_string(report);
        out.line(line.map_err(|e| Error::invalid("report").caused_by(e))?)?;
    } else {
        out.line(report)?;
    }
    out.flush()
}

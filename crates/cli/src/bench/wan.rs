//! `terrace bench wan`: the WAN optimizer of BufferHash on a hashed keyspace, with drawn fingerprints or with
//! those of real files.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use terracedb::hashed::HashedPolicy;
use terracedb::{Error, Result};
use workload::{DedupReport, WanOptions, WanReport, run_dedup, run_wan};

use crate::measured_store::{MeasuredStore, MeasuredStoreArgs, StoreMust};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::parsers::seconds;
use crate::shared_args::OutputArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Chunks inserted before the measurement
    #[arg(long, value_name = "N", default_value_t = 1_000_000, conflicts_with = "from")]
    num: u64,
    /// Share of chunks that are recent ones
    #[arg(long, value_name = "R", default_value_t = 0.4, conflicts_with = "from")]
    hit_share: f64,
    /// How many chunks a recent one may lie in the past [default: half of --num]
    #[arg(long, value_name = "N", conflicts_with = "from")]
    recent: Option<u64>,
    /// Mean bytes of a chunk
    #[arg(long, value_name = "B", default_value_t = 8192)]
    chunk_size: u64,
    /// Number of threads
    #[arg(long, value_name = "T", default_value_t = 1, conflicts_with = "from")]
    threads: usize,
    /// Seconds of the measurement
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "30", conflicts_with = "from")]
    duration: Duration,
    /// The hashed keyspace: keep, window=SIZE, window=SIZE,clock
    #[arg(long, value_name = "KIND", default_value = "keep", value_parser = str::parse::<HashedPolicy>)]
    keyspace: HashedPolicy,
    /// De-duplicate the files below this directory instead
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "from")]
    seed: u64,
    #[command(flatten)]
    store: MeasuredStoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let options = WanOptions {
        hit_share: args.hit_share,
        recent: args.recent.unwrap_or(args.num / 2).max(1),
        num: args.num,
        chunk_bytes: args.chunk_size,
        threads: args.threads,
        duration: args.duration,
        seed: args.seed,
    };
    if args.from.is_none() {
        options.check()?;
    }
    let store = MeasuredStore::open_as(&args.store, StoreMust::BeNew, Some(args.keyspace.clone()))?;
    let mut out = Output::new();
    if !args.output.json {
        out.line(format_args!("{}, seed {}", store.banner(), args.seed))?;
        out.flush()?;
    }
    let wrong = match &args.from {
        Some(dir) => {
            let report = run_dedup(store.engine(), dir, args.chunk_size)?;
            print(&mut out, &report, dedup_line(&report), args.output.json)?;
            report.wrong
        }
        None => {
            let report = run_wan(store.engine(), &options)?;
            print(&mut out, &report, wan_line(&report), args.output.json)?;
            report.wrong
        }
    };
    store.save_statistics()?;
    if wrong > 0 {
        return Err(Error::corrupt("answers").expected("the pointer of each chunk").got(wrong));
    }
    Ok(Outcome::Done)
}

fn print(out: &mut Output, report: &impl Serialize, text: String, json: bool) -> Result<()> {
    let line = match json {
        true => serde_json::to_string(report).map_err(|e| Error::invalid("report").caused_by(e))?,
        false => text,
    };
    out.line(line)?;
    out.flush()
}

fn wan_line(report: &WanReport) -> String {
    let WanReport { insert_us, lookup_us, hashed, .. } = report;
    format!(
        "wan: {:.0} Mbit/s, {:.0} chunks/s, found {:.3}, evicted {}; insert p50 {:.2} p99.9 {:.2} us, lookup \
         p50 {:.2} p99.9 {:.2} us; {:.3} B DRAM/entry, {:.4} reads/hit, {:.4} useless reads/miss, write \
         amplification {:.2} + log {:.2}",
        report.megabits_per_second,
        report.ops_per_sec,
        report.found_share,
        report.evicted,
        insert_us.p50,
        insert_us.p999,
        lookup_us.p50,
        lookup_us.p999,
        hashed.dram_bytes_per_entry,
        hashed.device_reads_per_hit.unwrap_or_default(),
        hashed.useless_reads_per_miss.unwrap_or_default(),
        hashed.table_write_amplification.unwrap_or_default(),
        hashed.log_write_amplification.unwrap_or_default(),
    )
}

fn dedup_line(report: &DedupReport) -> String {
    format!(
        "wan: {} of {} in {}, {} of {} chunks found, {} duplicate, {:.0} Mbit/s; insert p50 {:.2} \
         p99.9 {:.2} us, lookup p50 {:.2} p99.9 {:.2} us",
        base::format_count(report.files, "file"),
        base::format_bytes(report.bytes),
        report.from.display(),
        report.found,
        report.chunks,
        base::format_bytes(report.duplicate_bytes),
        report.megabits_per_second,
        report.insert_us.p50,
        report.insert_us.p999,
        report.lookup_us.p50,
        report.lookup_us.p999,
    )
}

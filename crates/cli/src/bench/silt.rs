//! `terrace bench silt`: the evaluation of SILT on a hashed keyspace, beside the figures of its formulas.

use std::time::Duration;

use terracedb::hashed::HashedPolicy;
use terracedb::{Error, Result};
use workload::{Phase, Predicted, Silt, SiltOptions, SiltReport};

use crate::measured_store::{MeasuredStore, MeasuredStoreArgs, StoreMust};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::parsers::seconds;
use crate::progress::Progress;
use crate::shared_args::OutputArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    num: u64,
    /// Bytes of a value; keys have 20 bytes
    #[arg(long, value_name = "B", default_value_t = 236)]
    value_size: usize,
    /// Number of threads after the load
    #[arg(long, value_name = "T", default_value_t = 4)]
    threads: usize,
    /// Rewrites of the whole base that the overwrites cause
    #[arg(long, value_name = "N", default_value_t = 3)]
    cycles: u32,
    /// Seconds of the mixed phase, of the hits and of the misses
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "30")]
    duration: Duration,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    store: MeasuredStoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let options = SiltOptions {
        num: args.num,
        value_bytes: args.value_size,
        threads: args.threads,
        cycles: args.cycles,
        duration: args.duration,
        seed: args.seed,
    };
    let store = MeasuredStore::open_as(&args.store, StoreMust::BeNew, Some(HashedPolicy::Keep))?;
    let mut silt = Silt::new(store.engine(), options)?;
    let mut out = Output::new();
    if !args.output.json {
        out.line(format_args!("{}, seed {}", store.banner(), args.seed))?;
        out.flush()?;
    }
    let mut wrong = 0;
    for phase in Phase::ALL {
        let progress = Progress::new(phase.name());
        let report = silt.run(phase, &mut |tick| progress.show(tick.done, tick.total))?;
        wrong += report.figures.wrong;
        match args.output.json {
            true => {
                let line = serde_json::to_string(&report);
                out.line(line.map_err(|e| Error::invalid("report").caused_by(e))?)?;
            }
            false => out.line(line_of(&report))?,
        }
        out.flush()?;
    }
    store.save_statistics()?;
    if wrong > 0 {
        return Err(Error::corrupt("answers")
            .expected("the value of the key in every answer")
            .got(wrong));
    }
    Ok(Outcome::Done)
}

/// Each figure, and in parentheses the one that the formulas predict.
fn line_of(report: &SiltReport) -> String {
    let SiltReport { phase, figures, hashed, predicted, .. } = report;
    let Predicted { dram_bytes_per_entry, runs, table_write_amplification, .. } = predicted;
    let mut line = format!(
        "{:<10} {:>9.0} ops/s p50 {:.1} p99.9 {:.1} us, {:.3} ({dram_bytes_per_entry:.3}) B DRAM/entry, \
         {:.1} ({runs:.1}) runs, {:.2} cycles",
        phase.name(),
        figures.ops_per_sec,
        figures.latency_us.p50,
        figures.latency_us.p999,
        hashed.dram_bytes_per_entry,
        hashed.runs,
        hashed.merge_cycles,
    );
    if let (Some(tables), Some(log)) =
        (hashed.table_write_amplification, hashed.log_write_amplification)
    {
        line.push_str(&format!(
            ", write amplification {tables:.2} ({table_write_amplification:.2}) + log {log:.2}"
        ));
    }
    for (what, reads, useless, expected) in [
        (
            "hit",
            hashed.device_reads_per_hit,
            hashed.useless_reads_per_hit,
            predicted.device_reads_per_hit,
        ),
        (
            "miss",
            hashed.device_reads_per_miss,
            hashed.useless_reads_per_miss,
            predicted.device_reads_per_miss,
        ),
    ] {
        if let (Some(reads), Some(useless)) = (reads, useless) {
            line.push_str(&format!(
                ", {reads:.4} ({expected:.4}) reads/{what}, {useless:.4} useless"
            ));
        }
    }
    line
}

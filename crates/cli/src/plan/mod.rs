//! `terrace plan`: predicts hit ratio, latency, cost and power of a workload for sizes of DRAM and SCM.
//! docs/planning.md is its reference.

mod chart;
mod prices;
mod report;
mod requests;
mod statistics;

use std::fs;
use std::path::PathBuf;

use terracedb::{Error, Result};
use workload::plan::{Demand, Layout, ObjectStore, Prices, Question, Target, plan, survey};
use workload::trace::Format;

use crate::outcome::Outcome;
use crate::output::Output;
use crate::parsers::{one_of, size};
use crate::shared_args::OutputArgs;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub(crate) struct Args {
    /// Plan for a trace: uncompressed, .xz or .zst
    #[arg(long, value_name = "FILE", group = "source")]
    trace: Option<PathBuf>,
    /// Plan for a measured store: the file that `bench --stats` or `replay --stats` wrote
    #[arg(long, value_name = "FILE", group = "source")]
    stats: Option<PathBuf>,
    /// Plan for a running server: the address of its admin port
    #[arg(long, value_name = "ADDR:PORT", group = "source")]
    addr: Option<String>,
    /// Print the prices as a TOML file to edit, and exit
    #[arg(long, group = "source")]
    show_prices: bool,
    /// An earlier file of the same run as --stats: only the lookups after it count
    #[arg(long, value_name = "FILE", requires = "stats")]
    since: Option<PathBuf>,
    /// The trace's format [default: by the ending of the file's name]
    #[arg(long, value_name = "NAME", requires = "trace", value_parser = one_of(Format::ALL, Format::name))]
    format: Option<Format>,
    /// Bytes of every value, in place of the trace's sizes [default: the trace's sizes, else 100]
    #[arg(long, value_name = "B", requires = "trace")]
    value_size: Option<usize>,
    /// Compressed size of an entry as a fraction of its size
    #[arg(long, value_name = "R", default_value_t = 0.5, requires = "trace")]
    compression_ratio: f64,
    /// Stop after N accesses of the trace
    #[arg(long, value_name = "N", requires = "trace")]
    limit: Option<u64>,
    /// Plan for data X times as large
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    scale: f64,
    /// Prices: a built-in year (2017, 2019, 2026) or a TOML file
    #[arg(long, value_name = "FILE", default_value = prices::DEFAULT)]
    prices: String,
    /// Latencies of a page, which override those of the prices, as in scm=10us,flash=80us (ns, us, ms)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = latency)]
    latency: Vec<(Tier, f64)>,
    /// The target: hit=0.9 (share of lookups without flash), latency=20us (mean) or throughput=1000000
    #[arg(long, value_name = "METRIC=N", value_parser = target)]
    target: Option<Target>,
    /// Sizes of the DRAM caches, as in 341MiB,2GiB [default: fractions of the data]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    dram: Vec<u64>,
    /// Sizes of SCM, as in 0,3GiB [default: 0 and fractions of the data]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    scm: Vec<u64>,
    /// Price the requests of an object store below the caches at N lookups a second
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Show every mix of DRAM and SCM, not only the cost-efficient ones
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// Write charts of the plan to this HTML file
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

/// The largest number of sizes of DRAM, and of SCM.
const SIZES_MAX: usize = 256;

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut out = Output::new();
    let text = prices::text(&args.prices)?;
    if args.show_prices {
        out.bytes(text.as_bytes())?;
        out.flush()?;
        return Ok(Outcome::Done);
    }
    let prices = with_latencies(prices::parse(&args.prices, &text)?, &args.latency);
    must_be_within("--scale", args.scale, 1e-6, 1e9)?;
    must_be_within("--compression-ratio", args.compression_ratio, 1e-3, 2.0)?;
    for (flag, sizes) in [("--dram", &args.dram), ("--scm", &args.scm)] {
        must_be_within(flag, sizes.len() as f64, 0.0, SIZES_MAX as f64)?;
    }
    if let Some(rate) = args.rate {
        must_be_within("--rate", rate, 0.0, 1e12)?;
    }
    let demand = demand(args)?.scaled(args.scale);
    let sizes = |sizes: &[u64]| sizes.iter().map(|bytes| *bytes as f64).collect();
    let question = Question { dram: sizes(&args.dram), scm: sizes(&args.scm), target: args.target };
    let plan = plan(&demand, &prices, &question);
    if let Some(path) = &args.chart {
        let html = chart::html(&plan, &prices, &demand);
        fs::write(path, html).map_err(|error| Error::io("write", path.display(), error))?;
    }
    let store = args.rate.map(|rate| Ok((rate, object_store(&prices)?))).transpose()?;
    if args.output.json {
        out.line(report::json(&plan, &prices, &demand, store))?;
    } else {
        report::table(&plan, &prices, args.all, &mut out)?;
        if let Some((rate, store)) = store {
            requests::table(&plan, &prices, &demand, args.all, rate, store, &mut out)?;
        }
        if plan.chosen.is_none() {
            out.line(match args.target {
                Some(_) => "no mix meets the target",
                None => "no server of these prices (--show-prices) has room for these sizes",
            })?;
        }
    }
    out.flush()?;
    Ok(Outcome::good_if(plan.chosen.is_some()))
}

/// The object store of the prices.
///
/// # Errors
/// `Invalid` if they have none.
fn object_store(prices: &Prices) -> Result<ObjectStore> {
    let error = || Error::invalid("--rate").expected("prices with a section [object_store]");
    prices.object_store.ok_or_else(error)
}

fn must_be_within(flag: &'static str, number: f64, least: f64, most: f64) -> Result<()> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(Error::invalid(flag).expected(format_args!("{least} to {most}")).got(number))
}

/// The demand of the trace or the measured store.
fn demand(args: &Args) -> Result<Demand> {
    if let Some(path) = &args.stats {
        return statistics::demand(path, args.since.as_deref());
    }
    if let Some(address) = &args.addr {
        return statistics::demand_of_server(address);
    }
    let Some(path) = &args.trace else {
        return Err(Error::invalid("terrace plan")
            .expected("--trace, --stats or --addr")
            .got("neither"));
    };
    let format = Format::asked_or_of_name(args.format, path)?;
    let layout = Layout {
        value_bytes: args.value_size,
        compression_ratio: args.compression_ratio,
        limit: args.limit,
        ..Layout::default()
    };
    survey(&mut || format.open(path), &layout)
}

/// A tier that `--latency` names.
#[derive(Clone, Copy, Debug)]
enum Tier {
    Dram,
    Scm,
    Flash,
}

/// `prices` with the given latencies, in microseconds.
fn with_latencies(mut prices: Prices, latencies: &[(Tier, f64)]) -> Prices {
    for (tier, micros) in latencies {
        let tier = match tier {
            Tier::Dram => &mut prices.dram,
            Tier::Scm => &mut prices.scm,
            Tier::Flash => &mut prices.flash,
        };
        tier.latency = *micros;
    }
    prices
}

/// Parses a time with a unit to microseconds.
fn micros(text: &str) -> Option<f64> {
    let units = [("ns", 1e-3), ("us", 1.0), ("ms", 1e3)];
    let (number, unit) =
        units.iter().find_map(|(unit, micros)| Some((text.strip_suffix(unit)?, *micros)))?;
    let number: f64 = number.trim().parse().ok()?;
    Some(number * unit).filter(|micros| (0.0..=1e9).contains(micros))
}

fn latency(text: &str) -> Result<(Tier, f64), String> {
    let parsed = text.split_once('=').and_then(|(name, latency)| {
        let tier = match name {
            "dram" => Tier::Dram,
            "scm" => Tier::Scm,
            "flash" => Tier::Flash,
            _ => return None,
        };
        Some((tier, micros(latency)?))
    });
    parsed.ok_or_else(|| "dram, scm or flash, =, and a time as in 300ns or 80us".to_owned())
}

fn target(text: &str) -> Result<Target, String> {
    let parsed = text.split_once('=').and_then(|(name, value)| {
        let number = || value.parse().ok().filter(|number: &f64| number.is_finite());
        match name {
            "hit" => number().filter(|hit| (0.0..=1.0).contains(hit)).map(Target::Hit),
            "latency" => micros(value).map(Target::Latency),
            "throughput" => number().filter(|it| *it >= 0.0).map(Target::Throughput),
            _ => None,
        }
    });
    parsed.ok_or_else(|| "hit=0.9, latency=20us or throughput=1000000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_and_targets_parse_or_are_refused() {
        assert_eq!(
            [micros("300ns"), micros("80 us"), micros("2ms")],
            [0.3, 80.0, 2000.0].map(Some)
        );
        for text in ["80", "us", "-1us", "nanus", "infus", "1e99us", ""] {
            assert_eq!(micros(text), None, "{text}");
        }
        assert_eq!(target("hit=0.9"), Ok(Target::Hit(0.9)));
        assert_eq!(target("latency=20us"), Ok(Target::Latency(20.0)));
        assert_eq!(target("throughput=1e6"), Ok(Target::Throughput(1e6)));
        for text in ["hit=2", "hit=", "hit", "speed=1", "latency=20", "throughput=nan"] {
            assert!(target(text).is_err(), "{text}");
        }
        assert!(latency("scm=10us").is_ok() && latency("disk=10us").is_err());
    }
}

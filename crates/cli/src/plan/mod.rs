//! `terrace plan`: what DRAM and storage-class memory would buy. docs/planning.md is its reference.

mod chart;
mod prices;
mod report;
mod statistics;

use std::fs;
use std::path::PathBuf;

use terracedb::{Error, Result};
use workload::plan::{Demand, Layout, Prices, Question, Target, plan, survey};
use workload::trace::Format;

use crate::Outcome;
use crate::args;
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub(crate) struct Args {
    /// Plan for a trace: plain, .xz or .zst
    #[arg(long, value_name = "FILE", group = "source")]
    trace: Option<PathBuf>,
    /// Plan for what a store measured: the file that `bench` or `replay` wrote by --stats
    #[arg(long, value_name = "FILE", group = "source")]
    stats: Option<PathBuf>,
    /// Print prices as a file to change, and end
    #[arg(long, group = "source")]
    show_prices: bool,
    /// With --stats, an earlier such file of the same run: only what came after it counts
    #[arg(long, value_name = "FILE", requires = "stats")]
    since: Option<PathBuf>,
    /// What the trace's bytes mean [default: by its name, which ends with that]
    #[arg(long, value_name = "NAME", requires = "trace",
          value_parser = args::one_of(Format::ALL, Format::name))]
    format: Option<Format>,
    /// Bytes of a value, whatever the trace says [default: the trace's sizes, else 100]
    #[arg(long, value_name = "B", requires = "trace")]
    value_size: Option<usize>,
    /// What compression makes of an entry, as a part of it
    #[arg(long, value_name = "R", default_value_t = 0.5, requires = "trace")]
    compression_ratio: f64,
    /// Stop after this many accesses of the trace
    #[arg(long, value_name = "N", requires = "trace")]
    limit: Option<u64>,
    /// The data to plan for are as many times as large
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    scale: f64,
    /// Prices: a year that comes with the program (2017, 2019, 2026), or a TOML file
    #[arg(long, value_name = "FILE", default_value = prices::DEFAULT)]
    prices: String,
    /// Latencies of a page instead of the prices' own, as in scm=10us,flash=80us (ns, us, ms)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = latency)]
    latency: Vec<(Medium, f64)>,
    /// What is to be kept: hit=0.9 (without flash), latency=20us (mean) or throughput=1000000
    #[arg(long, value_name = "WHAT=N", value_parser = target)]
    target: Option<Target>,
    /// Sizes of DRAM for caches, as in 341MiB,2GiB [default: parts of what was asked for]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = args::size)]
    dram: Vec<u64>,
    /// Sizes of SCM, as in 0,3GiB [default: none, and parts of what was asked for]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = args::size)]
    scm: Vec<u64>,
    /// Show every mix, not only those that are worth their price
    #[arg(long)]
    all: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the plan into one HTML file
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

/// The most sizes of DRAM or SCM.
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
    within("--scale", args.scale, 1e-6, 1e9)?;
    within("--compression-ratio", args.compression_ratio, 1e-3, 2.0)?;
    for (flag, sizes) in [("--dram", &args.dram), ("--scm", &args.scm)] {
        within(flag, sizes.len() as f64, 0.0, SIZES_MAX as f64)?;
    }
    let demand = demand(args)?.scaled(args.scale);
    let sizes = |sizes: &[u64]| sizes.iter().map(|bytes| *bytes as f64).collect();
    let question = Question { dram: sizes(&args.dram), scm: sizes(&args.scm), target: args.target };
    let plan = plan(&demand, &prices, &question);
    if let Some(path) = &args.chart {
        let html = chart::html(&plan, &prices, &demand);
        fs::write(path, html).map_err(|error| Error::io("write", path.display(), error))?;
    }
    if args.json {
        out.line(report::json(&plan, &prices, &demand))?;
    } else {
        report::table(&plan, &prices, args.all, &mut out)?;
        if plan.chosen.is_none() {
            out.line(match args.target {
                Some(_) => "no mix keeps the target",
                None => "no server of these prices (--show-prices) takes that much",
            })?;
        }
    }
    out.flush()?;
    Ok(if plan.chosen.is_some() { Outcome::Done } else { Outcome::Negative })
}

fn within(what: &'static str, number: f64, least: f64, most: f64) -> Result<()> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(Error::invalid(what).expected(format_args!("{least} to {most}")).got(number))
}

fn demand(args: &Args) -> Result<Demand> {
    if let Some(path) = &args.stats {
        return statistics::demand(path, args.since.as_deref());
    }
    let Some(path) = &args.trace else {
        return Err(Error::invalid("terrace plan").expected("--trace or --stats").got("neither"));
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

/// What `--latency` names.
#[derive(Clone, Copy, Debug)]
enum Medium {
    Dram,
    Scm,
    Flash,
}

fn with_latencies(mut prices: Prices, latencies: &[(Medium, f64)]) -> Prices {
    for (medium, micros) in latencies {
        let tier = match medium {
            Medium::Dram => &mut prices.dram,
            Medium::Scm => &mut prices.scm,
            Medium::Flash => &mut prices.flash,
        };
        tier.latency = *micros;
    }
    prices
}

/// Microseconds, from a number with a unit.
fn micros(text: &str) -> Option<f64> {
    let units = [("ns", 1e-3), ("us", 1.0), ("ms", 1e3)];
    let (number, unit) =
        units.iter().find_map(|(unit, micros)| Some((text.strip_suffix(unit)?, *micros)))?;
    let number: f64 = number.trim().parse().ok()?;
    Some(number * unit).filter(|micros| (0.0..=1e9).contains(micros))
}

fn latency(text: &str) -> Result<(Medium, f64), String> {
    let parsed = text.split_once('=').and_then(|(name, latency)| {
        let medium = match name {
            "dram" => Medium::Dram,
            "scm" => Medium::Scm,
            "flash" => Medium::Flash,
            _ => return None,
        };
        Some((medium, micros(latency)?))
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
    fn times_and_targets_are_read_or_refused() {
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

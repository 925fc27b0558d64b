//! `terrace bench tiers`: runs one workload on several tier configurations and compares them.
//!
//! Each configuration runs in a process of its own (`terrace bench` on the same store), so that the measured
//! memory and CPU time are its own. The workload runs in rounds: earlier rounds fill the tiers, and only the
//! last one is reported.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use base::{format_bytes, parse_bytes};
use serde_json::{Map, Value, json};
use terracedb::scm::{Placement, Scm};
use terracedb::{Error, Result};
use workload::Distribution;
use workload::bench::Name;

use super::key_trace::KeyTraceArgs;
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::parsers::{distribution, one_of, seconds, size};
use crate::shared_args::OutputArgs;
use crate::{config, directory};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workload
    #[arg(value_name = "NAME", value_parser = one_of(Name::ALL, Name::name))]
    name: Name,
    /// A configuration: the memory limit, and an SCM tier with its size, place and placement policy, as in
    /// 341MiB, 341MiB+3GiB@emulated:optane-ssd or 1GiB+4GiB@numa:1,by-kind; may be given more than once
    #[arg(long = "tier", value_name = "MEMORY[+SIZE@PLACE[,POLICY]]", required = true)]
    tiers: Vec<Configuration>,
    /// The store's directory. A missing store is filled first: by the workload's own load if it has one,
    /// else in random order, or with each key of --trace
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Number of keys in the store [default: 1000000, or the distinct keys of --trace]
    #[arg(long, value_name = "N")]
    num: Option<u64>,
    /// Bytes of a value [default: set by the workload]
    #[arg(long, value_name = "B")]
    value_size: Option<usize>,
    /// Number of threads
    #[arg(long, value_name = "T", default_value_t = 8)]
    threads: usize,
    /// Seconds per round
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "30")]
    duration: Duration,
    /// Number of rounds; only the last one is reported
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    rounds: u32,
    /// Offered load, in operations per second [default: as fast as the store answers]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How keys are chosen, as in bench
    #[arg(long, value_name = "NAME", value_parser = distribution)]
    distribution: Option<Distribution>,
    #[command(flatten)]
    trace: KeyTraceArgs,
    /// Write budget of the SCM tier, in bytes per second averaged over a minute
    #[arg(long, value_name = "SIZE", value_parser = size)]
    write_budget: Option<u64>,
    /// Disable the row cache in DRAM
    #[arg(long)]
    no_rows: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// A memory limit and an optional SCM tier.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Configuration {
    /// The text that the user typed, without the policy.
    name: String,
    memory: u64,
    scm: Option<ScmTier>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ScmTier {
    size: u64,
    place: String,
    placement: Placement,
}

impl FromStr for Configuration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (memory_text, scm) = match text.split_once('+') {
            Some((memory, scm)) => (memory, Some(scm)),
            None => (text, None),
        };
        let memory = parse_bytes(memory_text)?;
        let Some(scm) = scm else {
            return Ok(Self { name: text.to_owned(), memory, scm: None });
        };
        let refused = || {
            Error::invalid("tiers")
                .expected("MEMORY+SIZE@PLACE or MEMORY+SIZE@PLACE,POLICY")
                .got(text)
        };
        let (size, place) = scm.split_once('@').ok_or_else(refused)?;
        let policy = place.rsplit_once(',').and_then(|(place, policy)| {
            let named = Placement::NAMES.iter().find(|(name, _)| *name == policy)?;
            Some((place, named.1))
        });
        let (place, placement) = policy.unwrap_or((place, Placement::default()));
        let (name, size) = (format!("{memory_text}+{size}@{place}"), parse_bytes(size)?);
        Scm::new(place, size)?;
        Ok(Self { name, memory, scm: Some(ScmTier { size, place: place.to_owned(), placement }) })
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut out = Output::new();
    if directory::must_hold_store(&args.data).is_err() {
        fill(args)?;
    }
    if !args.output.json {
        let columns = "ops/s found %  CPU us/op wait us/op io wait %    mean us     P95 us     P99 us  row % \
                       page %  SCM %";
        // Share of page lookups that DRAM, SCM and flash answered, for data pages and metadata pages.
        let by_kind = "data D/S/F %          meta D/S/F %";
        out.line(format_args!(
            "{:<44} {:<10} {columns} flash % reads/get {by_kind:<42} SCM wr/s of all budget    RSS MiB",
            "tiers", "policy"
        ))?;
        out.flush()?;
    }
    let mut least_found = 1.0;
    for configuration in &args.tiers {
        let report = measure(args, configuration)?;
        least_found = found_share(&report).unwrap_or(1.0).min(least_found);
        match args.output.json {
            true => out.line(&report)?,
            false => out.line(table_row(&report))?,
        }
        out.flush()?;
    }
    match args.name.load() {
        // A missing key costs almost nothing to look up, so the figures would be those of another workload.
        Some(load) if least_found < 1.0 => Err(Error::invalid("store")
            .at(args.data.display())
            .expected(format_args!("one that `{load}` filled with the same number of keys"))
            .got(format_args!("{:.2} % of the keys found", 100.0 * least_found))),
        _ => Ok(Outcome::Done),
    }
}

/// Share of lookups that found their key, of those that should have; `None` without such lookups.
fn found_share(report: &Value) -> Option<f64> {
    report.get("found_share").and_then(Value::as_f64)
}

/// The command that runs `names` on the store, in a process of its own.
fn bench_command(args: &Args, names: &[Name]) -> Result<Command> {
    let program = std::env::current_exe().map_err(|e| Error::io("find", "this program", e))?;
    let mut command = Command::new(program);
    command.arg("bench").args(names.iter().map(|name| name.name())).arg("--json");
    command.arg("--data").arg(&args.data);
    if let Some(num) = args.num {
        command.args(["--num".to_owned(), num.to_string()]);
    }
    args.trace.add_to(&mut command);
    if let Some(bytes) = args.value_size {
        command.args(["--value-size".to_owned(), bytes.to_string()]);
    }
    // `--tier` states the whole configuration, so the environment must not add settings.
    for variable in config::variables() {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    Ok(command)
}

/// Fills the store.
fn fill(args: &Args) -> Result<()> {
    let default = if args.trace.is_given() { Name::FillSeq } else { Name::FillRandom };
    let fill = args.name.load().unwrap_or(default);
    let mut command = bench_command(args, &[fill])?;
    command.args(["--settle", "--memory", "512MiB"]);
    last_line(&mut command, "filling the store").map(drop)
}

/// Runs the workload on one configuration and returns the report of the last round.
fn measure(args: &Args, configuration: &Configuration) -> Result<Value> {
    let names = vec![args.name; args.rounds as usize];
    let mut command = bench_command(args, &names)?;
    let Configuration { memory, scm, .. } = configuration;
    command.args(["--existing", "--memory", &memory.to_string()]);
    command.args(["--threads".to_owned(), args.threads.to_string()]);
    command.args(["--duration".to_owned(), args.duration.as_secs_f64().to_string()]);
    if let Some(rate) = args.rate {
        command.args(["--rate".to_owned(), rate.to_string()]);
    }
    if let Some(distribution) = &args.distribution {
        command.args(["--distribution".to_owned(), distribution.to_string()]);
    }
    if args.no_rows {
        command.arg("--no-rows");
    }
    let mut set = |key: &str, value: &str| {
        command.args(["--set".to_owned(), format!("{key}={value}")]);
    };
    if let Some(ScmTier { size, place, placement }) = scm {
        set("scm.path", place);
        set("scm.size", &size.to_string());
        set("scm.placement", placement.name());
        if let Some(budget) = args.write_budget {
            set("scm.write-budget", &budget.to_string());
        }
    }
    let report = last_line(&mut command, &configuration.name)?;
    let Value::Object(report) = report else {
        return Err(Error::invalid("report").expected("an object").got(report));
    };
    let policy = scm.as_ref().map(|scm| scm.placement.name());
    let mut fields = Map::new();
    fields.insert("tiers".to_owned(), json!(configuration.name));
    fields.insert("policy".to_owned(), json!(policy));
    fields.insert("write_budget".to_owned(), json!(scm.as_ref().and(args.write_budget)));
    fields.extend(report);
    Ok(Value::Object(fields))
}

/// Runs `command` and parses the last line that it prints as JSON. `name` names the run in errors; the
/// process itself prints why it failed.
fn last_line(command: &mut Command, name: &str) -> Result<Value> {
    let failed = |error| Error::io("run", name, error);
    let child = command.spawn().map_err(failed)?;
    let running = interrupt::Child::of(&child);
    let done = child.wait_with_output().map_err(failed)?;
    drop(running);
    let text = String::from_utf8_lossy(&done.stdout);
    let line = text.lines().last().unwrap_or_default();
    if !done.status.success() {
        return Err(match done.status.code() {
            Some(2) => Error::invalid("run").at(name).got(done.status),
            _ => Error::io("run", name, std::io::Error::other(done.status.to_string())),
        });
    }
    serde_json::from_str(line).map_err(|error| Error::invalid("report").got(line).caused_by(error))
}

/// A report as a row of the table.
fn table_row(report: &Value) -> String {
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    let text = |key: &str| report.get(key).and_then(Value::as_str).unwrap_or("-");
    let ops = number("/ops").max(1.0);
    let hits = ["row", "page", "scm", "flash"].map(|tier| number(&format!("/hits/{tier}")));
    let all = hits.iter().sum::<f64>().max(1.0);
    let [row, page, scm, flash] = hits.map(|hits| hits * 100.0 / all);
    let per_op = |pointer: &str| number(pointer) * 1e6 / ops;
    let written = number("/scm/bytes_written") / number("/seconds").max(0.001);
    let percent = |part: f64, all: f64| match all > 0.0 {
        true => format!("{:.1}%", 100.0 * part / all),
        false => "-".to_owned(),
    };
    // Admitted pages of those offered, and bytes written of the write budget.
    let admitted = percent(number("/scm/admitted"), number("/scm/offered"));
    let budget = percent(written, number("/write_budget"));
    let [data, meta] = ["data", "meta"].map(|kind| {
        let lookups = ["dram", "scm", "flash"].map(|tier| number(&format!("/pages/{tier}/{kind}")));
        let all = lookups.iter().sum::<f64>().max(1.0);
        lookups.map(|lookups| format!("{:.1}", 100.0 * lookups / all)).join("/")
    });
    format!(
        "{:<44} {:<10} {:>5.0} {:>7} {:>10.2} {:>10.2} {:>9.1} {:>10.1} {:>10.1} {:>10.1} {row:>6.2} \
         {page:>6.2} {scm:>6.2} {flash:>7.2} {:>9.3} {:<20} {:<21} {:>8} {admitted:>6} {budget:>6} {:>10.0}",
        text("tiers"),
        text("policy"),
        number("/ops_per_sec"),
        found_share(report).map_or_else(|| "-".to_owned(), |part| format!("{:.2}", 100.0 * part)),
        per_op("/cpu_seconds"),
        per_op("/emulation/wait_cpu_seconds"),
        100.0 * number("/io_wait_share"),
        number("/latency_us/mean"),
        number("/latency_us/p95"),
        number("/latency_us/p99"),
        number("/device_reads_per_get"),
        data,
        meta,
        format_bytes(written as u64).replace(' ', ""),
        number("/peak_rss_bytes") / f64::from(1 << 20),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_parses_memory_tier_and_policy() {
        let parse = |text: &str| text.parse::<Configuration>();
        let dram_only = parse("341MiB").unwrap();
        assert_eq!(
            (dram_only.name.as_str(), dram_only.memory, dram_only.scm),
            ("341MiB", 341 << 20, None)
        );
        let place = "emulated:cxl-dram@/dev/shm/tier".to_owned();
        let scm = ScmTier { size: 3 << 30, place, placement: Placement::ByKind };
        let full = parse("341MiB+3GiB@emulated:cxl-dram@/dev/shm/tier,by-kind").unwrap();
        assert_eq!(full.name, "341MiB+3GiB@emulated:cxl-dram@/dev/shm/tier");
        assert_eq!((full.memory, full.scm), (341 << 20, Some(scm)));
        assert_eq!(parse("1GiB+2GiB@numa:1").unwrap().scm.unwrap().placement, Placement::Adaptive);
        for bad in
            ["", "lots", "1GiB+", "1GiB+2GiB", "1GiB+2GiB@", "1GiB+x@numa:1", "1GiB+2GiB@numa:x"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn report_becomes_one_table_row() {
        let report = json!({
            "tiers": "341MiB", "policy": null, "ops": 1000, "ops_per_sec": 500.0, "found_share": 0.6321,
            "seconds": 2.0, "cpu_seconds": 0.01, "io_wait_share": 0.125,
            "latency_us": { "mean": 3.0, "p95": 7.0, "p99": 9.0 },
            "hits": { "row": 50, "page": 25, "scm": 20, "flash": 5 }, "device_reads_per_get": 0.05,
            "scm": { "bytes_written": 8192, "admitted": 3, "offered": 12 }, "write_budget": 16384,
            "pages": { "dram": { "data": 5, "meta": 9 }, "scm": { "data": 4, "meta": 1 },
                "flash": { "data": 1, "meta": 0 } }, "peak_rss_bytes": 1 << 20,
        });
        let line = table_row(&report);
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(
            words,
            "341MiB - 500 63.21 10.00 0.00 12.5 3.0 7.0 9.0 50.00 25.00 20.00 5.00 0.050 50.0/40.0/10.0 \
             90.0/10.0/0.0 4.0KiB 25.0% 25.0% 1"
                .split(' ')
                .collect::<Vec<_>>()
        );
    }
}

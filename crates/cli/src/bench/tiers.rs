//! `terrace bench tiers`: one workload over a list of tier configurations, side by side.
//!
//! Each configuration is a process of its own, so that its memory and processor time are its own: this
//! program again, on the same store. A workload runs some rounds, of which the last counts: those
//! before fill the tiers.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value, json};
use terracedb::{Error, Placement, Result, Scm, format_bytes, parse_bytes};
use workload::Distribution;
use workload::bench::Name;

use super::Replayed;
use crate::output::Output;
use crate::{Outcome, config, directory};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workload
    #[arg(value_name = "NAME", value_parser = crate::args::one_of(Name::ALL, Name::name))]
    name: Name,
    /// A configuration: memory, and a tier below it with where it lies and its policy, as in 341MiB,
    /// 341MiB+3GiB@emulated:optane-ssd or 1GiB+4GiB@numa:1,by-kind; may be given more than once
    #[arg(long = "tier", value_name = "MEMORY[+SIZE@PLACE[,POLICY]]", required = true)]
    tiers: Vec<Configuration>,
    /// The store; filled first where there is none: by the workload's own load where it has one, else at
    /// random, or with each key of --trace
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Keys in it [default: 1000000, or those of --trace]
    #[arg(long, value_name = "N")]
    num: Option<u64>,
    /// Bytes of a value [default: the workload's]
    #[arg(long, value_name = "B")]
    value_size: Option<usize>,
    /// Threads
    #[arg(long, value_name = "T", default_value_t = 8)]
    threads: usize,
    /// Seconds of a round
    #[arg(long, value_name = "S", value_parser = crate::args::seconds, default_value = "30")]
    duration: Duration,
    /// Rounds; the last counts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    rounds: u32,
    /// Operations per second to offer [default: as many as the store takes]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How keys are picked, as in bench
    #[arg(long, value_name = "NAME", value_parser = crate::args::distribution)]
    distribution: Option<Distribution>,
    #[command(flatten)]
    replayed: Replayed,
    /// What the tier below may be written, bytes a second over any minute
    #[arg(long, value_name = "SIZE", value_parser = crate::args::size)]
    write_budget: Option<u64>,
    /// Keep no single rows in DRAM
    #[arg(long)]
    no_rows: bool,
    /// Print one JSON object a configuration
    #[arg(long)]
    json: bool,
}

/// Memory, and what lies below it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Configuration {
    /// As it was typed, but for the policy.
    name: String,
    memory: u64,
    scm: Option<Below>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Below {
    size: u64,
    place: String,
    placement: Placement,
}

impl FromStr for Configuration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (memory_text, below) = match text.split_once('+') {
            Some((memory, below)) => (memory, Some(below)),
            None => (text, None),
        };
        let memory = parse_bytes(memory_text)?;
        let Some(below) = below else {
            return Ok(Self { name: text.to_owned(), memory, scm: None });
        };
        let refused = || {
            Error::invalid("tiers")
                .expected("MEMORY+SIZE@PLACE or MEMORY+SIZE@PLACE,POLICY")
                .got(text)
        };
        let (size, place) = below.split_once('@').ok_or_else(refused)?;
        let policy = place.rsplit_once(',').and_then(|(place, policy)| {
            let named = Placement::NAMES.iter().find(|(name, _)| *name == policy)?;
            Some((place, named.1))
        });
        let (place, placement) = policy.unwrap_or((place, Placement::default()));
        let (name, size) = (format!("{memory_text}+{size}@{place}"), parse_bytes(size)?);
        Scm::new(place, size)?;
        Ok(Self { name, memory, scm: Some(Below { size, place: place.to_owned(), placement }) })
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut out = Output::new();
    if directory::must_hold_store(&args.data).is_err() {
        fill(args)?;
    }
    if !args.json {
        let columns = "ops/s found %  CPU us/op wait us/op io wait %    mean us     P95 us     P99 us  row % \
                       page %  SCM %";
        // Pages by kind, of the lookups of its kind: what DRAM, the tier and flash had of data and metadata.
        let by_kind = "data D/S/F %          meta D/S/F %";
        out.line(format_args!(
            "{:<44} {:<10} {columns} flash % reads/get {by_kind:<42} SCM wr/s of all budget    RSS MiB",
            "tiers", "policy"
        ))?;
        out.flush()?;
    }
    let mut least_found = 1.0;
    for configuration in &args.tiers {
        let report = one(args, configuration)?;
        least_found = found(&report).unwrap_or(1.0).min(least_found);
        match args.json {
            true => out.line(&report)?,
            false => out.line(row(&report))?,
        }
        out.flush()?;
    }
    match args.name.load() {
        // What is not found costs next to nothing: the figures are those of another workload.
        Some(load) if least_found < 1.0 => Err(Error::invalid("store")
            .at(args.data.display())
            .expected(format_args!("one that `{load}` filled, with as many keys"))
            .got(format_args!("{:.2} % of the keys asked for", 100.0 * least_found))),
        _ => Ok(Outcome::Done),
    }
}

/// Of the lookups that should have found something, the part that did; none without any.
fn found(report: &Value) -> Option<f64> {
    report.get("found_share").and_then(Value::as_f64)
}

/// This program, about to run a workload on the store.
fn bench(args: &Args, names: &[Name]) -> Result<Command> {
    let program = std::env::current_exe().map_err(|e| Error::io("find", "this program", e))?;
    let mut command = Command::new(program);
    command.arg("bench").args(names.iter().map(|name| name.name())).arg("--json");
    command.arg("--data").arg(&args.data);
    if let Some(num) = args.num {
        command.args(["--num".to_owned(), num.to_string()]);
    }
    args.replayed.pass_on(&mut command);
    if let Some(bytes) = args.value_size {
        command.args(["--value-size".to_owned(), bytes.to_string()]);
    }
    // A configuration is what its line says, whatever tier the environment asks for.
    for variable in config::variables() {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    Ok(command)
}

fn fill(args: &Args) -> Result<()> {
    let any = if args.replayed.is_asked_for() { Name::FillSeq } else { Name::FillRandom };
    let fill = args.name.load().unwrap_or(any);
    let mut command = bench(args, &[fill])?;
    command.args(["--settle", "--memory", "512MiB"]);
    last_line(&mut command, "filling the store").map(drop)
}

/// Runs the workload on one configuration; what it says of the last round.
fn one(args: &Args, configuration: &Configuration) -> Result<Value> {
    let names = vec![args.name; args.rounds as usize];
    let mut command = bench(args, &names)?;
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
    if let Some(Below { size, place, placement }) = scm {
        set("scm.path", place);
        set("scm.size", &size.to_string());
        set("scm.placement", placement.name());
        if let Some(budget) = args.write_budget {
            set("scm.write-budget", &budget.to_string());
        }
    }
    let report = last_line(&mut command, &configuration.name)?;
    let Value::Object(report) = report else { return Err(unreadable(&report)) };
    let policy = scm.as_ref().map(|scm| scm.placement.name());
    let mut named = Map::new();
    named.insert("tiers".to_owned(), json!(configuration.name));
    named.insert("policy".to_owned(), json!(policy));
    named.insert("write_budget".to_owned(), json!(scm.as_ref().and(args.write_budget)));
    named.extend(report);
    Ok(Value::Object(named))
}

/// The last line that `command` prints, which is JSON. It says on its own what it fails of; `what` it runs is
/// said here.
fn last_line(command: &mut Command, what: &str) -> Result<Value> {
    let done = command.output().map_err(|e| Error::io("run", what, e))?;
    let text = String::from_utf8_lossy(&done.stdout);
    let line = text.lines().last().unwrap_or_default();
    if !done.status.success() {
        return Err(match done.status.code() {
            Some(2) => Error::invalid("a run").at(what).got(done.status),
            _ => Error::io("run", what, std::io::Error::other(done.status.to_string())),
        });
    }
    serde_json::from_str(line).map_err(|error| Error::invalid("report").got(line).caused_by(error))
}

fn unreadable(report: &Value) -> Error {
    Error::invalid("report").expected("an object").got(report)
}

/// A report as a line of the table.
fn row(report: &Value) -> String {
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    let text = |key: &str| report.get(key).and_then(Value::as_str).unwrap_or("-");
    let ops = number("/ops").max(1.0);
    let hits = ["row", "page", "scm", "flash"].map(|tier| number(&format!("/hits/{tier}")));
    let all = hits.iter().sum::<f64>().max(1.0);
    let [row, page, scm, flash] = hits.map(|hits| hits * 100.0 / all);
    let per_op = |pointer: &str| number(pointer) * 1e6 / ops;
    let written = number("/scm/bytes_written") / number("/seconds").max(0.001);
    // Of what would be written if all were let in that is offered, and of what may be written.
    let part = |of: f64, all: f64| match all > 0.0 {
        true => format!("{:.1}%", 100.0 * of / all),
        false => "-".to_owned(),
    };
    let offered = part(number("/scm/admitted"), number("/scm/offered"));
    let budget = part(written, number("/write_budget"));
    let [data, meta] = ["data", "meta"].map(|kind| {
        let lookups = ["dram", "scm", "flash"].map(|tier| number(&format!("/pages/{tier}/{kind}")));
        let all = lookups.iter().sum::<f64>().max(1.0);
        lookups.map(|lookups| format!("{:.1}", 100.0 * lookups / all)).join("/")
    });
    format!(
        "{:<44} {:<10} {:>5.0} {:>7} {:>10.2} {:>10.2} {:>9.1} {:>10.1} {:>10.1} {:>10.1} {row:>6.2} \
         {page:>6.2} {scm:>6.2} {flash:>7.2} {:>9.3} {:<20} {:<21} {:>8} {offered:>6} {budget:>6} {:>10.0}",
        text("tiers"),
        text("policy"),
        number("/ops_per_sec"),
        found(report).map_or_else(|| "-".to_owned(), |part| format!("{:.2}", 100.0 * part)),
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
    fn configurations_are_read_as_they_are_written() {
        let of = |text: &str| text.parse::<Configuration>();
        let alone = of("341MiB").unwrap();
        assert_eq!((alone.name.as_str(), alone.memory, alone.scm), ("341MiB", 341 << 20, None));
        let place = "emulated:cxl-dram@/dev/shm/tier".to_owned();
        let below = Below { size: 3 << 30, place, placement: Placement::ByKind };
        let full = of("341MiB+3GiB@emulated:cxl-dram@/dev/shm/tier,by-kind").unwrap();
        assert_eq!(full.name, "341MiB+3GiB@emulated:cxl-dram@/dev/shm/tier");
        assert_eq!((full.memory, full.scm), (341 << 20, Some(below)));
        assert_eq!(of("1GiB+2GiB@numa:1").unwrap().scm.unwrap().placement, Placement::Adaptive);
        for bad in
            ["", "lots", "1GiB+", "1GiB+2GiB", "1GiB+2GiB@", "1GiB+x@numa:1", "1GiB+2GiB@numa:x"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_report_is_a_line() {
        let report = json!({
            "tiers": "341MiB", "policy": null, "ops": 1000, "ops_per_sec": 500.0, "found_share": 0.6321,
            "seconds": 2.0, "cpu_seconds": 0.01, "io_wait_share": 0.125,
            "latency_us": { "mean": 3.0, "p95": 7.0, "p99": 9.0 },
            "hits": { "row": 50, "page": 25, "scm": 20, "flash": 5 }, "device_reads_per_get": 0.05,
            "scm": { "bytes_written": 8192, "admitted": 3, "offered": 12 }, "write_budget": 16384,
            "pages": { "dram": { "data": 5, "meta": 9 }, "scm": { "data": 4, "meta": 1 },
                "flash": { "data": 1, "meta": 0 } }, "peak_rss_bytes": 1 << 20,
        });
        let line = row(&report);
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

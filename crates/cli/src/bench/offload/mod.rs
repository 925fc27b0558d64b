//! `terrace bench offload`: the gain from moving compaction, or its compression, to a worker.
//!
//! Each configuration is a host process of its own, held to one core, with a worker process on another core
//! that is slowed to a quota. DEFLATE has the emulated engine of a DPU at the worker; its memo is filled by
//! first runs that are not reported. [`run`] starts the processes and prints a line for each configuration;
//! the measurement is in [`load`].

mod load;
mod processes;

use std::path::Path;

use serde::{Deserialize, Serialize};
use terracedb::compaction::BLUEFIELD_2;
use terracedb::{Error, Result};

use crate::interrupt::Scratch;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::shared_args::OutputArgs;
use load::Load;
use processes::{WorkerProcess, run_child};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sweep the quotas 17.5, 35 and 100 %, and load four times as much
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Load little: figures mean nothing, but every configuration runs
    #[arg(long)]
    quick: bool,
    /// Codecs to run, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = CODECS)]
    codecs: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
    /// Runs one configuration; the parent process gives it
    #[arg(long, hide = true, value_name = "JSON")]
    child: Option<String>,
}

const CODECS: [&str; 3] = ["deflate", "lz4", "zstd-1"];

/// The place of compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Mode {
    #[serde(rename = "local")]
    Local,
    #[serde(rename = "compress only")]
    Compress,
    #[serde(rename = "near compute")]
    NearCompute,
    #[serde(rename = "near storage")]
    NearStorage,
    #[serde(rename = "dispatcher")]
    Dispatcher,
}

impl Mode {
    const REMOTE: [Self; 4] =
        [Self::Compress, Self::NearCompute, Self::NearStorage, Self::Dispatcher];
}

/// One configuration, as its process gets it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Configuration {
    codec: String,
    mode: Mode,
    /// The address of the worker.
    worker: Option<String>,
    directory: std::path::PathBuf,
    load: Load,
    /// Puts per second while reads are measured.
    write_rate: Option<f64>,
}

/// The figures that a process measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Measured {
    compaction_mb_per_second: f64,
    puts_per_second: f64,
    gets_per_second: f64,
    p99_us_during_compaction: f64,
    host_compaction_cpu_share: f64,
    link_share: f64,
    host_cpu_seconds: f64,
    worker_cpu_seconds: f64,
    compaction_mb: f64,
    local_jobs: u64,
    remote_jobs: u64,
    fallbacks: u64,
    is_pinned: bool,
}

/// A line of the report. Field names are an interface that scripts parse.
#[derive(Debug, Serialize)]
struct Line<'a> {
    codec: &'a str,
    mode: Mode,
    /// Percent of one core that the worker may use; none for `local`.
    quota: Option<f64>,
    #[serde(flatten)]
    measured: Measured,
    /// Share of the blocks that the engine found in its memo.
    memo_hits: Option<f64>,
    /// Processor time of the blocks that it did not find: it delayed the engine and is no job's.
    memo_miss_cpu_seconds: Option<f64>,
    emulation: String,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    if let Some(child) = &args.child {
        let configuration = serde_json::from_str(child);
        let configuration = configuration
            .map_err(|error| Error::invalid("--child").expected("JSON").caused_by(error))?;
        let measured = load::measure(&configuration)?;
        let mut out = Output::new();
        out.line(format_args!("{}", json_of(&measured)?))?;
        return Ok(Outcome::Done);
    }
    let scratch = tempfile::Builder::new().prefix("terrace-offload-").tempdir();
    let scratch = scratch.map_err(|e| Error::io("create", "a temporary directory", e))?;
    let _removed = Scratch::new(scratch.path());
    let load = match (args.quick, args.full) {
        (true, _) => Load::QUICK,
        (_, true) => Load::FULL,
        _ => Load::DEFAULT,
    };
    let quotas: &[f64] = if args.full { &[17.5, 35.0, 100.0] } else { &[17.5] };
    let mut out = Output::new();
    if !args.output.json {
        out.line(format_args!(
            "{:<8} {:<13} {:>6} {:>10} {:>10} {:>10} {:>10} {:>9} {:>7} {:>6}",
            "codec",
            "mode",
            "quota",
            "MB/s",
            "puts/s",
            "gets/s",
            "p99 us",
            "host CPU",
            "link",
            "memo"
        ))?;
    }
    let chosen = |codec: &&str| args.codecs.is_empty() || args.codecs.iter().any(|it| it == codec);
    for codec in CODECS.into_iter().filter(chosen) {
        of_codec(codec, quotas, load, scratch.path(), &mut |line| {
            print(&mut out, line, args.output.json)
        })?;
    }
    Ok(Outcome::Done)
}

/// Runs the configurations of one codec.
fn of_codec(
    codec: &str,
    quotas: &[f64],
    load: Load,
    scratch: &Path,
    tell: &mut dyn FnMut(&Line<'_>) -> Result<()>,
) -> Result<()> {
    let configuration = |mode, worker: Option<&WorkerProcess>, write_rate| Configuration {
        codec: codec.to_owned(),
        mode,
        worker: worker.map(|worker| worker.address.clone()),
        directory: scratch.join(if mode == Mode::NearStorage { "shared" } else { "own" }),
        load,
        write_rate,
    };
    // The local run states the write rate at which reads of all modes are measured.
    let local = run_child(&configuration(Mode::Local, None, None))?;
    let write_rate = Some(local.puts_per_second / 2.0);
    let local = run_child(&configuration(Mode::Local, None, write_rate))?;
    let pinned = if local.is_pinned { "host on one core" } else { "host on any core" };
    tell(&Line {
        codec,
        mode: Mode::Local,
        quota: None,
        measured: local,
        memo_hits: None,
        memo_miss_cpu_seconds: None,
        emulation: pinned.to_owned(),
    })?;
    for quota in quotas {
        let is_emulated = codec == "deflate";
        let worker = WorkerProcess::start(scratch, &scratch.join("shared"), *quota, is_emulated)?;
        let mut emulation =
            format!("{pinned}, worker on another; quota {quota} % by pauses of the worker");
        if is_emulated {
            emulation.push_str(&format!(
                "; engine {}, {} MB/s, {} us, of {}",
                BLUEFIELD_2.name,
                BLUEFIELD_2.compress_rate / 1e6,
                BLUEFIELD_2.latency.as_micros(),
                BLUEFIELD_2.source
            ));
            // Fills the memo: the measured runs do the same work. Those of the dispatcher also read tables
            // that the host merged, whose blocks end elsewhere.
            for mode in [Mode::NearCompute, Mode::Dispatcher] {
                run_child(&configuration(mode, Some(&worker), write_rate))?;
            }
        }
        for mode in Mode::REMOTE {
            let before = worker.engine();
            let measured = run_child(&configuration(mode, Some(&worker), write_rate))?;
            let after = worker.engine();
            let (blocks, hits) = (after.blocks - before.blocks, after.hits - before.hits);
            let memo_hits = (blocks > 0).then(|| hits as f64 / blocks as f64);
            let miss_cpu = after.miss_cpu_seconds - before.miss_cpu_seconds;
            let memo_miss_cpu_seconds = is_emulated.then_some(miss_cpu);
            let (quota, emulation) = (Some(*quota), emulation.clone());
            tell(&Line {
                codec,
                mode,
                quota,
                measured,
                memo_hits,
                memo_miss_cpu_seconds,
                emulation,
            })?;
        }
    }
    Ok(())
}

fn json_of(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::invalid("report").caused_by(error))
}

fn print(out: &mut Output, line: &Line<'_>, is_json: bool) -> Result<()> {
    if is_json {
        out.line(format_args!("{}", json_of(line)?))?;
        return out.flush();
    }
    let mode = serde_json::to_value(line.mode).ok();
    let mode = mode.as_ref().and_then(|mode| mode.as_str()).unwrap_or_default();
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let it = &line.measured;
    out.line(format_args!(
        "{:<8} {mode:<13} {:>6} {:>10.1} {:>10.0} {:>10.0} {:>10.0} {:>9} {:>7} {:>6}",
        line.codec,
        line.quota.map_or_else(|| "-".to_owned(), |quota| quota.to_string()),
        it.compaction_mb_per_second,
        it.puts_per_second,
        it.gets_per_second,
        it.p99_us_during_compaction,
        percent(it.host_compaction_cpu_share),
        percent(it.link_share),
        line.memo_hits.map_or_else(|| "-".to_owned(), percent),
    ))?;
    out.flush()
}

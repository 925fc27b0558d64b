//! `terrace worker`: a process that runs merges for hosts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use terracedb::compaction::{
    Address, BLUEFIELD_2, EmulatedEngine, EngineStatistics, Operators, Root, Timing, Worker,
    WorkerOptions, WorkerTls,
};
use terracedb::{Error, Result};

use crate::config::token;
use crate::core::hold_to_core;
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{Output, report_to_stderr};
use crate::parsers::{error_text, size};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address to listen at: unix:PATH, or tcp://HOST:PORT; beyond this machine TCP needs --tls-cert
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: Address,
    /// Memory of all jobs together
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    memory: u64,
    /// Jobs that run at once
    #[arg(long, value_name = "N", default_value_t = 2)]
    slots: usize,
    /// The directory of a store that this process can open, and a name for it; may be given more than once.
    /// Files of other stores come over the link
    #[arg(long = "root", value_name = "NAME=DIR", value_parser = root)]
    roots: Vec<Root>,
    /// The engine that compresses and decompresses blocks: `soft`, the threads of jobs, or `emulated:bf2`, an
    /// emulation of the engine of a BlueField-2, for measurements
    #[arg(long, value_name = "ENGINE", default_value = "soft", value_parser = engine)]
    engine: Engine,
    /// Memory for the results that an emulated engine knows
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    memo: u64,
    /// Only compress blocks; refuse whole merges
    #[arg(long)]
    compress_only: bool,
    /// Most processor time of all jobs together, percent of one core, as in 17.5: slow cores, for
    /// measurements
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    cpu_quota: Option<f64>,
    /// Holds the process to one core, for measurements
    #[arg(long, hide = true, value_name = "N")]
    core: Option<usize>,
    /// Writes the counters of an emulated engine to this file, for measurements
    #[arg(long, hide = true, value_name = "FILE")]
    engine_report: Option<PathBuf>,
    /// A file with the token that hosts must know; needed over TCP
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The worker's certificate and its chain, in PEM: hosts on TCP speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities, in PEM, one of which must have signed the certificate of each host
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// Listen beyond this machine without TLS: the token and the content of merges can be read on the way
    #[arg(long, conflicts_with = "tls_cert")]
    allow_plaintext: bool,
}

fn address(text: &str) -> std::result::Result<Address, String> {
    text.parse().map_err(|error| error_text(&error))
}

/// The counters of an emulated engine, in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct EngineReport {
    pub(crate) blocks: u64,
    pub(crate) hits: u64,
    /// Processor time of blocks that the memo lacked.
    pub(crate) miss_cpu_seconds: f64,
}

impl EngineReport {
    /// How often the file is written.
    pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

    /// Writes the counters of `engine` to `file` whenever they changed, until the process ends.
    fn keep(engine: &EmulatedEngine, file: &Path) {
        let mut last = None;
        loop {
            let EngineStatistics { blocks, hits, miss_cpu, .. } = engine.statistics();
            let now = Self { blocks, hits, miss_cpu_seconds: miss_cpu.as_secs_f64() };
            if last != Some(now)
                && let Ok(text) = serde_json::to_string(&now)
            {
                // A reader that finds half of it reads zeros.
                let _ = std::fs::write(file, text);
                last = Some(now);
            }
            std::thread::sleep(Self::INTERVAL);
        }
    }
}

/// The engine of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Soft,
    BlueField2,
}

fn engine(text: &str) -> std::result::Result<Engine, String> {
    match text {
        "soft" => Ok(Engine::Soft),
        "emulated:bf2" => Ok(Engine::BlueField2),
        _ => Err("expected soft or emulated:bf2".to_owned()),
    }
}

/// A share of a core, from percent.
fn percent(text: &str) -> std::result::Result<f64, String> {
    let found = text.parse().ok().filter(|percent| (1.0..=10_000.0).contains(percent));
    found.map(|percent| percent / 100.0).ok_or_else(|| "expected 1 to 10000".to_owned())
}

fn root(text: &str) -> std::result::Result<Root, String> {
    let (name, directory) = text.split_once('=').ok_or("expected NAME=DIR")?;
    Ok(Root { name: name.to_owned(), directory: directory.into() })
}

/// The certificate of the worker.
fn tls(args: &Args) -> Result<Option<WorkerTls>> {
    let files = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
    files.map(|(chain, key)| WorkerTls::open(chain, key, args.tls_ca.as_deref())).transpose()
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    if args.memory < 16 << 20 {
        return Err(Error::invalid("--memory").expected("at least 16MiB").got(args.memory));
    }
    for root in &args.roots {
        if !root.directory.is_dir() {
            return Err(Error::invalid("--root")
                .at(&root.name)
                .expected("a directory")
                .got(root.directory.display()));
        }
    }
    if let Some(core) = args.core {
        hold_to_core(core);
    }
    let emulated = match args.engine {
        Engine::Soft => None,
        Engine::BlueField2 => Some(Arc::new(EmulatedEngine::new(BLUEFIELD_2, args.memo))),
    };
    let options = WorkerOptions {
        memory: args.memory,
        slots: args.slots,
        roots: args.roots.clone(),
        media: Vec::new(),
        token: args.token_file.as_deref().map(token).transpose()?,
        tls: tls(args)?,
        allows_plaintext: args.allow_plaintext,
        operators: Arc::new(Operators::builtin()),
        timing: Timing::default(),
        merges: !args.compress_only,
        engine: emulated.clone().map(|engine| engine as _),
        engine_name: emulated.as_ref().map_or("soft", |_| BLUEFIELD_2.name),
        cpu_share: args.cpu_quota,
    };
    // A signal is its end: a job that dies with it is run again by its host.
    let _section = interrupt::Section::begin();
    let worker = Worker::listen(&args.listen, options)?;
    let mut out = Output::new();
    out.line(format_args!("listening at {}", worker.address()?))?;
    if let Some((engine, file)) = emulated.clone().zip(args.engine_report.clone()) {
        let report = move || EngineReport::keep(&engine, &file);
        let spawned = std::thread::Builder::new().name("engine report".into()).spawn(report);
        spawned.map_err(|error| Error::retry("thread of a report").caused_by(error))?;
    }
    if emulated.is_some() {
        let source = BLUEFIELD_2.source;
        report_to_stderr(format_args!("the engine is emulated, for measurements only: {source}"));
    }
    out.flush()?;
    worker
        .run(&interrupt::cancel().flag(), |line| report_to_stderr(format_args!("job: {line}")))?;
    Ok(Outcome::Done)
}

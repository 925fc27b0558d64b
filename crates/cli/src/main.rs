//! The `terrace` command: benchmarks and replays traces, reads and writes stores, inspects and checks their
//! files.
//!
//! Exit status: 0 success; 1 failure, missing key, or damage found; 2 wrong usage, missing store, or a store
//! that another process has open; 128 and the number of a signal that ended the command, as 130 after
//! Ctrl-C. docs/commands.md documents them for users.

mod args;
mod backup;
mod bench;
mod calibrate;
mod check;
mod compact;
mod completions;
mod config;
mod core;
mod delete_range;
mod directory;
mod dump;
mod entries;
mod escape;
mod hex;
mod ingest;
mod inspect;
mod interrupt;
mod keyspace;
mod load;
mod log;
mod log_stats;
mod measured_store;
mod new_store;
mod outcome;
mod output;
mod parsers;
mod place;
mod plan;
mod progress;
mod reference;
mod repair;
mod replay;
mod repository;
mod scrub;
mod serve;
mod shared_args;
mod shell;
mod stats;
mod time;
mod transfer;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use terracedb::{Error, ErrorKind, Result};

use crate::args::{Args, Command};
use crate::outcome::Outcome;
use crate::output::report_to_stderr;

fn main() -> ExitCode {
    let args = Args::parse();
    let opens_store = match &args.command {
        Command::Replay(_)
        | Command::Plan(_)
        | Command::Inspect(_)
        | Command::Calibrate(_)
        | Command::Load(_) => false,
        Command::Bench(bench) => !bench.reads_trace(),
        _ => true,
    };
    // The server ends by itself.
    if !matches!(args.command, Command::Serve(_)) {
        interrupt::watch();
    }
    match run(args.command) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        Err(error) => {
            if let Some(status) = interrupt::exit_status() {
                return ExitCode::from(status);
            }
            report_to_stderr(parsers::error_text(&error));
            if let Some(advice) = advice(&error, opens_store) {
                report_to_stderr(advice);
            }
            use ErrorKind::{AlreadyExists, Invalid, Locked, NotFound, PermissionDenied};
            let is_usage = matches!(
                error.kind(),
                Invalid | NotFound | AlreadyExists | Locked | PermissionDenied
            );
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

fn run(command: Command) -> Result<Outcome> {
    match command {
        Command::Bench(args) => bench::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Import(args) => transfer::import(&args),
        Command::Export(args) => transfer::export(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Get(args) => entries::get(&args),
        Command::Put(args) => entries::put(&args),
        Command::Delete(args) => entries::delete(&args),
        Command::DeleteRange(args) => delete_range::run(&args),
        Command::Scan(args) => entries::scan(&args),
        Command::Shell(args) => shell::run(&args),
        Command::Ingest(args) => ingest::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Keyspace { command } => keyspace::run(&command),
        Command::Log { command } => log::run(&command),
        Command::Stats(args) => stats::run(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Repair(args) => repair::run(&args),
        Command::Checkpoint(args) => backup::checkpoint(&args),
        Command::Backup { command } => backup::run(&command),
        Command::Restore(args) => backup::restore(&args),
        Command::Clone(args) => backup::clone(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Config { command } => config::run(&command),
        Command::Completions(args) => completions::run(&args, &mut Args::command()),
        Command::Reference => reference::run(&mut Args::command()),
    }
}

/// The next step for the user, by the kind of error. If the command does not open a store (`opens_store`),
/// the damage may be in a trace, a dump or a single file, so `terrace check` is no help.
fn advice(error: &Error, opens_store: bool) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::Corrupt if opens_store => {
            Some("`terrace check DIR` names every damaged file, page and key range")
        }
        ErrorKind::Locked => Some(
            "get, scan, stats, check, checkpoint, backup and shell read a store that is in use",
        ),
        ErrorKind::NoSpace => Some("free space on the device; no acknowledged write is lost"),
        ErrorKind::Poisoned => Some("open the store again; every synced write is in it"),
        _ => None,
    }
}

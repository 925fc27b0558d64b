//! The `terrace` command: benchmarks, replays traces, reads and writes stores, looks inside their
//! files and checks them.
//!
//! Exit status: 0 done; 1 it failed, the key is not there, or damage was found; 2 wrong usage, no
//! store, or one that is open elsewhere. docs/operations.md says the same to users.

mod args;
mod backup;
mod bench;
mod calibrate;
mod check;
mod compact;
mod completions;
mod config;
mod delete_range;
mod directory;
mod engine;
mod entries;
mod ingest;
mod inspect;
mod keyspace;
mod output;
mod place;
mod plan;
mod progress;
mod repair;
mod replay;
mod scrub;
mod stats;
mod time;

use std::process::ExitCode;

use clap::Parser;
use terracedb::{Error, ErrorKind, Result};

use crate::args::{Args, Command};
use crate::output::tell;

/// How a command that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Exit status 0.
    Done,
    /// Exit status 1: what was asked for is not there, or not whole.
    Negative,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let on_store = match &args.command {
        Command::Replay(_) | Command::Plan(_) | Command::Inspect(_) | Command::Calibrate(_) => {
            false
        }
        Command::Bench(bench) => !bench.replayed.is_asked_for(),
        _ => true,
    };
    match run(args.command) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        Err(error) => {
            tell(args::plain(&error));
            if let Some(advice) = advice(&error, on_store) {
                tell(advice);
            }
            ExitCode::from(if error.kind() == ErrorKind::Invalid { 2 } else { 1 })
        }
    }
}

fn run(command: Command) -> Result<Outcome> {
    match command {
        Command::Bench(args) => bench::run(*args),
        Command::Replay(args) => replay::run(args),
        Command::Plan(args) => plan::run(&args),
        Command::Get(args) => entries::get(args),
        Command::Put(args) => entries::put(args),
        Command::Delete(args) => entries::delete(args),
        Command::DeleteRange(args) => delete_range::run(&args),
        Command::Scan(args) => entries::scan(args),
        Command::Ingest(args) => ingest::run(&args),
        Command::Keyspace { command } => keyspace::run(&command),
        Command::Stats(args) => stats::run(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Repair(args) => repair::run(&args),
        Command::Checkpoint(args) => backup::checkpoint(&args),
        Command::Backup { command } => backup::backup(&command),
        Command::Restore(args) => backup::restore(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Config { command } => config::run(&command),
        Command::Completions(args) => completions::run(&args),
    }
}

/// What to do next, by the kind of error. Damage may be a trace's or a lone file's, where the
/// command is not `on_store`.
fn advice(error: &Error, on_store: bool) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::Corrupt if on_store => {
            Some("`terrace check DIR` names every damaged file, page and key range")
        }
        ErrorKind::NoSpace => {
            Some("free space on the device; nothing that was acknowledged is lost")
        }
        ErrorKind::Poisoned => Some("open the store again; what was synced is there"),
        _ => None,
    }
}

//! `terrace log`: moves the log of a store between its directory and devices of storage-class memory.

use std::sync::Arc;

use base::format_count;
use media::{FileMedium, FileOptions, Medium};
use serde_json::json;
use terracedb::Result;
use terracedb::tools::{LogConfig, LogMoveReport, move_log};

use crate::outcome::Outcome;
use crate::output::Output;
use crate::shared_args::{OfflineStoreArgs, OutputArgs};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Move the log of a store that is not open, with all its writes, to other devices
    Move(MoveArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    store: OfflineStoreArgs,
    /// The directories on storage-class memory, separated by commas, one a device; `store` is the store's own
    /// directory
    #[arg(long, value_name = "PATH", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// Lanes of each device: threads that write to it at once [default: as its calibration says, or 2 to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    lanes: Option<u16>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(command: &Command) -> Result<Outcome> {
    match command {
        Command::Move(args) => run_move(args),
    }
}

fn run_move(args: &MoveArgs) -> Result<Outcome> {
    let (dir, from) = args.store.files()?;
    let options = FileOptions { create: false, ..FileOptions::default() };
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::open(&dir, options)?);
    let places = if args.to == ["store"] { Vec::new() } else { args.to.clone() };
    let to = LogConfig { lanes: args.lanes, ..LogConfig::at(places) };
    let report = move_log(&medium, &from, &to)?;
    let mut out = Output::new();
    match args.output.json {
        true => out.line(json!({
            "places": report.places,
            "lanes": report.lanes,
            "left": report.left,
        }))?,
        false => print(&report, &mut out)?,
    }
    out.flush()?;
    Ok(Outcome::Done)
}

fn print(report: &LogMoveReport, out: &mut Output) -> Result<()> {
    match &report.places[..] {
        [] => out.line("the log is in the store's directory")?,
        places => out.line(format_args!(
            "the log is at {}: {}",
            places.join(", "),
            format_count(report.lanes, "lane")
        ))?,
    }
    for name in &report.left {
        out.line(format_args!("note: {name} could not be removed; the store does not read it"))?;
    }
    Ok(())
}

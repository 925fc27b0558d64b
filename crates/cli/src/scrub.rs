//! `terrace scrub`.

use std::thread;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use serde_json::json;
use terracedb::{Db, Result, ScrubReport, format_bytes};

use crate::config::{Config, Flags};
use crate::output::Output;
use crate::progress::Progress;
use crate::{Outcome, check};

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory, or a configuration file that names it
    store: std::path::PathBuf,
    #[command(flatten)]
    flags: Flags,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = Config::of_store(&args.store, &args.flags)?.open(false)?;
    let report = watched(&db)?;
    // A table that could not be opened has no pages that a scrub could read.
    let unopened = &db.recovery().damaged_tables;
    let damages = report.damages + unopened.len() as u64;
    let mut out = Output::new();
    if args.json {
        out.line(json!({
            "clean": damages == 0,
            "tables": report.tables,
            "pages": report.pages,
            "bytes": report.bytes,
            "seconds": report.took.as_secs_f64(),
            "unopened": unopened.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "damages": damages,
            "problems": report.problems.iter().map(check::problem_to_json).collect::<Vec<_>>(),
        }))?;
    } else {
        out.line(format_args!(
            "{} tables of {} with {} pages, in {:.3} s",
            report.tables,
            format_bytes(report.bytes),
            report.pages,
            report.took.as_secs_f64()
        ))?;
        for error in unopened {
            out.line(format_args!("a table cannot be opened: {error}"))?;
        }
        check::print_problems(&report.problems, report.damages, &mut out)?;
        check::print_count(damages, &mut out)?;
    }
    out.flush()?;
    Ok(if damages == 0 { Outcome::Done } else { Outcome::Negative })
}

/// Scrubs `db`, with a bar that shows how far it is.
fn watched(db: &Db) -> Result<ScrubReport> {
    let total = db.statistics().keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum();
    let bar = Progress::of_bytes("scrub");
    thread::scope(|scope| {
        let scrub = scope.spawn(|| db.scrub());
        while !scrub.is_finished() {
            bar.show(db.statistics().scrub.pages * PAGE_BYTES as u64, Some(total));
            thread::sleep(LOOK);
        }
        scrub.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

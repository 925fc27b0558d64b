//! `terrace scrub`.

use std::thread;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use serde_json::json;
use terracedb::{Db, KeyspaceStatistics, Result, ScrubReport, format_bytes, format_count};

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
    let mut out = Output::new();
    if args.json {
        out.line(json!({
            "clean": report.damages == 0,
            "tables": report.tables,
            "value_files": report.value_files,
            "pages": report.pages,
            "bytes": report.bytes,
            "seconds": report.took.as_secs_f64(),
            "damages": report.damages,
            "problems": report.problems.iter().map(check::problem_to_json).collect::<Vec<_>>(),
        }))?;
    } else {
        out.line(format_args!(
            "{} and {} of {} with {}, in {:.3} s",
            format_count(report.tables, "table"),
            format_count(report.value_files, "value file"),
            format_bytes(report.bytes),
            format_count(report.pages, "page"),
            report.took.as_secs_f64()
        ))?;
        check::print_problems(&report.problems, report.damages, &mut out)?;
        check::print_count(report.damages, &mut out)?;
    }
    out.flush()?;
    Ok(if report.damages == 0 { Outcome::Done } else { Outcome::Negative })
}

/// Scrubs `db`, with a bar that shows how far it is.
fn watched(db: &Db) -> Result<ScrubReport> {
    let bytes = |keyspace: &KeyspaceStatistics| keyspace.table_bytes + keyspace.value_file_bytes;
    let total = db.statistics().keyspaces.iter().map(bytes).sum();
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

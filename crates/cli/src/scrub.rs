//! `terrace scrub`: reads every table of an open store and verifies each page.

use std::thread;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{format_bytes, format_count};
use serde_json::json;
use terracedb::stats::KeyspaceStatistics;
use terracedb::tools::ScrubReport;
use terracedb::{Db, Result};

use crate::check;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::shared_args::{OutputArgs, StoreArgs};

/// Time between two updates of the progress bar.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = args.store.open()?;
    let report = scrub_with_progress(&db)?;
    let mut out = Output::new();
    if args.output.json {
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
    Ok(Outcome::good_if(report.damages == 0))
}

/// Scrubs `db` and shows a progress bar.
fn scrub_with_progress(db: &Db) -> Result<ScrubReport> {
    let bytes = |keyspace: &KeyspaceStatistics| keyspace.table_bytes + keyspace.value_file_bytes;
    let total = db.statistics().keyspaces.iter().map(bytes).sum();
    let bar = Progress::of_bytes("scrub");
    thread::scope(|scope| {
        let scrub = scope.spawn(|| db.scrub());
        while !scrub.is_finished() {
            bar.show(db.statistics().scrub.pages * PAGE_BYTES as u64, Some(total));
            thread::sleep(UPDATE_INTERVAL);
        }
        scrub.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

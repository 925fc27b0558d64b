//! `terrace check`: verifies a store, also one that another process has open, and prints the findings.

use std::sync::Arc;

use base::{format_bytes, format_count};
use media::{FileMedium, FileOptions, Medium};
use serde_json::{Value, json};
use terracedb::Result;
use terracedb::recovery::Problem;
use terracedb::tools::{CheckReport, check_with};

use crate::outcome::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::repair::{lost_range_to_json, lost_records_to_json};
use crate::shared_args::{OfflineStoreArgs, OutputArgs, ReadOnlyArgs, is_unwritable};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: OfflineStoreArgs,
    #[command(flatten)]
    access: ReadOnlyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let (dir, log) = args.store.files()?;
    let options = FileOptions { create: false, read_only: true, ..FileOptions::default() };
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::open(&dir, options)?);
    let progress = Progress::of_bytes("check");
    let mut show = |done, total| progress.show(done, Some(total));
    let check_now = |show: &mut dyn FnMut(u64, u64)| {
        let (files, log) = terracedb::tools::read_only_files(&medium, &log)?;
        check_with(&files, &log, show)
    };
    let report = match args.access.read_only {
        true => check_now(&mut show)?,
        false => match check_with(&medium, &log, &mut show) {
            Err(error) if is_unwritable(&error) => check_now(&mut show)?,
            checked => checked?,
        },
    };
    drop(progress);
    print_report(&report, args.output.json)
}

/// Prints the report of a check, and returns whether the store is clean.
pub(crate) fn print_report(report: &CheckReport, json: bool) -> Result<Outcome> {
    let mut out = Output::new();
    if json {
        out.line(to_json(report))?;
    } else {
        print_text(report, &mut out)?;
    }
    out.flush()?;
    Ok(Outcome::good_if(report.is_clean()))
}

fn print_text(report: &CheckReport, out: &mut Output) -> Result<()> {
    let CheckReport { keyspaces, files, bytes, tables, pages, entries, .. } = report;
    let CheckReport { values, dictionaries, .. } = report;
    match report.store {
        Some(store) => {
            out.line(format_args!("store {store}, {}", format_count(*keyspaces, "keyspace")))?;
        }
        None => out.line("store unknown: its manifest is lost")?,
    }
    out.line(format_args!(
        "{} of {}: {} with {} and {}, {}, {}, {} with {}",
        format_count(*files, "file"),
        format_bytes(*bytes),
        format_count(*tables, "table"),
        format_count(*pages, "page"),
        format_count(*entries, "entry"),
        format_count(*values, "long value"),
        format_count(*dictionaries, "dictionary"),
        format_count(report.log_segments, "log segment"),
        format_count(report.log_records, "record")
    ))?;
    if let Some(file) = &report.index_checkpoint {
        out.line(format_args!(
            "{file}: {} of resident keyspaces",
            format_count(report.resident_entries, "entry")
        ))?;
    }
    if let Some(torn) = &report.log_torn {
        out.line(format_args!(
            "note: the log ends at {torn}; the bytes after it were never synced"
        ))?;
    }
    if report.manifest_repairs > 0 {
        out.line(format_args!(
            "note: {} damaged copies of manifest records have an intact copy; opening the store repairs them",
            report.manifest_repairs
        ))?;
    }
    if report.cold_tables > 0 {
        out.line(format_args!(
            "note: {} in the object store, which the check does not read",
            format_count(report.cold_tables, "table")
        ))?;
    }
    for name in &report.unowned {
        out.line(format_args!("note: {name} is no file of a store"))?;
    }
    print_problems(&report.problems, report.damages, out)?;
    print_lost(report, out)?;
    print_count(report.damages, out)
}

/// Prints which keys the damage cost.
fn print_lost(report: &CheckReport, out: &mut Output) -> Result<()> {
    let lost = &report.lost;
    if report.is_clean() {
        return Ok(());
    }
    if lost.is_empty() {
        return out.line("no key lost");
    }
    for range in &lost.ranges {
        out.line(range)?;
    }
    for records in &lost.log {
        out.line(format_args!("log: {records}"))?;
    }
    let count = match lost.entries {
        Some(entries) => format!("up to {} lost", format_count(entries, "key")),
        None => "keys lost, their number is unknown".to_owned(),
    };
    if lost.ranges.is_empty() {
        return out.line(count);
    }
    for (keyspace, span) in lost.spans() {
        let keyspace = keyspace.map_or_else(
            || "an unknown keyspace".to_owned(),
            |name| format!("keyspace `{}`", name.escape_debug()),
        );
        match span {
            Some((from, to)) => out.line(format_args!(
                "{count}: from `{}` to `{}` of {keyspace}",
                from.escape_ascii(),
                to.escape_ascii()
            ))?,
            None => out.line(format_args!("{count}: of {keyspace}"))?,
        }
    }
    Ok(())
}

/// Prints the listed problems, and how many of the `damages` found are not listed.
pub(crate) fn print_problems(problems: &[Problem], damages: u64, out: &mut Output) -> Result<()> {
    for problem in problems {
        out.line(problem)?;
    }
    base::invariant!(problems.len() as u64 <= damages, "every listed problem is counted as damage");
    let unlisted = damages.saturating_sub(problems.len() as u64);
    if unlisted > 0 {
        out.line(format_args!("and {}", format_count(unlisted, "further problem")))?;
    }
    Ok(())
}

/// Prints the last line: the number of problems.
pub(crate) fn print_count(damages: u64, out: &mut Output) -> Result<()> {
    match damages {
        0 => out.line("clean"),
        count => out.line(format_count(count, "problem")),
    }
}

fn to_json(report: &CheckReport) -> Value {
    json!({
        "clean": report.is_clean(),
        "store": report.store.map(|store| store.to_string()),
        "keyspaces": report.keyspaces,
        "files": report.files,
        "bytes": report.bytes,
        "dictionaries": report.dictionaries,
        "tables": report.tables,
        "cold_tables": report.cold_tables,
        "pages": report.pages,
        "entries": report.entries,
        "values": report.values,
        "log_segments": report.log_segments,
        "log_records": report.log_records,
        "log_torn": report.log_torn,
        "index_checkpoint": report.index_checkpoint,
        "resident_entries": report.resident_entries,
        "manifest_repairs": report.manifest_repairs,
        "unowned": report.unowned,
        "damages": report.damages,
        "keys_lost": report.lost.entries,
        "lost": report.lost.ranges.iter().map(lost_range_to_json).collect::<Vec<_>>(),
        "log_lost": report.lost.log.iter().map(lost_records_to_json).collect::<Vec<_>>(),
        "problems": report.problems.iter().map(problem_to_json).collect::<Vec<_>>(),
    })
}

/// A problem as `check` and `scrub` print it.
pub(crate) fn problem_to_json(problem: &Problem) -> Value {
    let text = |key: &Vec<u8>| key.escape_ascii().to_string();
    json!({
        "file": problem.file,
        "page": problem.pages.map(|(first, _)| first),
        "pages": problem.pages.map(|(_, count)| count),
        "keyspace": problem.keyspace,
        "first_key": problem.keys.as_ref().map(|(from, _)| text(from)),
        "last_key": problem.keys.as_ref().map(|(_, to)| text(to)),
        "error": problem.error.to_string(),
    })
}

//! `terrace repair`: repairs a damaged store, and prints the repaired files and the lost keys.

use std::sync::Arc;

use base::{format_bytes, format_count};
use media::{FileMedium, FileOptions, Medium};
use serde_json::{Value, json};
use terracedb::Result;
use terracedb::recovery::{LogPlace, LostRecords};
use terracedb::tools::{Lost, LostLog, LostRange, RepairOptions, RepairReport, RepairedFile};

use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::shared_args::{OfflineStoreArgs, OutputArgs};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: OfflineStoreArgs,
    /// Print what would be repaired and what is lost, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let (dir, log) = args.store.files()?;
    let options = FileOptions { create: false, ..FileOptions::default() };
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::open(&dir, options)?);
    let progress = Progress::of_bytes("repair");
    let _section = interrupt::Section::begin();
    let options = RepairOptions { dry_run: args.dry_run, cancel: interrupt::cancel() };
    let report = terracedb::tools::repair_with(&medium, &log, options, &mut |done, total| {
        progress.show(done, Some(total));
    })?;
    drop(progress);
    let mut out = Output::new();
    if args.output.json {
        out.line(to_json(&report))?;
    } else {
        print(&report, &mut out)?;
    }
    out.flush()?;
    // Good: there is nothing to repair, or everything was repaired without loss.
    let lost_writes = report.log.as_ref().is_some_and(LostLog::costs_writes);
    let is_lossless = report.lost.is_empty()
        && !lost_writes
        && report.uncertain.is_empty()
        && report.operators.is_empty();
    Ok(Outcome::good_if(is_lossless && (report.is_clean() || !report.dry_run)))
}

fn print(report: &RepairReport, out: &mut Output) -> Result<()> {
    let tables = format_count(report.tables, "table");
    let values = format_count(report.value_files, "value file");
    let bytes = format_bytes(report.bytes);
    out.line(format_args!("{tables} and {values} of {bytes}"))?;
    if report.cold_tables > 0 {
        out.line(format_args!(
            "note: {} in the object store, which the repair does not read",
            format_count(report.cold_tables, "table")
        ))?;
    }
    if let Some(error) = &report.manifest {
        out.line(format_args!("manifest rebuilt from the tables: {error}"))?;
    }
    for table in &report.repaired {
        if table.new_file.as_deref() == Some(table.file.as_str()) {
            out.line(format_args!(
                "{}: written anew from the manifest: {}",
                table.file, table.error
            ))?;
            continue;
        }
        let new_file = match (&table.new_file, report.dry_run) {
            (Some(file), _) => format!(", now in {file}"),
            (None, true) => String::new(),
            (None, false) => ", no entry left".to_owned(),
        };
        let (file, error) = (&table.file, &table.error);
        let entries = format_count(table.versions, "entry");
        out.line(format_args!("{file}: {entries} can be read{new_file}: {error}"))?;
    }
    for name in &report.dictionaries {
        out.line(format_args!("{name} cannot be read"))?;
    }
    if let Some(log) = &report.log {
        out.line(log)?;
    }
    for keyspace in &report.uncertain {
        out.line(format_args!(
            "keyspace `{}`: keys deleted before its tables were merged may have reappeared",
            keyspace.escape_debug()
        ))?;
    }
    for keyspace in &report.operators {
        out.line(format_args!(
            "keyspace `{}`: its merge operator is lost, and its name: reads of keys with operands fail until \
             the keyspace is opened with the operator that it had",
            keyspace.escape_debug()
        ))?;
    }
    for lost in &report.lost {
        out.line(lost)?;
    }
    for name in &report.kept {
        out.line(format_args!("kept: {name}"))?;
    }
    match (report.is_clean(), report.dry_run) {
        (true, _) => out.line("nothing to repair"),
        (false, true) => out.line("nothing was changed"),
        (false, false) => out.line("repaired"),
    }
}

fn to_json(report: &RepairReport) -> Value {
    json!({
        "clean": report.is_clean(),
        "dry_run": report.dry_run,
        "store": report.store.map(|store| store.to_string()),
        "tables": report.tables,
        "cold_tables": report.cold_tables,
        "value_files": report.value_files,
        "bytes": report.bytes,
        "manifest": report.manifest.as_ref().map(ToString::to_string),
        "uncertain": report.uncertain,
        "operators_lost": report.operators,
        "repaired": report.repaired.iter().map(repaired_to_json).collect::<Vec<_>>(),
        "dictionaries": report.dictionaries,
        "log": report.log.as_ref().map(|log| json!({
            "error": log.error.to_string(),
            "lost": log.lost.iter().map(lost_records_to_json).collect::<Vec<_>>(),
            "ends": log.ends,
        })),
        "lost": report.lost.iter().map(lost_range_to_json).collect::<Vec<_>>(),
        "kept": report.kept,
    })
}

fn repaired_to_json(table: &RepairedFile) -> Value {
    json!({
        "file": table.file,
        "keyspace": table.keyspace,
        "error": table.error.to_string(),
        "new_file": table.new_file,
        "versions": table.versions,
    })
}

pub(crate) fn lost_records_to_json(lost: &LostRecords) -> Value {
    let position = |place: &LogPlace| {
        json!({
            "file": place.file,
            "offset": place.offset,
            "lane_sequence": place.lane_sequence,
        })
    };
    json!({
        "error": lost.error.to_string(),
        "from": position(&lost.from),
        "to": lost.to.as_ref().map(position),
        "records": lost.records,
        "first_seqno": lost.seqnos.0,
        "below_seqno": lost.seqnos.1,
    })
}

pub(crate) fn lost_range_to_json(lost: &LostRange) -> Value {
    let text = |key: &Vec<u8>| key.escape_ascii().to_string();
    json!({
        "file": lost.file,
        "page": lost.pages.map(|(first, _)| first),
        "pages": lost.pages.map(|(_, count)| count),
        "keyspace": lost.keyspace,
        "first_key": lost.keys.as_ref().map(|(from, _)| text(from)),
        "last_key": lost.keys.as_ref().map(|(_, to)| text(to)),
        "what": match lost.what {
            Lost::RangeDeletes => "range deletes",
            _ => "versions",
        },
    })
}

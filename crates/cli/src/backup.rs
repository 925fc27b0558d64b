//! `terrace checkpoint`, `backup` and `restore`.

use std::path::Path;

use serde_json::json;
use terracedb::{
    Backup, BackupInfo, CheckpointOptions, DeleteReport, Error, Result, format_bytes, format_count,
};

use crate::args::{self, BackupCommand};
use crate::config::Config;
use crate::output::Output;
use crate::progress::Progress;
use crate::{Outcome, check, time};

/// What a command does to a repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Reads,
    Removes,
    /// The only one that makes the directory.
    Creates,
}

/// The repository in `dir`.
fn repository(dir: &Path, usage: Use, rate: Option<u64>, name: &str) -> Result<Backup> {
    if usage != Use::Creates && !dir.is_dir() {
        let error = Error::invalid("directory of backups").at(dir.display());
        return Err(error.expected("one that exists").got("none"));
    }
    let bar = Progress::of_bytes(name);
    let backups = match usage {
        Use::Reads => Backup::open_read_only(dir)?,
        Use::Removes | Use::Creates => Backup::open(dir)?,
    };
    let backups = backups.rate(rate.unwrap_or(0));
    Ok(backups.progress(move |done, total| bar.show(done, Some(total))))
}

pub(crate) fn checkpoint(args: &args::Checkpoint) -> Result<Outcome> {
    let db = Config::of_store(&args.dir, &args.engine)?.open(false)?;
    let options = CheckpointOptions::default().flush(args.flush);
    let report = db.checkpoint_with(&args.place, options)?;
    let mut out = Output::new();
    if args.json {
        out.line(json!({
            "files_linked": report.files_linked,
            "bytes_linked": report.bytes_linked,
            "files_copied": report.files_copied,
            "bytes_copied": report.bytes_copied,
            "log_bytes": report.log_bytes,
            "seconds": report.elapsed.as_secs_f64(),
        }))?;
    } else {
        out.line(format_args!(
            "checkpoint at {}: {} of {} shared, {} of {} copied, {} of log, in {:.3} s",
            args.place.display(),
            format_count(report.files_linked, "file"),
            format_bytes(report.bytes_linked),
            format_count(report.files_copied, "file"),
            format_bytes(report.bytes_copied),
            format_bytes(report.log_bytes),
            report.elapsed.as_secs_f64()
        ))?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn backup(command: &BackupCommand) -> Result<Outcome> {
    match command {
        BackupCommand::Create(args) => create(args),
        BackupCommand::List(args) => list(args),
        BackupCommand::Verify(args) => {
            let report =
                repository(&args.repository, Use::Reads, args.rate, "verify")?.verify(args.id)?;
            check::show(&report, args.json)
        }
        BackupCommand::Delete(args) => {
            let backups = repository(&args.repository, Use::Removes, None, "delete")?;
            deleted(&backups.delete(args.id)?, args.json)
        }
        BackupCommand::Prune(args) => {
            let backups = repository(&args.repository, Use::Removes, None, "prune")?;
            deleted(&backups.prune(args.keep)?, args.json)
        }
    }
}

fn create(args: &args::BackupCreate) -> Result<Outcome> {
    let db = Config::of_store(&args.dir, &args.engine)?.open(false)?;
    let report = repository(&args.repository, Use::Creates, args.rate, "backup")?
        .create(&db, &args.label)?;
    let mut out = Output::new();
    if args.json {
        out.line(json!({
            "id": report.id,
            "files": report.files,
            "bytes": report.bytes,
            "files_copied": report.files_copied,
            "bytes_copied": report.bytes_copied,
            "log_bytes": report.log_bytes,
            "seconds": report.elapsed.as_secs_f64(),
        }))?;
    } else {
        out.line(format_args!(
            "backup {}: {} of {}, {} of {} copied, in {:.3} s",
            report.id,
            format_count(report.files, "file"),
            format_bytes(report.bytes),
            format_count(report.files_copied, "file"),
            format_bytes(report.bytes_copied),
            report.elapsed.as_secs_f64()
        ))?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

fn list(args: &args::BackupList) -> Result<Outcome> {
    let list = repository(&args.repository, Use::Reads, None, "list")?.list()?;
    let mut out = Output::new();
    for BackupInfo { id, label, created_unix_ms, store, files, bytes, unique_bytes, .. } in
        &list.backups
    {
        if args.json {
            out.line(json!({
                "id": id,
                "label": label,
                "created_unix_ms": created_unix_ms,
                "store": store.to_string(),
                "files": files,
                "bytes": bytes,
                "unique_bytes": unique_bytes,
            }))?;
        } else {
            out.line(format_args!(
                "{id}\t{}\t{} in {}, {} of its own\tstore {store}\t{}",
                time::moment(created_unix_ms / 1000),
                format_bytes(*bytes),
                format_count(*files, "file"),
                format_bytes(*unique_bytes),
                label.escape_debug()
            ))?;
        }
    }
    for (id, error) in &list.damaged {
        if args.json {
            out.line(json!({ "id": id, "error": error.to_string() }))?;
        } else {
            out.line(format_args!("{id}\t{error}"))?;
        }
    }
    if !args.json {
        out.line(format_args!("{} in all", format_bytes(list.bytes)))?;
    }
    out.flush()?;
    Ok(if list.damaged.is_empty() { Outcome::Done } else { Outcome::Negative })
}

fn deleted(report: &DeleteReport, json: bool) -> Result<Outcome> {
    let DeleteReport { backups, files, bytes, .. } = report;
    let mut out = Output::new();
    if json {
        out.line(json!({ "backups": backups, "files": files, "bytes": bytes }))?;
    } else {
        for id in backups {
            out.line(format_args!("backup {id} deleted"))?;
        }
        let files = format_count(*files, "file");
        out.line(format_args!("{files} of {} removed", format_bytes(*bytes)))?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn restore(args: &args::Restore) -> Result<Outcome> {
    let backups = repository(&args.repository, Use::Reads, args.rate, "restore")?;
    let report = backups.restore(args.id, &args.place)?;
    drop(backups);
    let mut out = Output::new();
    if args.json {
        out.line(json!({
            "id": args.id,
            "files": report.files,
            "bytes": report.bytes,
            "seconds": report.elapsed.as_secs_f64(),
        }))?;
    } else {
        out.line(format_args!(
            "backup {} restored to {}: {} of {}, in {:.3} s",
            args.id,
            args.place.display(),
            format_count(report.files, "file"),
            format_bytes(report.bytes),
            report.elapsed.as_secs_f64()
        ))?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

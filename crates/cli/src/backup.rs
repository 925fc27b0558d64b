//! `terrace checkpoint`, `backup`, `restore` and `clone`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{format_bytes, format_count};
use serde_json::json;
use terracedb::tools::{BackupInfo, CheckpointOptions, DeleteReport, PruneOptions};
use terracedb::{Error, Result};

use crate::config::Flags;
use crate::interrupt::{self, Section};
use crate::outcome::Outcome;
use crate::output::{Output, print_result};
use crate::parsers::{seconds, size};
use crate::place::{self, Place};
use crate::repository::{Access, Chosen, EndpointArgs, RepositoryArgs};
use crate::shared_args::{OutputArgs, ReadOnlyArgs, StoreArgs};
use crate::{check, directory, time};

#[derive(Debug, clap::Args)]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The new store's directory, which must be missing or empty; it may be a mount point
    #[arg(value_parser = place::new_store())]
    place: PathBuf,
    /// Flush first, so that there is little log to copy
    #[arg(long)]
    flush: bool,
    #[command(flatten)]
    access: ReadOnlyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Back a store up, copying only files that the repository does not have
    Create(CreateArgs),
    /// List backups with number, time, size and label, oldest first
    List(ListArgs),
    /// Read all files of a backup, and check the store in it
    Verify(VerifyArgs),
    /// Delete a backup, and the files that no other backup has
    Delete(DeleteArgs),
    /// Delete all but the newest backups of each store, and of each copy of a store
    Prune(PruneArgs),
}

/// A backup in its repository.
#[derive(Debug, clap::Args)]
struct BackupArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    /// The backup's number, or `latest`
    id: Chosen,
}

/// Whether a command that deletes backups only reports.
#[derive(Debug, clap::Args)]
struct DryRunArgs {
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

impl DryRunArgs {
    const fn access(&self) -> Access {
        if self.dry_run { Access::Read } else { Access::Remove }
    }
}

/// A limit on the bytes per second that a command reads.
#[derive(Debug, clap::Args)]
struct ReadRateArgs {
    /// Read at most this much per second
    #[arg(long, value_name = "SIZE", value_parser = size)]
    rate: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    repository: RepositoryArgs,
    /// A label for the backup
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    #[command(flatten)]
    rate: ReadRateArgs,
    #[command(flatten)]
    access: ReadOnlyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    backup: BackupArgs,
    #[command(flatten)]
    rate: ReadRateArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    backup: BackupArgs,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    repository: RepositoryArgs,
    /// Number of backups to keep of each store, and of each copy of a store (a restored backup, a checkpoint)
    /// [default: 1 with --keep-within]
    #[arg(long, value_name = "N", required_unless_present = "keep_within")]
    keep: Option<usize>,
    /// Keep also the backups that are not older than this time, as in 36h or 30d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    keep_within: Option<Duration>,
    /// Allow `--keep 0`, which deletes every backup
    #[arg(long)]
    delete_all: bool,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CloneArgs {
    /// A store: its directory, file:///DIR, or a configuration file that names it. Or backups: their
    /// directory, file:///DIR or s3://BUCKET/PREFIX
    #[arg(value_parser = place::any())]
    from: Place,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    access: ReadOnlyArgs,
    /// The new store's directory, which must be missing or empty; it may be a mount point
    #[arg(value_parser = place::new_store())]
    place: PathBuf,
    /// The backup's number, of a repository
    #[arg(long, value_name = "N", default_value = "latest")]
    id: Chosen,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    rate: ReadRateArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    backup: BackupArgs,
    /// The store's directory, which must be missing or empty; it may be a mount point
    #[arg(value_parser = place::new_store())]
    place: PathBuf,
    #[command(flatten)]
    rate: ReadRateArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn checkpoint(args: &CheckpointArgs) -> Result<Outcome> {
    copied(&args.store, &args.access, &args.place, args.flush, args.output.json)
}

fn copied(
    store: &StoreArgs,
    access: &ReadOnlyArgs,
    place: &Path,
    flush: bool,
    json: bool,
) -> Result<Outcome> {
    let _section = Section::begin();
    let db = store.open_to_read(access)?;
    let options = CheckpointOptions::default().flush(flush).cancel(interrupt::cancel());
    let report = db.checkpoint_opt(place, &options)?;
    let fields = json!({
        "files_linked": report.files_linked,
        "bytes_linked": report.bytes_linked,
        "files_copied": report.files_copied,
        "bytes_copied": report.bytes_copied,
        "log_bytes": report.log_bytes,
        "seconds": report.elapsed.as_secs_f64(),
    });
    let text = format_args!(
        "checkpoint at {}: {} of {} shared, {} of {} copied, {} of log, in {:.3} s",
        place.display(),
        format_count(report.files_linked, "file"),
        format_bytes(report.bytes_linked),
        format_count(report.files_copied, "file"),
        format_bytes(report.bytes_copied),
        format_bytes(report.log_bytes),
        report.elapsed.as_secs_f64()
    );
    print_result(json, &fields, text)?;
    Ok(Outcome::Done)
}

pub(crate) fn run(command: &Command) -> Result<Outcome> {
    match command {
        Command::Create(args) => create(args),
        Command::List(args) => list(args),
        Command::Verify(args) => verify(args),
        Command::Delete(args) => {
            let _section = Section::begin();
            let BackupArgs { repository, id } = &args.backup;
            let backups = repository.open(args.dry_run.access(), None, "delete")?;
            let id = id.number(&backups)?;
            let report = match args.dry_run.dry_run {
                true => backups.would_delete(id)?,
                false => backups.delete(id)?,
            };
            print_deleted(&report, args.dry_run.dry_run, args.output.json)
        }
        Command::Prune(args) => prune(args),
    }
}

fn prune(args: &PruneArgs) -> Result<Outcome> {
    let keep = args.keep.unwrap_or(1);
    if keep == 0 && !args.delete_all {
        return Err(Error::invalid("--keep")
            .expected("at least 1, or --delete-all to delete every backup")
            .got(0));
    }
    // A deletion is finished.
    let _section = Section::begin();
    let backups = args.repository.open(args.dry_run.access(), None, "prune")?;
    let mut options = PruneOptions::keep(keep).delete_all(args.delete_all);
    if let Some(within) = args.keep_within {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = now.saturating_sub(within).as_millis();
        options = options.since(u64::try_from(since).unwrap_or(u64::MAX));
    }
    let report = backups.prune_opt(&options.dry_run(args.dry_run.dry_run))?;
    print_deleted(&report, args.dry_run.dry_run, args.output.json)
}

fn create(args: &CreateArgs) -> Result<Outcome> {
    let _section = Section::begin();
    let db = args.store.open_to_read(&args.access)?;
    let directory = args.repository.before();
    let create = || {
        let backups = args.repository.open(Access::Create, args.rate.rate, "backup")?;
        backups.create(&db, &args.label)
    };
    let report = create().inspect_err(|_| {
        if let Some(directory) = &directory {
            directory.remove_if_unused();
        }
    })?;
    let json = json!({
        "id": report.id,
        "files": report.files,
        "bytes": report.bytes,
        "files_copied": report.files_copied,
        "bytes_copied": report.bytes_copied,
        "log_bytes": report.log_bytes,
        "seconds": report.elapsed.as_secs_f64(),
    });
    let text = format_args!(
        "backup {}: {} of {}, {} of {} copied, in {:.3} s",
        report.id,
        format_count(report.files, "file"),
        format_bytes(report.bytes),
        format_count(report.files_copied, "file"),
        format_bytes(report.bytes_copied),
        report.elapsed.as_secs_f64()
    );
    print_result(args.output.json, &json, text)?;
    Ok(Outcome::Done)
}

fn list(args: &ListArgs) -> Result<Outcome> {
    let list = args.repository.open(Access::Read, None, "list")?.list()?;
    let json = args.output.json;
    let mut out = Output::new();
    for backup in &list.backups {
        print_backup(backup, json, &mut out)?;
    }
    for (id, error) in &list.damaged {
        if json {
            out.line(json!({ "id": id, "error": error.to_string() }))?;
        } else {
            out.line(format_args!("{id}\t{error}"))?;
        }
    }
    if !json {
        out.line(format_args!("{} in all", format_bytes(list.bytes)))?;
    }
    out.flush()?;
    Ok(Outcome::good_if(list.damaged.is_empty()))
}

fn print_backup(backup: &BackupInfo, json: bool, out: &mut Output) -> Result<()> {
    let BackupInfo { id, label, created_unix_ms, store, lineage, files, bytes, .. } = backup;
    let unique_bytes = &backup.unique_bytes;
    if json {
        return out.line(json!({
            "id": id,
            "label": label,
            "created_unix_ms": created_unix_ms,
            "store": store.to_string(),
            "lineage": lineage.to_string(),
            "files": files,
            "bytes": bytes,
            "unique_bytes": unique_bytes,
        }));
    }
    let copy = match lineage.to_string() == store.to_string() {
        true => String::new(),
        false => format!(", copy {lineage}"),
    };
    out.line(format_args!(
        "{id}\t{}\t{} in {}, {} unique\tstore {store}{copy}\t{}",
        time::format_utc(created_unix_ms / 1000),
        format_bytes(*bytes),
        format_count(*files, "file"),
        format_bytes(*unique_bytes),
        label.escape_debug()
    ))
}

fn verify(args: &VerifyArgs) -> Result<Outcome> {
    let BackupArgs { repository, id } = &args.backup;
    let backups = repository.open(Access::Read, args.rate.rate, "verify")?;
    let report = backups.verify(id.number(&backups)?)?;
    drop(backups);
    check::print_report(&report, args.output.json)
}

fn print_deleted(report: &DeleteReport, dry_run: bool, json: bool) -> Result<Outcome> {
    let DeleteReport { backups, files, bytes, .. } = report;
    let mut out = Output::new();
    if json {
        out.line(json!({
            "backups": backups,
            "files": files,
            "bytes": bytes,
            "dry_run": dry_run,
        }))?;
    } else {
        let would = if dry_run { "would be " } else { "" };
        for id in backups {
            out.line(format_args!("backup {id} {would}deleted"))?;
        }
        let files = format_count(*files, "file");
        out.line(format_args!("{files} of {} {would}removed", format_bytes(*bytes)))?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn restore(args: &RestoreArgs) -> Result<Outcome> {
    let BackupArgs { repository, id } = &args.backup;
    restored(repository, *id, &args.place, args.rate.rate, args.output.json)
}

fn restored(
    repository: &RepositoryArgs,
    id: Chosen,
    place: &Path,
    rate: Option<u64>,
    json: bool,
) -> Result<Outcome> {
    let _section = Section::begin();
    let backups = repository.open(Access::Read, rate, "restore")?;
    let id = id.number(&backups)?;
    let report = backups.restore(id, place)?;
    drop(backups);
    let fields = json!({
        "id": id,
        "files": report.files,
        "bytes": report.bytes,
        "seconds": report.elapsed.as_secs_f64(),
    });
    let text = format_args!(
        "backup {id} restored to {}: {} of {}, in {:.3} s",
        place.display(),
        format_count(report.files, "file"),
        format_bytes(report.bytes),
        report.elapsed.as_secs_f64()
    );
    print_result(json, &fields, text)?;
    Ok(Outcome::Done)
}

/// Copies a store by a checkpoint, or a backup by restoring it.
pub(crate) fn clone(args: &CloneArgs) -> Result<Outcome> {
    if let Place::Directory(path) = &args.from
        && !directory::holds_backups(path)
    {
        let store = StoreArgs::new(path.clone(), args.flags.clone());
        return copied(&store, &args.access, &args.place, false, args.output.json);
    }
    let repository = RepositoryArgs::new(args.from.clone(), args.endpoint.clone());
    restored(&repository, args.id, &args.place, args.rate.rate, args.output.json)
}

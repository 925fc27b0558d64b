//! `terrace keyspace`.

use std::path::PathBuf;

use serde_json::json;
use terracedb::{Error, KeyspaceOptions, KeyspaceStatistics, Result, format_bytes, format_count};

use crate::config::{Config, Flags};
use crate::output::Output;
use crate::{Outcome, place};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List keyspaces, oldest first, with their tables
    List(List),
    /// Make a keyspace, and the store where there is none
    Create(Create),
    /// Drop a keyspace with all its data
    Drop(Drop),
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// The store's directory, or a configuration file that names it
    store: PathBuf,
    #[command(flatten)]
    flags: Flags,
    /// Print one JSON object a keyspace
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// The store's directory, or a configuration file that names it
    store: PathBuf,
    /// The keyspace's name
    name: String,
    /// What merges its operands: terrace.i64-add.1, terrace.append.1,
    /// terrace.u64-max.1, terrace.u64-min.1; kept for good
    #[arg(long, value_name = "NAME")]
    merge_operator: Option<String>,
    #[command(flatten)]
    flags: Flags,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Drop {
    /// The store's directory, or a configuration file that names it
    store: PathBuf,
    /// The keyspace's name
    name: String,
    /// Only print what would go
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    flags: Flags,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &Command) -> Result<Outcome> {
    match command {
        Command::List(args) => list(args),
        Command::Create(args) => create(args),
        Command::Drop(args) => drop_keyspace(args),
    }
}

fn list(args: &List) -> Result<Outcome> {
    let db = Config::of_store(&args.store, &args.flags)?.open(false)?;
    let mut out = Output::new();
    for keyspace in db.statistics().keyspaces {
        if args.json {
            out.line(crate::stats::keyspace_to_json(&keyspace))?;
        } else {
            let bytes = format_bytes(keyspace.table_bytes);
            let tables = format_count(keyspace.tables, "table");
            let name = keyspace.name.escape_debug();
            out.line(format_args!("{name}\t{tables} of {bytes}{}", beside(&keyspace)))?;
        }
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// What a keyspace holds beside its tables.
fn beside(keyspace: &KeyspaceStatistics) -> String {
    let KeyspaceStatistics { value_files, value_file_bytes, unflushed_bytes, .. } = *keyspace;
    let mut text = String::new();
    if value_files > 0 {
        let files = format_count(value_files, "value file");
        text.push_str(&format!(", {files} of {}", format_bytes(value_file_bytes)));
    }
    if unflushed_bytes > 0 {
        text.push_str(&format!(", {} not flushed yet", format_bytes(unflushed_bytes)));
    }
    text
}

fn create(args: &Create) -> Result<Outcome> {
    let db = Config::of_store(&args.store, &args.flags)?.open(true)?;
    if db.existing_keyspace(&args.name).is_some() {
        return Err(Error::invalid("keyspace")
            .expected("a name that is free")
            .got(format_args!("`{}`", args.name)));
    }
    let options = args
        .merge_operator
        .iter()
        .fold(KeyspaceOptions::new(), |options, name| options.merge_operator(name));
    db.keyspace_with(&args.name, &options)?;
    if args.json {
        let mut out = Output::new();
        out.line(json!({ "name": args.name, "merge_operator": args.merge_operator }))?;
        out.flush()?;
    }
    Ok(Outcome::Done)
}

fn drop_keyspace(args: &Drop) -> Result<Outcome> {
    let db = Config::of_store(&args.store, &args.flags)?.open(false)?;
    place::existing(&db, "keyspace", &args.name)?;
    let statistics = db.statistics();
    let going = statistics.keyspaces.into_iter().find(|keyspace| keyspace.name == args.name);
    let going = going.unwrap_or_default();
    if !args.dry_run {
        db.drop_keyspace(&args.name)?;
    }
    let mut out = Output::new();
    if args.json {
        out.line(json!({
            "name": args.name,
            "table_bytes": going.table_bytes,
            "value_file_bytes": going.value_file_bytes,
            "unflushed_bytes": going.unflushed_bytes,
            "dropped": !args.dry_run,
        }))?;
    } else {
        let verb = if args.dry_run { "would be dropped" } else { "dropped" };
        let (bytes, beside) = (format_bytes(going.table_bytes), beside(&going));
        out.line(format_args!("keyspace `{}` with tables of {bytes}{beside} {verb}", args.name))?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

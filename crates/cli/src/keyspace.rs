//! `terrace keyspace`: lists, creates and drops keyspaces.

use base::{format_bytes, format_count};
use serde_json::json;
use terracedb::hashed::HashedPolicy;
use terracedb::stats::KeyspaceStatistics;
use terracedb::{Db, Error, KeyspaceOptions, Result};

use crate::config::CodecName;
use crate::outcome::Outcome;
use crate::output::{Output, print_result};
use crate::shared_args::{OutputArgs, StoreArgs, existing_keyspace};
use crate::stats;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List keyspaces with their tables, oldest first
    List(ListArgs),
    /// Create a keyspace, and the store if it is missing
    Create(CreateArgs),
    /// Change how new tables of a keyspace are written
    Set(SetArgs),
    /// Drop a keyspace with all its data
    Drop(DropArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The keyspace's name
    name: String,
    /// The merge operator, which cannot be changed later: terrace.i64-add.1, terrace.i64-add-saturating.1,
    /// terrace.append.1, terrace.u64-max.1 or terrace.u64-min.1
    #[arg(long, value_name = "NAME")]
    merge_operator: Option<String>,
    /// Store the keys in the order of a keyed hash: less memory a key, point reads only. The policy is
    /// `keep`; `resident` for entries that stay in the log on storage-class memory; or `window=SIZE` for a
    /// cache of the newest SIZE bytes; `window=SIZE,clock` retains entries
    /// that are read, `window=SIZE,priority=terrace.first-byte.1` by the first byte of their value. It
    /// cannot be changed later
    #[arg(long, value_name = "POLICY", conflicts_with = "merge_operator")]
    hashed: Option<HashedPolicy>,
    /// Filter bits a key of a hashed keyspace's base, 0 to 10: fewer device reads of missing keys, for 0.13
    /// bytes of memory a key and bit. It cannot be changed later
    #[arg(long, value_name = "N", requires = "hashed")]
    base_filter_bits: Option<u8>,
    #[command(flatten)]
    tables: TableArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// How new tables of a keyspace are written.
#[derive(Debug, clap::Args)]
struct TableArgs {
    /// Compression of new tables of this keyspace; by default as the store's setting `codec`
    #[arg(id = "own_codec", long = "table-codec", value_name = "CODEC")]
    codec: Option<CodecName>,
    /// The level of this codec: -7 to 22 of zstd, 1 to 9 of deflate
    #[arg(
        long = "table-level",
        value_name = "N",
        requires = "own_codec",
        allow_negative_numbers = true
    )]
    level: Option<i8>,
    /// Filter bits a key in new tables of an ordered keyspace, 0 to 16; by default 8 to 12
    #[arg(long, value_name = "N")]
    filter_bits: Option<u8>,
}

impl TableArgs {
    fn add_to(&self, mut options: KeyspaceOptions) -> KeyspaceOptions {
        if let Some(codec) = self.codec {
            options = options.codec(codec.into());
        }
        if let Some(level) = self.level {
            options = options.level(level);
        }
        if let Some(bits) = self.filter_bits {
            options = options.filter_bits(bits);
        }
        options
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The keyspace's name
    name: String,
    #[command(flatten)]
    tables: TableArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DropArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The keyspace's name
    name: String,
    /// Print the keyspace that would be dropped, and keep it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(command: &Command) -> Result<Outcome> {
    match command {
        Command::List(args) => list(args),
        Command::Create(args) => create(args),
        Command::Set(args) => set(args),
        Command::Drop(args) => drop_keyspace(args),
    }
}

fn list(args: &ListArgs) -> Result<Outcome> {
    let db = args.store.open()?;
    let mut out = Output::new();
    for keyspace in db.statistics().keyspaces {
        if args.output.json {
            out.line(stats::keyspace_to_json(&keyspace))?;
        } else {
            let bytes = format_bytes(keyspace.table_bytes);
            let tables = format_count(keyspace.tables, "table");
            let name = keyspace.name.escape_debug();
            let kind = match &*keyspace.kind {
                "ordered" => String::new(),
                kind => format!(", {kind}"),
            };
            let other = other_data(&keyspace);
            let own = own_options(&db, &keyspace.name);
            out.line(format_args!("{name}\t{tables} of {bytes}{other}{kind}{own}"))?;
        }
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// The options of a keyspace besides its kind, as text.
fn own_options(db: &Db, name: &str) -> String {
    let options = db.keyspace(name).map(|keyspace| keyspace.options().to_pairs());
    let mut text = String::new();
    for (name, value) in options.unwrap_or_default() {
        if name != "hashed" {
            text.push_str(&format!(", {name} {}", value.escape_debug()));
        }
    }
    text
}

/// The value files and unflushed bytes of a keyspace, as text.
fn other_data(keyspace: &KeyspaceStatistics) -> String {
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

fn create(args: &CreateArgs) -> Result<Outcome> {
    args.store.with_store(|db| create_in(db, args))?;
    if args.output.json {
        let mut out = Output::new();
        out.line(json!({
            "name": args.name,
            "merge_operator": args.merge_operator,
            "hashed": args.hashed.as_ref().map(ToString::to_string),
            "base_filter_bits": args.base_filter_bits,
        }))?;
        out.flush()?;
    }
    Ok(Outcome::Done)
}

fn create_in(db: &Db, args: &CreateArgs) -> Result<()> {
    if db.keyspace(&args.name).is_ok() {
        return Err(Error::invalid("keyspace")
            .expected("a name that no keyspace has")
            .got(format_args!("`{}`", args.name)));
    }
    let options = args
        .merge_operator
        .iter()
        .fold(KeyspaceOptions::new(), |options, name| options.merge_operator(name));
    let options = match &args.hashed {
        Some(policy) => options.hashed(policy.clone()),
        None => options,
    };
    let options = match args.base_filter_bits {
        Some(bits) => options.base_filter_bits(bits),
        None => options,
    };
    db.create_keyspace_opt(&args.name, &args.tables.add_to(options)).map(drop)
}

fn set(args: &SetArgs) -> Result<Outcome> {
    let db = args.store.open()?;
    let keyspace = existing_keyspace(&db, "keyspace", &args.name)?;
    let wanted = args.tables.add_to(KeyspaceOptions::new());
    if wanted == KeyspaceOptions::new() {
        return Err(Error::invalid("keyspace set")
            .expected("--table-codec, --table-level or --filter-bits")
            .got("none"));
    }
    db.open_or_create_keyspace_opt(&args.name, &wanted)?;
    let own = keyspace.options().to_pairs();
    db.close()?;
    let json: serde_json::Map<_, _> =
        own.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let text = own.iter().map(|(name, value)| format!("{name} {value}"));
    let text = format!("{}: {}", args.name.escape_debug(), text.collect::<Vec<_>>().join(", "));
    print_result(args.output.json, &json.into(), text)?;
    Ok(Outcome::Done)
}

fn drop_keyspace(args: &DropArgs) -> Result<Outcome> {
    let db = args.store.open()?;
    existing_keyspace(&db, "keyspace", &args.name)?;
    let mut keyspaces = db.statistics().keyspaces.into_iter();
    let Some(dropped) = keyspaces.find(|keyspace| keyspace.name == args.name) else {
        return Err(base::broken_invariant!("every keyspace of a store has statistics"));
    };
    if !args.dry_run {
        db.drop_keyspace(&args.name)?;
        db.close()?;
    }
    let verb = if args.dry_run { "would be dropped" } else { "dropped" };
    let (bytes, other) = (format_bytes(dropped.table_bytes), other_data(&dropped));
    let json = json!({
        "name": args.name,
        "table_bytes": dropped.table_bytes,
        "value_file_bytes": dropped.value_file_bytes,
        "unflushed_bytes": dropped.unflushed_bytes,
        "dropped": !args.dry_run,
    });
    let text = format_args!("keyspace `{}` with tables of {bytes}{other} {verb}", args.name);
    print_result(args.output.json, &json, text)?;
    Ok(Outcome::Done)
}

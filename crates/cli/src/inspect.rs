//! `terrace inspect`: prints the contents of one file of a store, without a lock and without changing it.
//!
//! Facts are printed as they are read, as lines of text or as one JSON object per line, so memory does not
//! grow with the file.

mod entries;
mod index;
mod log;
mod operations;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Account;
use clap::ValueEnum;
use manifest::KeyspaceFile;
use media::Medium;
use serde_json::{Value, json};
use table::Fact;
use terracedb::tools::inspect_manifest;
use terracedb::{Error, ErrorKind, Result};

use crate::directory;
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::shared_args::OutputArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The kind of file
    kind: FileKind,
    /// The file, in the directory of its store
    file: PathBuf,
    /// Also show every page of a table
    #[arg(long)]
    pages: bool,
    /// Also show every version in a table, or every operation in a log segment, that can be read: key,
    /// sequence number, kind, and the beginning of the value. Damaged pages are named, with the keys around
    /// them. In an ingested table the sequence number is 0: the manifest has it. In a segment the keys of
    /// hashed keyspaces begin with their 8 bytes of hash, but those of moved entries are shown without
    #[arg(long)]
    entries: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FileKind {
    Table,
    Log,
    Manifest,
    Keyspace,
    Index,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let refused = || {
        Error::invalid("file to inspect")
            .expected("the path of a file in the directory of its store")
            .got(format_args!("`{}`", args.file.display()))
    };
    let name = args.file.file_name().and_then(|name| name.to_str()).ok_or_else(refused)?;
    let dir = args.file.parent().filter(|dir| !dir.as_os_str().is_empty());
    let medium = directory::open_read_only(dir.unwrap_or(Path::new(".")))?;
    let mut printer = Printer { out: Output::new(), json: args.output.json };
    let outcome = match args.kind {
        FileKind::Table => printer.table(&medium, name, args),
        FileKind::Log => printer.log(&*medium, name, args.entries),
        FileKind::Manifest => printer.manifest(&*medium, name),
        FileKind::Index => printer.index(&*medium, name),
        FileKind::Keyspace => printer.keyspace(&*medium, name).map_err(|error| {
            let is_name = KeyspaceFile::parse_file_name(name).is_some();
            if is_name { error } else { refused() }
        }),
    };
    // Facts that were read before an error are printed too.
    printer.out.flush()?;
    outcome
}

/// Prints facts as text or JSON.
struct Printer {
    out: Output,
    json: bool,
}

impl Printer {
    fn line(&mut self, text: impl fmt::Display, json: impl FnOnce() -> Value) -> Result<()> {
        if self.json { self.out.line(json()) } else { self.out.line(text) }
    }

    fn table(&mut self, medium: &Arc<dyn Medium>, name: &str, args: &Args) -> Result<Outcome> {
        let (mut outcome, mut written) = (Outcome::Done, Ok(()));
        let mut store = None;
        let account = Account::unlimited("inspect");
        let described = table::describe(&**medium, name, &account, args.pages, &mut |fact| {
            if let Fact::Footer(footer) = fact {
                store = Some(footer.store);
            }
            if matches!(fact, Fact::Damage(_)) {
                outcome = Outcome::Negative;
            }
            if written.is_ok() {
                written = self.line(fact, || fact_to_json(fact));
            }
        });
        written?;
        match described {
            // Entries can be read without the parts that describe the table.
            Err(error) if args.entries && error.kind() == ErrorKind::Corrupt => {
                self.line(
                    format_args!("damage: {error}"),
                    || json!({"fact": "damage", "error": error.to_string()}),
                )?;
                outcome = Outcome::Negative;
            }
            described => described?,
        }
        if args.entries {
            let is_whole = entries::each_part(medium, name, store, &mut |part| {
                interrupt::check("inspect")?;
                self.line(&part, || part.to_json())
            })?;
            if !is_whole {
                outcome = Outcome::Negative;
            }
        }
        Ok(outcome)
    }

    fn manifest(&mut self, medium: &dyn Medium, name: &str) -> Result<Outcome> {
        let (store, records) = inspect_manifest(medium, name)?;
        let count = records.len();
        self.line(
            format_args!("manifest of store {store}, {count} records"),
            || json!({"fact": "manifest", "store": store.to_string(), "records": count}),
        )?;
        for record in records {
            let number = record.number;
            if self.json {
                let edits = record.edits;
                self.out.line(json!({"fact": "record", "record": number, "edits": edits}))?;
                continue;
            }
            for edit in record.edits {
                self.out.line(format_args!("record {number:>5}  {edit}"))?;
            }
        }
        Ok(Outcome::Done)
    }
}

impl Printer {
    fn keyspace(&mut self, medium: &dyn Medium, name: &str) -> Result<Outcome> {
        let found = match KeyspaceFile::parse_file_name(name) {
            Some(keyspace) => KeyspaceFile::find(medium, keyspace)?,
            None => None,
        };
        let missing = || Error::not_found("file of a keyspace").got(format_args!("`{name}`"));
        let KeyspaceFile { store, keyspace, kind, name } = found.ok_or_else(missing)?;
        self.line(
            format_args!("keyspace {keyspace} `{}` of store {store}: {kind}", name.escape_debug()),
            || {
                json!({
                    "fact": "keyspace",
                    "store": store.to_string(),
                    "keyspace": keyspace.0,
                    "name": name,
                    "kind": kind.to_string(),
                })
            },
        )?;
        Ok(Outcome::Done)
    }
}

fn fact_to_json(fact: &Fact) -> Value {
    match fact {
        Fact::Footer(footer) => json!({
            "fact": "footer",
            "format_version": footer.version,
            "store": footer.store.to_string(),
            "table": footer.table.0,
            "pages": footer.pages,
            "range_deletes": footer.range_deletes,
            "top": footer.top,
            "properties": footer.properties,
            "copy": footer.copy,
            "digest": format!("{:016x}", footer.digest),
        }),
        Fact::Property(name, value) => {
            json!({"fact": "property", "name": name, "value": value})
        }
        Fact::RangeDelete(start, end, seqnos) => json!({
            "fact": "range delete",
            "start": start.escape_ascii().to_string(),
            "end": end.escape_ascii().to_string(),
            "seqnos": seqnos.iter().map(|seqno| seqno.get()).collect::<Vec<u64>>(),
        }),
        Fact::Partition { number, partition, blocks, filter_bytes, from } => json!({
            "fact": "partition",
            "partition": number,
            "first_page": partition.first_page,
            "meta_page": partition.meta_page,
            "blocks": blocks,
            "filter_bytes": filter_bytes,
            "from": from.escape_ascii().to_string(),
        }),
        Fact::Page(page, header) => json!({
            "fact": "page",
            "page": page,
            "kind": header.kind.name(),
            "codec": format!("{:?}", header.codec).to_lowercase(),
            "number": header.number,
            "run_pages": header.run_pages(),
            "dictionary": header.dictionary.0,
            "payload_bytes": header.payload_bytes,
            "raw_bytes": header.raw_bytes,
        }),
        Fact::Damage(damage) => json!({
            "fact": "damage",
            "page": damage.page,
            "pages": damage.pages,
            "error": damage.error.to_string(),
        }),
    }
}

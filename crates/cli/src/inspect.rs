//! `terrace inspect`: prints the contents of one file of a store, without a lock and without changing it.
//!
//! Facts are printed as they are read, as lines of text or as one JSON object per line, so memory does not
//! grow with the file.

mod entries;

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
    /// Also show every version in a table that can be read: key, sequence number, kind, and the beginning of
    /// the value. Damaged pages are named, with the keys around them. In an ingested table the sequence
    /// number is 0: the manifest has it
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
        FileKind::Log => printer.log(&*medium, name),
        FileKind::Manifest => printer.manifest(&*medium, name),
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

    fn log(&mut self, medium: &dyn Medium, name: &str) -> Result<Outcome> {
        let (mut next, mut is_unreadable) = (0, false);
        wal::inspect(medium, name, &mut |entry| {
            match &entry {
                wal::LogEntry::Header(_) => {}
                wal::LogEntry::Begin { begin, .. } => next = begin.sequence + 1,
                wal::LogEntry::Mark { sequence, .. }
                | wal::LogEntry::Gap { sequence, .. }
                | wal::LogEntry::Batch { sequence, .. } => next = sequence + 1,
                wal::LogEntry::End { unreadable, .. } => is_unreadable = unreadable.is_some(),
            }
            if matches!(entry, wal::LogEntry::Header(_)) && !self.json {
                let [at, kind, sequence, seqno] = ["OFFSET", "RECORD", "SEQUENCE", "SEQNO"];
                self.out.line(format_args!("{at:>12}  {kind:<6}  {sequence:>10}  {seqno:>12}"))?;
            }
            let row = LogRow::of(&entry);
            self.line(row, || entry_to_json(&entry))
        })?;
        Ok(match is_unreadable && was_durable(medium, name, next)? {
            true => Outcome::Negative,
            false => Outcome::Done,
        })
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

/// Whether the unreadable record of lane sequence `next` in segment `name` is damage.
///
/// The record is damage if later segments of the lane state that it was durable, and none of them begins at
/// or below its lane sequence. A torn tail after a crash is no damage: it never was durable, or the log
/// continued with its lane sequence in a later segment. A preallocated segment states nothing.
fn was_durable(medium: &dyn Medium, name: &str, next: u64) -> Result<bool> {
    let Some((lane, segment)) = wal::parse_segment_name(name) else { return Ok(false) };
    let (mut limit, mut durable_below) = (u64::MAX, 0);
    for file in medium.list()? {
        let other = wal::parse_segment_name(&file.name);
        if !other.is_some_and(|other| other.0 == lane && other.1 > segment) {
            continue;
        }
        let inspected = wal::inspect(medium, &file.name, &mut |entry| {
            match entry {
                wal::LogEntry::Begin { begin, .. } => {
                    limit = limit.min(begin.sequence);
                    durable_below = durable_below.max(begin.durable);
                }
                wal::LogEntry::Mark { durable, .. } => durable_below = durable_below.max(durable),
                _ => {}
            }
            Ok(())
        });
        // Damage in the other segment is reported by an inspection of that segment.
        drop(inspected);
    }
    Ok(next < limit.min(durable_below))
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

/// A row of the table that shows a log segment.
struct LogRow {
    offset: u64,
    kind: &'static str,
    sequence: Option<u64>,
    seqno: Option<u64>,
    rest: String,
}

impl LogRow {
    fn of(entry: &wal::LogEntry) -> Self {
        let row = |offset, kind, sequence, seqno: Option<base::Seqno>, rest| Self {
            offset,
            kind,
            sequence,
            seqno: seqno.map(base::Seqno::get),
            rest,
        };
        match entry {
            wal::LogEntry::Header(header) => {
                let rest = format!(
                    "lane {}, segment {} of store {}, {} bytes",
                    header.lane, header.segment, header.store, header.capacity
                );
                row(0, "header", None, None, rest)
            }
            wal::LogEntry::Begin { offset, seqno, begin } => {
                let opened = if begin.opened { ", the log was opened here" } else { "" };
                let rest = format!("durable below {}{opened}", begin.durable);
                row(*offset, "begin", Some(begin.sequence), Some(*seqno), rest)
            }
            wal::LogEntry::Mark { offset, sequence, durable } => {
                let rest = format!("durable below {durable}");
                row(*offset, "mark", Some(*sequence), None, rest)
            }
            wal::LogEntry::Gap { offset, sequence, seqno, count } => {
                let rest = format!("{count} sequence numbers of unlogged operations");
                row(*offset, "gap", Some(*sequence), Some(*seqno), rest)
            }
            wal::LogEntry::Batch { offset, bytes, sequence, seqno, ops, keyspaces, .. } => {
                let keyspaces: Vec<_> = keyspaces.iter().map(ToString::to_string).collect();
                let keyspaces = keyspaces.join(" ");
                let rest = format!("{ops} operations, {bytes} bytes, keyspaces {keyspaces}");
                row(*offset, "batch", Some(*sequence), Some(*seqno), rest)
            }
            wal::LogEntry::End { offset, unreadable } => {
                let rest = unreadable.as_ref().map(|error| format!("unreadable: {error}"));
                row(*offset, "end", None, None, rest.unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for LogRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: Option<u64>| number.map_or_else(String::new, |n| n.to_string());
        let Self { offset, kind, sequence, seqno, rest } = self;
        let (sequence, seqno) = (number(*sequence), number(*seqno));
        write!(f, "{offset:>12}  {kind:<6}  {sequence:>10}  {seqno:>12}  {rest}")
    }
}

fn entry_to_json(entry: &wal::LogEntry) -> Value {
    match entry {
        wal::LogEntry::Header(header) => json!({
            "fact": "header",
            "store": header.store.to_string(),
            "lane": header.lane.0,
            "segment": header.segment.0,
            "capacity": header.capacity,
        }),
        wal::LogEntry::Begin { offset, seqno, begin } => json!({
            "fact": "begin",
            "offset": offset,
            "sequence": begin.sequence,
            "seqno": seqno.get(),
            "durable": begin.durable,
            "opened": begin.opened,
        }),
        wal::LogEntry::Mark { offset, sequence, durable } => {
            json!({"fact": "mark", "offset": offset, "sequence": sequence, "durable": durable})
        }
        wal::LogEntry::Gap { offset, sequence, seqno, count } => json!({
            "fact": "gap",
            "offset": offset,
            "sequence": sequence,
            "seqno": seqno.get(),
            "count": count,
        }),
        wal::LogEntry::Batch { offset, bytes, sequence, seqno, ops, keyspaces, body_bytes } => {
            json!({
                "fact": "batch",
                "offset": offset,
                "bytes": bytes,
                "sequence": sequence,
                "seqno": seqno.get(),
                "ops": ops,
                "keyspaces": keyspaces.iter().map(|keyspace| keyspace.0).collect::<Vec<_>>(),
                "body_bytes": body_bytes,
            })
        }
        wal::LogEntry::End { offset, unreadable } => json!({
            "fact": "end",
            "offset": offset,
            "unreadable": unreadable.as_ref().map(ToString::to_string),
        }),
    }
}

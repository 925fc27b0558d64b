//! `terrace load` of a dump: every keyspace of a store, with its options.
//!
//! A file is read twice: all of it is verified before the store is opened. A pipe is read once. If the load
//! fails, the keyspaces that it created are dropped, and a store that it created is removed.

use std::io::Read;
use std::time::{Duration, UNIX_EPOCH};

use base::{format_bytes, format_count};
use serde_json::json;
use terracedb::tools::{DumpItem, DumpReader, DumpedKeyspace};
use terracedb::{Db, EntryOptions, Error, KeyspaceOptions, Result};

use super::Args;
use super::input::Input;
use super::sink::{Added, Sink};
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::print_result;
use crate::progress::Progress;

/// Entries between two updates of the progress bar.
const ENTRIES_PER_UPDATE: u64 = 4096;

/// The size of a restored dump.
#[derive(Clone, Copy, Debug, Default)]
struct Restored {
    keyspaces: u64,
    added: Added,
}

pub(super) fn run(args: &Args, input: Input) -> Result<Outcome> {
    let Input { reader, length, name, path } = input;
    let at = |error: Error| error.at(&name);
    let mut dump = DumpReader::new(reader).map_err(at)?;
    let restored = match path {
        // A pipe without a store: it is verified as it is read.
        None if args.dry_run => verify(&mut dump, length).map_err(at)?,
        None => args.store.with_store(|db| restore(db, &mut dump, length, args).map_err(at))?,
        Some(path) => {
            let verified = verify(&mut dump, length).map_err(at)?;
            if args.dry_run {
                verified
            } else {
                let again = Input::open(&path)?;
                let mut dump = DumpReader::new(again.reader).map_err(at)?;
                args.store.with_store(|db| restore(db, &mut dump, length, args).map_err(at))?
            }
        }
    };
    report(args, &restored)
}

/// Reads the whole dump.
fn verify<R: Read>(dump: &mut DumpReader<R>, length: Option<u64>) -> Result<Restored> {
    let bar = Progress::of_bytes("verify");
    let mut restored = Restored::default();
    while let Some(item) = dump.next_item()? {
        match item {
            DumpItem::Keyspace(keyspace) => {
                KeyspaceOptions::from_pairs(&keyspace.options)?;
                restored.keyspaces += 1;
            }
            DumpItem::Entry { .. } => restored.added.entries += 1,
        }
        if restored.added.entries.is_multiple_of(ENTRIES_PER_UPDATE) {
            interrupt::check("load")?;
            bar.show(dump.bytes(), length);
        }
    }
    Ok(restored)
}

/// Restores the dump. If that fails, the keyspaces that it created are dropped.
fn restore<R: Read>(
    db: &Db,
    dump: &mut DumpReader<R>,
    length: Option<u64>,
    args: &Args,
) -> Result<Restored> {
    let mut created = Vec::new();
    let result = restore_into(db, dump, length, args, &mut created);
    if result.is_err() {
        for name in &created {
            // The error of the command is the one that counts.
            let _ = db.drop_keyspace(name);
        }
    }
    result
}

fn restore_into<R: Read>(
    db: &Db,
    dump: &mut DumpReader<R>,
    length: Option<u64>,
    args: &Args,
    created: &mut Vec<String>,
) -> Result<Restored> {
    let bar = Progress::of_bytes("load");
    let mut restored = Restored::default();
    let mut finish = |sink: Option<Sink>| -> Result<()> {
        let Some(sink) = sink else { return Ok(()) };
        let Added { entries, tables, file_bytes } = sink.finish()?;
        restored.keyspaces += 1;
        restored.added.entries += entries;
        restored.added.tables += tables;
        restored.added.file_bytes += file_bytes;
        Ok(())
    };
    let (mut sink, mut count) = (None::<Sink>, 0u64);
    loop {
        match dump.next_item()? {
            None => break,
            Some(DumpItem::Keyspace(keyspace)) => {
                finish(sink.take())?;
                if args.keyspace.as_ref().is_none_or(|wanted| *wanted == keyspace.name) {
                    sink = Some(begin(db, &keyspace, created)?);
                }
            }
            Some(DumpItem::Entry { key, value, expiry_unix_ms }) => {
                if let Some(sink) = &mut sink {
                    sink.put(key, value, &options_of(expiry_unix_ms)).map_err(|error| {
                        let named = created.last().map_or("", String::as_str);
                        error.at(format_args!("keyspace `{}`", named.escape_debug()))
                    })?;
                    sink.write_if_full()?;
                }
                count += 1;
            }
        }
        if count.is_multiple_of(ENTRIES_PER_UPDATE) {
            interrupt::check("load")?;
            bar.show(dump.bytes(), length);
        }
    }
    finish(sink)?;
    match &args.keyspace {
        Some(wanted) if restored.keyspaces == 0 => Err(Error::invalid("--keyspace")
            .expected("a keyspace of the dump")
            .got(format_args!("`{}`", wanted.escape_debug()))),
        _ => Ok(restored),
    }
}

/// Creates a keyspace, which must not exist: entries of a dump never mix with others.
fn begin(db: &Db, keyspace: &DumpedKeyspace, created: &mut Vec<String>) -> Result<Sink> {
    let DumpedKeyspace { name, options } = keyspace;
    if db.keyspace(name).is_ok() {
        return Err(Error::already_exists("keyspace")
            .at(format_args!("`{}`", name.escape_debug()))
            .expected("a store without the keyspaces of the dump"));
    }
    let keyspace = db.create_keyspace_opt(name, &KeyspaceOptions::from_pairs(options)?)?;
    created.push(name.clone());
    Sink::new(db, &keyspace)
}

fn options_of(expiry_unix_ms: u64) -> EntryOptions {
    match UNIX_EPOCH.checked_add(Duration::from_millis(expiry_unix_ms)) {
        Some(time) if expiry_unix_ms > 0 => EntryOptions::new().expires_at(time),
        // A time that the platform cannot represent is later than all times that it can.
        _ => EntryOptions::new(),
    }
}

fn report(args: &Args, restored: &Restored) -> Result<Outcome> {
    let Restored { keyspaces, added: Added { entries, tables, file_bytes } } = *restored;
    let counts =
        format!("{} in {}", format_count(entries, "entry"), format_count(keyspaces, "keyspace"));
    let text = match args.dry_run {
        true => format!("{counts} can be loaded"),
        false => {
            format!("{counts}, {} of {}", format_count(tables, "table"), format_bytes(file_bytes))
        }
    };
    let json = json!({
        "keyspaces": keyspaces,
        "entries": entries,
        "tables": tables,
        "file_bytes": file_bytes,
    });
    print_result(args.output.json, &json, text)?;
    Ok(Outcome::Done)
}

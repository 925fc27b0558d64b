//! `terrace dump`: writes every keyspace of a store to a file or a pipe, for `terrace load`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use base::format_count;
use serde_json::json;
use terracedb::hashed::HashedPolicy;
use terracedb::tools::{DumpWriter, DumpedKeyspace};
use terracedb::{Db, Error, Expiry, Keyspace, Result, Snapshot};

use crate::interrupt::{self, Section};
use crate::outcome::Outcome;
use crate::output::{print_result, report_to_stderr};
use crate::progress::Progress;
use crate::shared_args::{OutputArgs, ReadOnlyArgs, StoreArgs, existing_keyspace};

/// Most errors of keys that are printed; the others are counted.
const ERRORS_SHOWN_MAX: u64 = 100;

/// Entries between two updates of the progress bar.
const ENTRIES_PER_UPDATE: u64 = 4096;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The file to write, which must not exist; `-` is standard output
    file: PathBuf,
    /// Only this keyspace; may be given more than once [default: all]
    #[arg(long, value_name = "NAME")]
    keyspace: Vec<String>,
    /// Leave out keys that cannot be merged or whose long value is damaged, print them, and end with exit
    /// status 1
    #[arg(long)]
    skip_errors: bool,
    #[command(flatten)]
    access: ReadOnlyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The size of a dump.
struct Dumped {
    keyspaces: u64,
    entries: u64,
    skipped: u64,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = args.store.open_to_read(&args.access)?;
    let keyspaces = match &*args.keyspace {
        [] => db.keyspaces(),
        names => names
            .iter()
            .map(|name| existing_keyspace(&db, "--keyspace", name))
            .collect::<Result<_>>()?,
    };
    let _section = Section::begin();
    if args.file == Path::new("-") {
        let out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
        let dumped = dump(args, &db, &keyspaces, out)?;
        return Ok(Outcome::good_if(dumped.skipped == 0));
    }
    let failed = |error: io::Error| Error::io("write", args.file.display(), error);
    if args.file.symlink_metadata().is_ok() {
        return Err(Error::already_exists("file").at(args.file.display()));
    }
    let parent = args.file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    // It has its name once it is complete. Dropping it removes it.
    let file = tempfile::Builder::new().prefix(".terrace-dump-").tempfile_in(directory);
    let file = file.map_err(failed)?;
    let dumped = dump(args, &db, &keyspaces, BufWriter::with_capacity(1 << 20, file.as_file()))?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist_noclobber(&args.file).map_err(|error| failed(error.error))?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
    let Dumped { keyspaces, entries, skipped } = dumped;
    let json = json!({ "keyspaces": keyspaces, "entries": entries, "skipped": skipped });
    let text =
        format!("{} of {}", format_count(entries, "entry"), format_count(keyspaces, "keyspace"));
    print_result(args.output.json, &json, text)?;
    Ok(Outcome::good_if(skipped == 0))
}

/// Writes the dump.
fn dump(args: &Args, db: &Db, keyspaces: &[Keyspace], out: impl Write) -> Result<Dumped> {
    let bar = Progress::new("dump");
    let mut writer = DumpWriter::new(out)?;
    let snapshot = db.snapshot();
    let (mut done, mut skipped) = (0u64, 0u64);
    for keyspace in keyspaces {
        let (name, options) = (keyspace.name().to_owned(), keyspace.options().to_pairs());
        writer.keyspace(&DumpedKeyspace { name, options })?;
        let mut entries = entries(keyspace, &snapshot)?;
        if args.skip_errors {
            entries = entries.continue_after_key_errors();
        }
        while let Some((key, value)) = entries.next_key()? {
            let value = match value {
                Ok(value) => value,
                Err(error) if args.skip_errors => {
                    skipped += 1;
                    if skipped <= ERRORS_SHOWN_MAX {
                        report_to_stderr(&error);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            writer.entry(&key, &value, unix_ms(entries.expiry()))?;
            done += 1;
            if done.is_multiple_of(ENTRIES_PER_UPDATE) {
                interrupt::check("dump")?;
                bar.show(done, None);
            }
        }
    }
    if skipped > 0 {
        report_to_stderr(format_args!("{} skipped", format_count(skipped, "key")));
    }
    let (_out, keyspaces, entries) = writer.finish()?;
    Ok(Dumped { keyspaces, entries, skipped })
}

/// The entries of a keyspace: at the snapshot, if the keyspace has older versions.
fn entries(keyspace: &Keyspace, snapshot: &Snapshot) -> Result<terracedb::hashed::Entries> {
    match keyspace.hashed_policy() {
        Some(HashedPolicy::Window { .. } | HashedPolicy::Resident) => keyspace.entries(),
        Some(HashedPolicy::Keep) | None => snapshot.entries(keyspace),
    }
}

/// An expiry as Unix milliseconds; 0: never.
fn unix_ms(expiry: Expiry) -> u64 {
    match expiry {
        Expiry::Never => 0,
        Expiry::At(time) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1)
        }
    }
}

//! `terrace ingest`: adds sorted entries from a file or standard input. All become visible together or none.

mod records;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::Key;
use base::limits::VALUE_BYTES_MAX;
use base::{format_bytes, format_count};
use serde_json::{Value, json};
use terracedb::stats::Ingested;
use terracedb::{EntryOptions, Error, Keyspace, Result};

use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::print_result;
use crate::parsers::seconds;
use crate::progress::Progress;
use crate::shared_args::{KeyspaceArgs, OutputArgs};
use records::{Format, Records};

/// Records between two updates of the progress bar.
const RECORDS_PER_UPDATE: u64 = 4096;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The file; `-` is standard input
    file: PathBuf,
    /// The file's format [default: by the ending of the file's name, else tsv]
    #[arg(long)]
    format: Option<Format>,
    /// Expire the added entries after this time, as in 90s, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    ttl: Option<Duration>,
    /// Read and check the file, and add nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let (input, length, name) = input(&args.file)?;
    let format = args.format.unwrap_or_else(|| Format::of(&args.file));
    let mut records =
        Records::new(BufReader::with_capacity(1 << 20, input), name, format, args.keyspace.hex);
    if args.dry_run {
        let count = for_each(&mut records, length, check)?;
        return report(
            args,
            json!({ "entries": count }),
            &format!("{} can be added", format_count(count, "key")),
        );
    }
    let added =
        args.keyspace.with_keyspace(|keyspace| add(keyspace, &mut records, length, args.ttl))?;
    report(
        args,
        json!({
            "entries": added.entries,
            "tables": added.tables,
            "file_bytes": added.file_bytes,
        }),
        &format!(
            "{} in {} of {}",
            format_count(added.entries, "key"),
            format_count(added.tables, "table"),
            format_bytes(added.file_bytes)
        ),
    )
}

/// Adds all `records` in one ingestion.
fn add(
    keyspace: &Keyspace,
    records: &mut Records<impl io::BufRead>,
    length: Option<u64>,
    ttl: Option<Duration>,
) -> Result<Ingested> {
    let mut ingest = keyspace.ingest()?;
    let options = ttl.map_or(EntryOptions::new(), |ttl| EntryOptions::new().ttl(ttl));
    for_each(records, length, |key, value| ingest.put_opt(key, value, &options))?;
    ingest.finish()
}

/// Refuses a record that no store accepts. A store with little memory may refuse more: its limit is known
/// only once it is open.
fn check(key: &[u8], value: &[u8]) -> Result<()> {
    Key::new(key)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::invalid("value length, bytes")
            .expected(format_args!("at most {VALUE_BYTES_MAX}"))
            .got(value.len()));
    }
    Ok(())
}

/// Calls `consume` with every record and returns their number. `length` is the input's length in bytes, for
/// the progress bar.
///
/// # Errors
/// Errors of `records` and `consume`, with the line of the record.
fn for_each(
    records: &mut Records<impl io::BufRead>,
    length: Option<u64>,
    mut consume: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<u64> {
    let bar = Progress::of_bytes("ingest");
    let mut count = 0;
    while let Some(record) = records.next()? {
        interrupt::check("ingest")?;
        consume(record.key, record.value).map_err(|error| error.at(record.place()))?;
        count += 1;
        if count % RECORDS_PER_UPDATE == 0 {
            bar.show(records.bytes(), length);
        }
    }
    Ok(count)
}

fn report(args: &Args, json: Value, text: &str) -> Result<Outcome> {
    print_result(args.output.json, &json, text)?;
    Ok(Outcome::Done)
}

/// Opens the input. Returns it with its length in bytes, `None` for a pipe, and its name in errors.
fn input(path: &Path) -> Result<(Box<dyn Read>, Option<u64>, String)> {
    if path == Path::new("-") {
        return Ok((Box::new(interrupt::Stdin::new()), None, "standard input".to_owned()));
    }
    let name = path.display().to_string();
    let refused = |error: io::Error| {
        Error::invalid("file to ingest").at(path.display()).expected("a readable file").got(error)
    };
    let file = File::open(path).map_err(refused)?;
    let metadata = file.metadata().map_err(refused)?;
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len()), name))
}

//! `terrace ingest`: sorted keys from a file or standard input, all visible at once or none.

mod records;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::Key;
use base::limits::VALUE_BYTES_MAX;
use serde_json::json;
use terracedb::{Error, Ingested, Keyspace, Result, format_bytes, format_count};

use crate::Outcome;
use crate::args::seconds;
use crate::output::Output;
use crate::place::Place;
use crate::progress::Progress;
use records::{Format, Records};

/// Records between two looks at the progress bar.
const RECORDS_A_LOOK: u64 = 4096;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// The file; `-` is standard input
    file: PathBuf,
    /// What its lines are [default: by the name's ending, tsv where that says nothing]
    #[arg(long)]
    format: Option<Format>,
    /// Remove what is added by itself after this time, as in 90s, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    ttl: Option<Duration>,
    /// Only read the file, and say whether all of it can be added
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let (input, length, name) = input(&args.file)?;
    let format = args.format.unwrap_or_else(|| Format::of(&args.file));
    let mut records =
        Records::new(BufReader::with_capacity(1 << 20, input), name, format, args.place.hex);
    if args.dry_run {
        let count = each(&mut records, length, check)?;
        return report(
            args,
            json!({ "entries": count }),
            &format!("{} can be added", format_count(count, "key")),
        );
    }
    let db = args.place.open_or_create()?;
    let name = &args.place.keyspace;
    let is_new = db.existing_keyspace(name).is_none();
    let keyspace = db.keyspace(name)?;
    let added = add(&keyspace, &mut records, length, args.ttl);
    if added.is_err() && is_new {
        db.drop_keyspace(name)?;
    }
    let added = added?;
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

/// Adds all of `records` at once.
fn add(
    keyspace: &Keyspace,
    records: &mut Records<impl io::BufRead>,
    length: Option<u64>,
    ttl: Option<Duration>,
) -> Result<Ingested> {
    let mut ingest = keyspace.ingest()?;
    each(records, length, |key, value| match ttl {
        Some(ttl) => ingest.add_with_ttl(key, value, ttl),
        None => ingest.add(key, value),
    })?;
    ingest.finish()
}

/// Refuses what no store takes. What one with little memory takes is less, and known to it alone.
fn check(key: &[u8], value: &[u8]) -> Result<()> {
    Key::new(key)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::invalid("value length, bytes")
            .expected(format_args!("at most {VALUE_BYTES_MAX}"))
            .got(value.len()));
    }
    Ok(())
}

/// Hands every record to `take`; how many there were.
fn each(
    records: &mut Records<impl io::BufRead>,
    length: Option<u64>,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<u64> {
    let bar = Progress::of_bytes("ingest");
    let mut count = 0;
    while let Some(record) = records.next()? {
        take(record.key, record.value).map_err(|error| error.at(record.place()))?;
        count += 1;
        if count % RECORDS_A_LOOK == 0 {
            bar.show(records.bytes(), length);
        }
    }
    Ok(count)
}

fn report(args: &Args, json: serde_json::Value, text: &str) -> Result<Outcome> {
    let mut out = Output::new();
    if args.json {
        out.line(json)?
    } else {
        out.line(text)?
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// The input, its length where it is known, and what to call it.
fn input(path: &Path) -> Result<(Box<dyn Read>, Option<u64>, String)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), None, "standard input".to_owned()));
    }
    let name = path.display().to_string();
    let refused = |error: io::Error| {
        Error::invalid("file to ingest").at(path.display()).expected("a file to read").got(error)
    };
    let file = File::open(path).map_err(refused)?;
    let metadata = file.metadata().map_err(refused)?;
    // A pipe has no length.
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len()), name))
}

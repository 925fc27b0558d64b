//! `terrace load`: adds rows in any order, from a file or standard input, and whole stores from a dump.
//!
//! Rows are sorted in bounded memory first, so that every mistake in them is found before the keyspace is
//! written to. Then they are ingested: all become visible together or none, except in a hashed keyspace.

mod csv_rows;
mod input;
mod json_rows;
mod lines;
mod restore;
mod rows;
mod run;
mod sink;
mod sorter;

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::limits::VALUE_BYTES_MAX;
use base::{Key, format_bytes, format_count};
use serde_json::json;
use terracedb::{Db, EntryOptions, Error, ErrorKind, Keyspace, Result};

use crate::outcome::Outcome;
use crate::output::{print_result, report_to_stderr};
use crate::parsers::{error_text, seconds, size};
use crate::progress::Progress;
use crate::shared_args::{OutputArgs, StoreArgs};
use crate::{interrupt, new_store};
use input::Input;
use rows::{Format, Row, Rows, Selection};
use sink::{Added, Sink};
use sorter::Sorter;

/// Rows between two updates of the progress bar.
const ROWS_PER_UPDATE: u64 = 4096;

/// Least memory of the sort: with less, the runs have no useful buffers.
const SORT_MEMORY_MIN: u64 = 4 << 20;

/// Most wrong rows that are printed; the others are counted.
const ERRORS_SHOWN_MAX: u64 = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The file; `-` is standard input
    file: PathBuf,
    /// The file's format [default: dump if it begins as one, else by the ending of its name, else tsv]
    #[arg(long)]
    format: Option<Format>,
    /// The keyspace to add rows to, which is created if it is missing [default: default]. Of a dump, load
    /// only this keyspace
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// The column (csv: its name, or its number from 1) or field (jsonl) with the key
    /// [default: the first column; the field `key`]
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// The column or field with the value. Several, separated by commas, become a JSON object
    /// [default: all other columns; the field `value`, or the whole object if --key is given]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    value: Vec<String>,
    /// The first line of a csv file is a row, and columns have numbers only
    #[arg(long)]
    no_header: bool,
    /// The character between columns of a csv file; `\t` is a tab
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// Keys and values are hexadecimal digits
    #[arg(long)]
    hex: bool,
    /// Expire the added entries after this time, as in 90s, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    ttl: Option<Duration>,
    /// Leave out rows that are wrong, print the first of them, and end with exit status 1
    #[arg(long)]
    skip_bad: bool,
    /// Memory of the sort, besides that of the store. More rows are sorted in temporary files, and a row is
    /// at most a quarter as long
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    sort_memory: u64,
    /// The directory of the temporary files, which have no names and end with the command
    /// [default: the store's directory]
    #[arg(long, value_name = "DIR")]
    temp_dir: Option<PathBuf>,
    /// Read and check the file, and add nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Parses the delimiter of columns: one ASCII character that is no quote and no line end.
fn delimiter(text: &str) -> std::result::Result<u8, &'static str> {
    match text.as_bytes() {
        br"\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("expected one character, as in `;` or `\\t`"),
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut input = Input::open(&args.file)?;
    let format = match args.format {
        Some(format) => format,
        None if input.is_dump()? => Format::Dump,
        None => by_name(&args.file),
    };
    refuse_others(args, format)?;
    if format == Format::Dump {
        return restore::run(args, input);
    }
    if args.sort_memory < SORT_MEMORY_MIN {
        return Err(Error::invalid("--sort-memory")
            .expected(format_args!("at least {}", format_bytes(SORT_MEMORY_MIN)))
            .got(format_bytes(args.sort_memory)));
    }
    let budget = usize::try_from(args.sort_memory).unwrap_or(usize::MAX);
    let Input { reader, length, name, .. } = input;
    let selection = Selection {
        key: args.key.clone(),
        values: args.value.clone(),
        is_hex: args.hex,
        has_header: !args.no_header,
        delimiter: args.delimiter,
    };
    let rows = Rows::new(reader, format, selection, budget / 4).map_err(|error| error.at(&name))?;
    let mut load = Load { args, rows, length, name, bad: 0, rows_read: 0 };
    if args.dry_run {
        let sorter = Sorter::new(Path::new("."), budget);
        load.each(&mut Checked { sorter, is_dry: true })?;
        let (good, text) = (load.rows_read - load.bad, "can be loaded");
        return load.report(&Added { entries: good, ..Added::default() }, 0, text);
    }
    let keyspace = args.keyspace.as_deref().unwrap_or("default");
    let (added, replaced) = args.store.with_store(|db| {
        new_store::with_keyspace(db, keyspace, |keyspace| load.add(db, keyspace, budget))
    })?;
    load.report(&added, replaced, "added")
}

/// Refuses arguments that the format does not have, so that none is silently without effect.
fn refuse_others(args: &Args, format: Format) -> Result<()> {
    let is_csv = format == Format::Csv;
    let has_columns = is_csv || format == Format::Jsonl;
    let is_rows = format != Format::Dump;
    for (argument, is_given, is_known) in [
        ("--key", args.key.is_some(), has_columns),
        ("--value", !args.value.is_empty(), has_columns),
        ("--no-header", args.no_header, is_csv),
        ("--delimiter", args.delimiter != b',', is_csv),
        ("--hex", args.hex, is_rows),
        ("--ttl", args.ttl.is_some(), is_rows),
        ("--skip-bad", args.skip_bad, is_rows),
    ] {
        if is_given && !is_known {
            let format = format!("{format:?}").to_lowercase();
            return Err(Error::invalid(argument)
                .expected("a format that has it; --format chooses one")
                .got(format_args!("the format {format}")));
        }
    }
    Ok(())
}

/// The format by the ending of the file's name.
fn by_name(path: &Path) -> Format {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => Format::Csv,
        Some("jsonl" | "ndjson") => Format::Jsonl,
        _ => Format::Tsv,
    }
}

/// A load of rows.
struct Load<'a, R> {
    args: &'a Args,
    rows: Rows<R>,
    length: Option<u64>,
    name: String,
    /// Rows read, and those of them that were left out.
    rows_read: u64,
    bad: u64,
}

impl<R: std::io::BufRead> Load<'_, R> {
    /// Passes each row on.
    ///
    /// # Errors
    /// `Invalid` for a row that is wrong, unless such rows are skipped; those of the sort and of the input.
    fn each(&mut self, to: &mut Checked) -> Result<()> {
        let bar = Progress::of_bytes("read");
        loop {
            interrupt::check("load")?;
            let next = self.rows.next().map_err(|error| error.at(&self.name))?;
            let Some(row) = next else { return Ok(()) };
            self.rows_read += 1;
            let line = self.rows.line();
            let checked = row.and_then(|row| to.check(&row).map(|()| row));
            match checked {
                Ok(Row { key, value }) if !to.is_dry => to.sorter.add(line, &key, &value)?,
                Ok(_) => {}
                Err(error) => self.bad_row(line, error)?,
            }
            if self.rows_read.is_multiple_of(ROWS_PER_UPDATE) {
                bar.show(self.rows.bytes(), self.length);
            }
        }
    }

    /// Counts a row that is wrong, or returns its error.
    fn bad_row(&mut self, line: u64, error: Error) -> Result<()> {
        let error = error.at(format_args!("{}:{line}", self.name));
        if !self.args.skip_bad || error.kind() != ErrorKind::Invalid {
            return Err(error);
        }
        self.bad += 1;
        if self.bad <= ERRORS_SHOWN_MAX {
            report_to_stderr(error_text(&error));
        }
        Ok(())
    }

    /// Sorts all rows, and adds them. Returns their number and that of the rows that later ones replaced.
    fn add(&mut self, db: &Db, keyspace: &Keyspace, budget: usize) -> Result<(Added, u64)> {
        let dir = match &self.args.temp_dir {
            Some(dir) => dir.clone(),
            None => self.args.store.directory()?,
        };
        let mut to = Checked { sorter: Sorter::new(&dir, budget), is_dry: false };
        self.each(&mut to)?;
        let ttl = self.args.ttl;
        let options = ttl.map_or(EntryOptions::new(), |ttl| EntryOptions::new().ttl(ttl));
        let mut sink = Sink::new(db, keyspace)?;
        let bar = Progress::new("add");
        let (total, mut done, bad_before) = (self.rows_read - self.bad, 0u64, self.bad);
        to.sorter.finish(&mut |line, key, value| {
            match sink.put(key, value, &options) {
                Ok(()) => {}
                // Only the store knows the longest value that it takes.
                Err(error) if error.kind() == ErrorKind::Invalid => self.bad_row(line, error)?,
                Err(error) => return Err(error),
            }
            sink.write_if_full()?;
            done += 1;
            if done.is_multiple_of(ROWS_PER_UPDATE) {
                bar.show(done, Some(total));
            }
            Ok(())
        })?;
        let added = sink.finish()?;
        let refused = self.bad - bad_before;
        Ok((added, total - refused - added.entries))
    }

    fn report(&self, added: &Added, replaced: u64, verb: &str) -> Result<Outcome> {
        let Added { entries, tables, file_bytes } = *added;
        let mut text = format!("{} {verb}", format_count(entries, "key"));
        if tables > 0 {
            let tables = format_count(tables, "table");
            text += &format!(" in {tables} of {}", format_bytes(file_bytes));
        }
        if replaced > 0 {
            text += &format!(", {} replaced by a later one", format_count(replaced, "row"));
        }
        if self.bad > 0 {
            text += &format!(", {} skipped", format_count(self.bad, "wrong row"));
        }
        let json = json!({
            "entries": entries,
            "tables": tables,
            "file_bytes": file_bytes,
            "replaced": replaced,
            "bad": self.bad,
        });
        print_result(self.args.output.json, &json, text)?;
        Ok(Outcome::good_if(self.bad == 0))
    }
}

/// The sort of rows that were checked.
struct Checked {
    sorter: Sorter,
    /// The rows are checked only.
    is_dry: bool,
}

impl Checked {
    /// Refuses a row that no store accepts, or that the sort has no room for. A store with little memory may
    /// refuse more: its limit is known only once it is open.
    fn check(&self, row: &Row) -> Result<()> {
        Key::new(&row.key)?;
        if row.value.len() > VALUE_BYTES_MAX {
            return Err(Error::invalid("value length, bytes")
                .expected(format_args!("at most {VALUE_BYTES_MAX}"))
                .got(row.value.len()));
        }
        self.sorter.check(&row.key, &row.value)
    }
}

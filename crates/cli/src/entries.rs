//! `terrace get`, `put`, `delete` and `scan`: commands that read and write single entries.

use std::io::{Read, stdin};
use std::time::Duration;

use base::format_count;
use serde_json::json;
use terracedb::iter::KeyEntry;
use terracedb::{EntryOptions, Error, Result};

use crate::hex;
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{Output, report_to_stderr};
use crate::parsers::seconds;
use crate::shared_args::{
    KeyRangeArgs, KeyspaceArgs, OutputArgs, ReadOnlyArgs, decode_optional_key,
};

/// Most errors of keys that a scan prints; the others are counted.
const ERRORS_SHOWN_MAX: u64 = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// Print exactly the bytes of the value, without a newline after them
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
    #[command(flatten)]
    access: ReadOnlyArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// The value, taken as it is, without escapes; `-` reads all bytes of standard input as the value
    #[arg(allow_negative_numbers = true)]
    value: String,
    /// Expire the entry after this time, as in 90s, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    ttl: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    range: KeyRangeArgs,
    /// Print at most N entries
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    limit: usize,
    /// Print in descending key order
    #[arg(long)]
    reverse: bool,
    /// Print keys without their values
    #[arg(long, conflicts_with = "json")]
    keys_only: bool,
    /// Print the other entries if a key cannot be merged or its long value is damaged; the errors go to
    /// standard error, and the exit status is 1
    #[arg(long)]
    skip_errors: bool,
    /// Print only the number of entries
    #[arg(long, conflicts_with = "json")]
    count: bool,
    #[command(flatten)]
    access: ReadOnlyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn get(args: &GetArgs) -> Result<Outcome> {
    let key = args.keyspace.key(&args.key)?;
    let db = args.keyspace.store.open_to_read(&args.access)?;
    let Some(value) = args.keyspace.existing(&db)?.get(key)? else {
        return Ok(Outcome::Negative);
    };
    let mut out = Output::new();
    if args.keyspace.hex {
        out.bytes(&hex::encode(&value))?;
    } else {
        out.bytes(&value)?;
    }
    if !args.raw {
        out.bytes(b"\n")?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn put(args: &PutArgs) -> Result<Outcome> {
    let key = args.keyspace.key(&args.key)?;
    let value = if args.value == "-" {
        value_of_stdin(&args.keyspace)?
    } else {
        args.keyspace.value(&args.value)?
    };
    let options = args.ttl.map_or(EntryOptions::new(), |ttl| EntryOptions::new().ttl(ttl));
    args.keyspace.with_keyspace(|keyspace| keyspace.put_opt(key, value, &options))?;
    Ok(Outcome::Done)
}

/// The value on standard input: all its bytes, or with `--hex` its digits without the final newline. Reads
/// at most one byte more than the longest value, so that the store can refuse a longer one.
fn value_of_stdin(keyspace: &KeyspaceArgs) -> Result<Vec<u8>> {
    let failed = |error| Error::io("read", "standard input", error);
    let limit = base::limits::VALUE_BYTES_MAX as u64 + 1;
    if !keyspace.hex {
        let mut value = Vec::new();
        stdin().lock().take(limit).read_to_end(&mut value).map_err(failed)?;
        return Ok(value);
    }
    let mut digits = String::new();
    stdin().lock().take(2 * limit).read_to_string(&mut digits).map_err(failed)?;
    keyspace.value(digits.trim_end_matches(['\r', '\n']))
}

pub(crate) fn delete(args: &DeleteArgs) -> Result<Outcome> {
    let key = args.keyspace.key(&args.key)?;
    let db = args.keyspace.store.open()?;
    args.keyspace.existing(&db)?.delete(key)?;
    db.close()?;
    Ok(Outcome::Done)
}

pub(crate) fn scan(args: &ScanArgs) -> Result<Outcome> {
    let ScanArgs { keyspace: keyspace_args, range, .. } = args;
    let db = keyspace_args.store.open_to_read(&args.access)?;
    let keyspace = keyspace_args.existing(&db)?;
    let from = decode_optional_key(range.from.as_ref(), keyspace_args.hex)?;
    let to = decode_optional_key(range.to.as_ref(), keyspace_args.hex)?;
    let iter = match (&range.prefix, from, to) {
        (Some(prefix), ..) => Some(keyspace.prefix(keyspace_args.key(prefix)?)?),
        (None, Some(from), Some(to)) => Some(keyspace.range(from..to)?),
        (None, Some(from), None) => Some(keyspace.range(from..)?),
        (None, None, Some(to)) => Some(keyspace.range(..to)?),
        // A hashed keyspace has entries, but no order that `--reverse` could reverse.
        (None, None, None) if keyspace.hashed_policy().is_some() && !args.reverse => None,
        (None, None, None) => Some(keyspace.iter()?),
    };
    let mut next: Box<dyn FnMut() -> Result<Option<KeyEntry>>> = match iter {
        Some(mut iter) if args.reverse => Box::new(move || iter.next_key_back()),
        Some(mut iter) => Box::new(move || iter.next_key()),
        None => {
            let mut entries = keyspace.entries()?;
            Box::new(move || entries.next_key())
        }
    };
    let mut out = Output::new();
    let (mut count, mut skipped) = (0, 0u64);
    let _section = interrupt::Section::printing();
    while count < args.limit {
        interrupt::check("scan")?;
        let (key, value) = match next()? {
            None => break,
            Some((key, Ok(value))) => (key, value),
            Some((_, Err(error))) if args.skip_errors => {
                skipped += 1;
                if skipped <= ERRORS_SHOWN_MAX {
                    report_to_stderr(&error);
                }
                continue;
            }
            Some((_, Err(error))) => return Err(error),
        };
        count += 1;
        if args.count {
            continue;
        }
        print_entry(args, &key, &value, &mut out)?;
        if out.is_closed() {
            break;
        }
    }
    if args.count {
        out.line(count)?;
    }
    out.flush()?;
    if skipped > 0 {
        report_to_stderr(format_args!("{} skipped", format_count(skipped, "key")));
    }
    Ok(Outcome::good_if(skipped == 0))
}

fn print_entry(args: &ScanArgs, key: &[u8], value: &[u8], out: &mut Output) -> Result<()> {
    if args.output.json {
        let text = |bytes: &[u8]| match args.keyspace.hex {
            true => json_text(&hex::encode(bytes)),
            false => json_text(bytes),
        };
        return out.line(json!({ "key": text(key)?, "value": text(value)? }));
    }
    out.bytes(&args.keyspace.line(key))?;
    if !args.keys_only {
        out.bytes(b"\t")?;
        out.bytes(&args.keyspace.line(value))?;
    }
    out.bytes(b"\n")
}

/// The text of `bytes` for JSON, which holds only UTF-8.
fn json_text(bytes: &[u8]) -> Result<String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| {
        Error::invalid("--json")
            .expected("UTF-8 keys and values, or --hex")
            .got(format_args!("`{}`", bytes.escape_ascii()))
    })
}

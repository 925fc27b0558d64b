//! `terrace get`, `put`, `delete` and `scan`.

use std::io::{Read, stdin};

use serde_json::json;
use terracedb::{Error, Result};

use crate::Outcome;
use crate::args;
use crate::output::Output;
use crate::place::Place;

pub(crate) fn get(args: args::Get) -> Result<Outcome> {
    let key = args.place.bytes(&args.key)?;
    let db = args.place.open()?;
    let Some(value) = args.place.existing(&db)?.get(key)? else {
        return Ok(Outcome::Negative);
    };
    let mut out = Output::new();
    out.bytes(&args.place.shown(&value))?;
    if !args.raw {
        out.bytes(b"\n")?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn put(args: args::Put) -> Result<Outcome> {
    let key = args.place.bytes(&args.key)?;
    let value = if args.value == "-" {
        value_of_stdin(&args.place)?
    } else {
        args.place.bytes(&args.value)?
    };
    let db = args.place.open_or_create()?;
    let keyspace = db.keyspace(&args.place.keyspace)?;
    match args.ttl {
        Some(ttl) => keyspace.put_with_ttl(key, value, ttl)?,
        None => keyspace.put(key, value)?,
    }
    Ok(Outcome::Done)
}

/// The bytes of standard input, or what the digits there say, whose last line may end.
fn value_of_stdin(place: &Place) -> Result<Vec<u8>> {
    let failed = |error| Error::io("read", "standard input", error);
    let limit = base::limits::VALUE_BYTES_MAX as u64 + 1;
    if !place.hex {
        let mut value = Vec::new();
        stdin().lock().take(limit).read_to_end(&mut value).map_err(failed)?;
        return Ok(value);
    }
    let mut digits = String::new();
    stdin().lock().take(2 * limit).read_to_string(&mut digits).map_err(failed)?;
    place.bytes(digits.trim_end_matches(['\r', '\n']))
}

pub(crate) fn delete(args: args::Delete) -> Result<Outcome> {
    let key = args.place.bytes(&args.key)?;
    let db = args.place.open()?;
    args.place.existing(&db)?.delete(key)?;
    Ok(Outcome::Done)
}

pub(crate) fn scan(args: args::Scan) -> Result<Outcome> {
    let place = &args.place;
    let db = place.open()?;
    let keyspace = place.existing(&db)?;
    let iter =
        match (&args.prefix, place.bound(args.from.as_ref())?, place.bound(args.to.as_ref())?) {
            (Some(prefix), ..) => keyspace.prefix(place.bytes(prefix)?)?,
            (None, Some(from), Some(to)) => keyspace.range(from..to)?,
            (None, Some(from), None) => keyspace.range(from..)?,
            (None, None, Some(to)) => keyspace.range(..to)?,
            (None, None, None) => keyspace.iter()?,
        };
    let entries: Box<dyn Iterator<Item = _>> =
        if args.reverse { Box::new(iter.rev()) } else { Box::new(iter) };
    let mut out = Output::new();
    let mut count = 0u64;
    for entry in entries.take(args.limit) {
        let (key, value) = entry?;
        count += 1;
        if args.count {
            continue;
        }
        let key = place.shown(&key);
        if args.json {
            let value = place.shown(&value);
            out.line(json!({ "key": text(&key)?, "value": text(&value)? }))?;
        } else {
            out.bytes(&key)?;
            if !args.keys_only {
                out.bytes(b"\t")?;
                out.bytes(&place.shown(&value))?;
            }
            out.bytes(b"\n")?;
        }
        if out.is_closed() {
            break;
        }
    }
    if args.count {
        out.line(count)?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// Bytes as JSON can say them.
fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| {
        Error::invalid("--json")
            .expected("--hex beside it where keys or values are no text")
            .got(format_args!("`{}`", bytes.escape_ascii()))
    })
}

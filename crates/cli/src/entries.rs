//! `terrace get`, `put`, `delete` and `scan`.

use std::io::{Read, stdin};

use terracedb::{Db, Durability, Error, Keyspace, Result};

use crate::args::{self, Place};
use crate::output::Output;
use crate::{Outcome, directory};

/// Opens the store; reading does not create one.
fn open(place: &Place, create: bool) -> Result<Db> {
    if !create {
        directory::must_hold_store(&place.dir)?;
    }
    let mut builder =
        Db::builder(&place.dir).codec(place.engine.codec.into()).durability(Durability::Sync);
    if let Some(memory) = place.engine.memory {
        builder = builder.memory(memory);
    }
    builder.open()
}

fn existing(db: &Db, place: &Place) -> Result<Keyspace> {
    db.existing_keyspace(&place.keyspace).ok_or_else(|| {
        let names: Vec<_> = db.keyspaces().iter().map(|ks| ks.name().to_owned()).collect();
        Error::invalid("--keyspace")
            .expected(format_args!("one of [{}]", names.join(", ")))
            .got(format_args!("`{}`", place.keyspace))
    })
}

pub(crate) fn get(args: args::Get) -> Result<Outcome> {
    let key = bytes(&args.key, args.place.hex)?;
    let db = open(&args.place, false)?;
    let Some(value) = existing(&db, &args.place)?.get(key)? else {
        return Ok(Outcome::Negative);
    };
    let mut out = Output::new();
    out.bytes(&shown(&value, args.place.hex))?;
    out.bytes(b"\n")?;
    out.flush()?;
    Ok(Outcome::Done)
}

pub(crate) fn put(args: args::Put) -> Result<Outcome> {
    let key = bytes(&args.key, args.place.hex)?;
    let value = if args.value == "-" {
        let mut value = Vec::new();
        let limit = base::limits::VALUE_BYTES_MAX as u64 + 1;
        let read = stdin().lock().take(limit).read_to_end(&mut value);
        read.map_err(|e| Error::io("read", "standard input", e))?;
        value
    } else {
        bytes(&args.value, args.place.hex)?
    };
    let db = open(&args.place, true)?;
    db.keyspace(&args.place.keyspace)?.put(key, value)?;
    Ok(Outcome::Done)
}

pub(crate) fn delete(args: args::Delete) -> Result<Outcome> {
    let key = bytes(&args.key, args.place.hex)?;
    let db = open(&args.place, false)?;
    existing(&db, &args.place)?.delete(key)?;
    Ok(Outcome::Done)
}

pub(crate) fn scan(args: args::Scan) -> Result<Outcome> {
    let db = open(&args.place, false)?;
    let keyspace = existing(&db, &args.place)?;
    let hex = args.place.hex;
    let bound = |text: &Option<String>| text.as_ref().map(|text| bytes(text, hex)).transpose();
    let iter = match (&args.prefix, bound(&args.from)?, bound(&args.to)?) {
        (Some(prefix), ..) => keyspace.prefix(bytes(prefix, hex)?)?,
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
        out.bytes(&shown(&key, hex))?;
        if !args.keys_only {
            out.bytes(b"\t")?;
            out.bytes(&shown(&value, hex))?;
        }
        out.bytes(b"\n")?;
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

/// What was typed as bytes: itself, or the hexadecimal digits' values.
fn bytes(text: &str, hex: bool) -> Result<Vec<u8>> {
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    let refused = || {
        Error::invalid("argument")
            .expected("pairs of hexadecimal digits")
            .got(format_args!("`{text}`"))
    };
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let (pairs, []) = digits.as_deref().ok_or_else(refused)?.as_chunks::<2>() else {
        return Err(refused());
    };
    Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Bytes as printed: as they are, or as hexadecimal digits.
fn shown(bytes: &[u8], hex: bool) -> Vec<u8> {
    if hex {
        bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
    } else {
        bytes.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_arguments_round_trip() {
        assert_eq!(bytes("00ff1A", true).unwrap(), [0, 255, 26]);
        assert_eq!(shown(&[0, 255, 26], true), b"00ff1a");
        assert_eq!(bytes("ab", false).unwrap(), b"ab");
        for text in ["0", "0g", "0x00"] {
            assert!(bytes(text, true).is_err(), "{text}");
        }
    }
}

//! Parsers of argument values, for clap. Each returns an error text that states the expected form.

use std::str::FromStr;
use std::time::Duration;

use base::parse_bytes;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use server::{DATABASES, DatabaseKind};
use terracedb::{Error, ErrorKind};
use workload::Distribution;
use workload::lanes::Mix;

use crate::time;

/// Parses one of `all` by its name. Usage, help and errors list the names.
pub(crate) fn one_of<T, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.map(name)).try_map(|name| name.parse())
}

/// Parses a size in bytes, such as 512MiB.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error_text(&error))
}

/// Parses a key distribution, such as zipfian:0.99.
pub(crate) fn distribution(text: &str) -> Result<Distribution, String> {
    text.parse().map_err(|error| error_text(&error))
}

/// Parses a mix of YCSB, such as a.
pub(crate) fn mix(text: &str) -> Result<Mix, String> {
    text.parse().map_err(|error| error_text(&error))
}

/// Parses a time, such as 90s or 12h; a number without a unit is in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    time::parse(text).ok_or_else(|| format!("expected {}", time::EXPECTED))
}

/// Parses the number of a database of the server and its kind, such as 1=keep.
pub(crate) fn database(text: &str) -> Result<(u8, DatabaseKind), String> {
    let (number, kind) = text.split_once('=').ok_or("a number, `=` and a kind are expected")?;
    let number = number.parse().ok().filter(|number| *number < DATABASES);
    let number =
        number.ok_or_else(|| format!("databases have the numbers 0 to {}", DATABASES - 1))?;
    Ok((number, kind.parse().map_err(|error| error_text(&error))?))
}

/// The text of `error` without the prefix of the kind `Invalid`: the user knows that the argument is wrong.
pub(crate) fn error_text(error: &Error) -> String {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((_, rest)) if error.kind() == ErrorKind::Invalid => rest.to_owned(),
        _ => text,
    }
}

//! `terrace delete-range`: deletes every key of a range in one operation.

use std::ops::Bound;

use base::format_count;
use clap::ArgGroup;
use terracedb::iter::KeyEntry;
use terracedb::{Error, Result};

use crate::outcome::Outcome;
use crate::output::Output;
use crate::shared_args::{KeyRangeArgs, KeyspaceArgs, decode_optional_key, must_ascend};

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("keys").args(["from", "to", "prefix", "all"]).required(true).multiple(true))]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    range: KeyRangeArgs,
    /// Delete every key of the keyspace
    #[arg(long, conflicts_with_all = ["from", "to", "prefix"])]
    all: bool,
    /// Print how many keys would be deleted, and delete none
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let bounds = bounds(args)?;
    let db = args.keyspace.store.open()?;
    let keyspace = args.keyspace.existing(&db)?;
    if !args.dry_run {
        keyspace.delete_range(bounds)?;
        db.close()?;
        return Ok(Outcome::Done);
    }
    let mut keys = 0u64;
    let mut next: Box<dyn FnMut() -> Result<Option<KeyEntry>>> = if args.all {
        let mut entries = keyspace.entries()?;
        Box::new(move || entries.next_key())
    } else {
        let mut iter = keyspace.range(bounds)?;
        Box::new(move || iter.next_key())
    };
    // A key with an unreadable value would be deleted too.
    while next()?.is_some() {
        keys += 1;
    }
    let mut out = Output::new();
    out.line(format_args!("{} would be deleted", format_count(keys, "key")))?;
    out.flush()?;
    Ok(Outcome::Done)
}

/// The first and last key of a range.
type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The range to delete.
fn bounds(args: &Args) -> Result<KeyBounds> {
    let (range, hex) = (&args.range, args.keyspace.hex);
    if let Some(prefix) = &range.prefix {
        return prefix_bounds(args.keyspace.key(prefix)?);
    }
    let from = decode_optional_key(range.from.as_ref(), hex)?;
    let to = decode_optional_key(range.to.as_ref(), hex)?;
    must_ascend(from.as_ref(), to.as_ref())?;
    let from = from.map_or(Bound::Unbounded, Bound::Included);
    Ok((from, to.map_or(Bound::Unbounded, Bound::Excluded)))
}

/// The range of the keys that begin with `prefix`.
fn prefix_bounds(prefix: Vec<u8>) -> Result<KeyBounds> {
    if prefix.is_empty() {
        return Err(Error::invalid("--prefix").expected("bytes, or --all for every key"));
    }
    // The range ends at the prefix with its last byte below 255 one greater, without the bytes after it.
    let mut end = prefix.clone();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    let end = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    Ok((Bound::Included(prefix), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_range_ends_at_the_next_prefix() {
        let end = |prefix: &[u8]| prefix_bounds(prefix.to_vec()).unwrap().1;
        assert_eq!(end(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(end(b"\xff"), Bound::Unbounded);
        assert!(prefix_bounds(Vec::new()).is_err());
    }
}

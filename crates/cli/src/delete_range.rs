//! `terrace delete-range`.

use std::ops::Bound;

use terracedb::{Error, Result, format_count};

use crate::Outcome;
use crate::output::Output;
use crate::place::Place;

#[derive(Debug, clap::Args)]
#[group(id = "range", required = true, multiple = true)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// The first key
    #[arg(long, value_name = "KEY", group = "range")]
    from: Option<String>,
    /// The first key to leave
    #[arg(long, value_name = "KEY", group = "range")]
    to: Option<String>,
    /// Every key that begins so
    #[arg(long, value_name = "KEY", group = "range", conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// Every key
    #[arg(long, group = "range", conflicts_with_all = ["from", "to", "prefix"])]
    all: bool,
    /// Only print how many keys would go
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Args { place, .. } = args;
    let bounds = match &args.prefix {
        Some(prefix) => prefixed(place.bytes(prefix)?)?,
        None => {
            let from = place.bound(args.from.as_ref())?;
            let to = place.bound(args.to.as_ref())?;
            if let (Some(from), Some(to)) = (&from, &to)
                && from >= to
            {
                return Err(Error::invalid("--to").expected("a key after --from"));
            }
            let from = from.map_or(Bound::Unbounded, Bound::Included);
            (from, to.map_or(Bound::Unbounded, Bound::Excluded))
        }
    };
    let db = place.open()?;
    let keyspace = place.existing(&db)?;
    if !args.dry_run {
        keyspace.delete_range(bounds)?;
        return Ok(Outcome::Done);
    }
    let mut keys = 0u64;
    for entry in keyspace.range(bounds)? {
        entry?;
        keys += 1;
    }
    let mut out = Output::new();
    out.line(format_args!("{} would go", format_count(keys, "key")))?;
    out.flush()?;
    Ok(Outcome::Done)
}

/// From the first key to the last.
type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys that begin with `prefix`.
fn prefixed(prefix: Vec<u8>) -> Result<KeyBounds> {
    if prefix.is_empty() {
        return Err(Error::invalid("--prefix").expected("bytes, or --all for every key"));
    }
    // The first key after them all has the last byte that can be raised, raised.
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
    fn a_prefix_ends_before_the_next_one() {
        let end = |prefix: &[u8]| prefixed(prefix.to_vec()).unwrap().1;
        assert_eq!(end(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(end(b"\xff"), Bound::Unbounded);
        assert!(prefixed(Vec::new()).is_err());
    }
}

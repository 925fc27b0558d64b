//! Compares the store's answers with the model.

use base::Rng;
use terracedb::{Db, Entry, Keyspace, Result, Retry};

use crate::cells::{Model, Span, contains};
use crate::step_error::{Outcome, ensure};

/// Keys and values in order.
pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The entries of `model` within `span`.
pub(crate) fn within(model: &Model, span: &Span) -> Entries {
    let within = model.iter().filter(|(key, _)| contains(span, key));
    within.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// All entries of `iter`.
pub(crate) fn entries(iter: impl Iterator<Item = Result<Entry>>) -> Result<Entries> {
    iter.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

/// All entries of `iter`, in the order of their keys.
pub(crate) fn sorted(iter: impl Iterator<Item = Result<Entry>>) -> Result<Entries> {
    let mut entries = entries(iter)?;
    entries.sort();
    Ok(entries)
}

/// At most `most` entries from one end of `iter`. Reduces `expected` to the entries that they must equal.
pub(crate) fn some_entries(
    iter: impl DoubleEndedIterator<Item = Result<Entry>>,
    backwards: bool,
    most: usize,
    expected: &mut Entries,
) -> Result<Entries> {
    if backwards {
        expected.reverse();
    }
    expected.truncate(most);
    if backwards { entries(iter.rev().take(most)) } else { entries(iter.take(most)) }
}

/// Describes the first difference of two lists of entries.
pub(crate) fn difference(found: &Entries, expected: &Entries) -> String {
    let describe = |entry: Option<&(Vec<u8>, Vec<u8>)>| match entry {
        Some((key, value)) => format!("{} = {}", show(key), show(value)),
        None => "the end".to_owned(),
    };
    let same = found.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
    format!(
        "{} entries, expected {}; at {same}: {}, expected {}",
        found.len(),
        expected.len(),
        describe(found.get(same)),
        describe(expected.get(same))
    )
}

/// A short readable form of `bytes`.
pub(crate) fn show(bytes: &[u8]) -> String {
    let short = &bytes[..bytes.len().min(24)];
    format!("\"{}\"({})", short.escape_ascii(), bytes.len())
}

/// Fails if `found` differs from `expected`.
pub(crate) fn same(found: &Entries, expected: &Entries, what: &str) -> Outcome {
    ensure!(found == expected, "{what}: {}", difference(found, expected));
    Ok(())
}

/// Reads all of `keyspace` with every kind of read.
pub(crate) fn all(keyspace: &Keyspace, model: &Model, rng: &mut Rng) -> Outcome {
    let name = keyspace.name().to_owned();
    let expected: Entries = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    same(&sorted(keyspace.entries()?)?, &expected, &format!("entries of `{name}`"))?;
    if keyspace.hashed_policy().is_none() {
        same(&entries(keyspace.iter()?)?, &expected, &format!("all of `{name}`"))?;
        let mut reversed = entries(keyspace.iter()?.rev())?;
        reversed.reverse();
        same(&reversed, &expected, &format!("all of `{name}` backwards"))?;
    }
    for (key, value) in model {
        let got = keyspace.get(key)?;
        ensure!(
            got.as_deref() == Some(value.as_slice()),
            "get {} of `{name}`: {:?}, expected {}",
            show(key),
            got.as_deref().map(show),
            show(value)
        );
    }
    let mut keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
    keys.push(b"missing");
    // Shuffles the keys.
    for at in (1..keys.len()).rev() {
        keys.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let results = keyspace.multi_get(&keys)?;
    values(&keys, results, model, &format!("multi_get of `{name}`"), |key| keyspace.get(key))
}

/// Fails if one of the `results` of many gets differs from the value that `model` has for its key. A caller
/// holds all results at once, which may leave no memory for another long value: such a get is refused for
/// now, and is repeated by `get` once the others are dropped.
pub(crate) fn values<V: AsRef<[u8]>>(
    keys: &[impl AsRef<[u8]>],
    results: Vec<Result<Option<V>>>,
    model: &Model,
    what: &str,
    get: impl Fn(&[u8]) -> Result<Option<V>>,
) -> Outcome {
    let check = |key: &[u8], got: Option<V>| {
        let got = got.as_ref().map(AsRef::as_ref);
        let expected = model.get(key).map(Vec::as_slice);
        ensure!(
            got == expected,
            "{what}: {}: {:?}, expected {:?}",
            show(key),
            got.map(show),
            expected.map(show)
        );
        Ok(())
    };
    ensure!(results.len() == keys.len(), "{what}: {} of {} gets", results.len(), keys.len());
    let mut refused = Vec::new();
    for (key, got) in keys.iter().map(AsRef::as_ref).zip(results) {
        match got {
            Err(error) if error.when_to_retry() == Retry::Later => refused.push(key),
            got => check(key, got?)?,
        }
    }
    refused.into_iter().try_for_each(|key| check(key, get(key)?))
}

/// Fails if the device holds a table or a manifest that is not in use.
pub(crate) fn no_unused_files(db: &Db, listed: &[String]) -> Outcome {
    let count = |part: &str| listed.iter().filter(|name| name.contains(part)).count();
    let tables: usize = db.statistics().keyspaces.iter().map(|keyspace| keyspace.tables).sum();
    ensure!(count(".table") == tables, "{tables} tables in use among {listed:?}");
    ensure!(count("manifest") == 1, "manifests among {listed:?}");
    Ok(())
}

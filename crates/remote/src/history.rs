//! History: the numbered manifests of a repository, and the rule by which there is one writer.
//!
//! A manifest is created only if its number is free. A writer begins by creating the next manifest, with the
//! files of the one before: its claim. Everything that it publishes later is the manifest after its own last
//! one. If another writer has claimed meanwhile, that number is taken, and the earlier writer is refused
//! with the name of the later one. So the later writer has read everything that the earlier one published,
//! and the earlier one publishes nothing more.
//!
//! The object `latest` has a number that was the newest one at some time. Readers go up from there, so an
//! old list or an old `latest` costs requests, and never hides a manifest.

use base::{Error, Result};

use crate::client::Client;
use crate::manifest::{BYTES_MAX, Manifest};
use crate::objects::{self, Creation};

/// Manifests that are kept, for readers and for writers that are late.
pub(crate) const KEPT: u64 = 128;
/// Steps up from `latest` to the newest manifest.
const STEPS_MAX: u64 = 100_000;
/// Claims that a writer tries.
const CLAIMS_MAX: u32 = 16;
/// Name of the hint.
const LATEST: &str = "latest";
/// Prefix of the names of manifests.
pub(crate) const MANIFESTS: &str = "manifest/";
/// Longest hint, bytes.
const HINT_BYTES_MAX: usize = 64;

/// The name of manifest `number`.
pub(crate) fn manifest_name(number: u64) -> String {
    format!("{MANIFESTS}{number:020}")
}

/// The number in the name of a manifest.
pub(crate) fn parse_manifest_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix(MANIFESTS)?.parse().ok()?;
    (manifest_name(number) == name).then_some(number)
}

fn read(client: &Client, number: u64) -> Result<Option<Manifest>> {
    let name = manifest_name(number);
    let Some(bytes) = objects::get(client, &client.location().key(&name), BYTES_MAX)? else {
        return Ok(None);
    };
    let place = |error: Error| error.at(format_args!("{name}, {}", client.location()));
    let found = Manifest::decode(&bytes).map_err(place)?;
    if found.number != number {
        let error = Error::corrupt("number of a manifest").expected(number).got(found.number);
        return Err(place(error));
    }
    Ok(Some(found))
}

/// The number that the hint has; none if there is no hint, or a damaged one.
fn hinted(client: &Client) -> Result<Option<u64>> {
    let hint = objects::get(client, &client.location().key(LATEST), HINT_BYTES_MAX)?;
    Ok(hint.and_then(|bytes| std::str::from_utf8(&bytes).ok()?.trim().parse().ok()))
}

/// The newest manifest; the empty one, with the number 0, if the repository does not exist.
pub(crate) fn newest(client: &Client) -> Result<Manifest> {
    let mut found = None;
    if let Some(number) = hinted(client)? {
        found = read(client, number)?;
    }
    if found.is_none() {
        // The hint was never written, or a late writer wrote it with the number of a removed manifest.
        let keys = objects::list(client, &client.location().key(MANIFESTS))?;
        let numbers = keys.iter().filter_map(|key| client.location().name(key));
        let Some(number) = numbers.filter_map(parse_manifest_name).max() else {
            return Ok(Manifest::default());
        };
        found = read(client, number)?;
    }
    let Some(newest) = found else {
        let error = Error::retry("list of manifests").at(client.location());
        return Err(error.expected("the newest one").got("one that does not exist any more"));
    };
    climb(client, newest)
}

/// The newest manifest after `newest`, or that one.
fn climb(client: &Client, mut newest: Manifest) -> Result<Manifest> {
    for _ in 0..STEPS_MAX {
        match read(client, newest.number.saturating_add(1))? {
            Some(next) => newest = next,
            None => return Ok(newest),
        }
    }
    Err(Error::retry("manifests").at(client.location()).expected("a newest one"))
}

/// Publishes `manifest` if its number is free.
///
/// # Errors
/// `Conflict` if another writer has the number, naming it. After `Retry` the manifest may be published or
/// not.
pub(crate) fn publish(client: &Client, manifest: &Manifest) -> Result<()> {
    let key = client.location().key(&manifest_name(manifest.number));
    let taken = match objects::create(client, &key, &manifest.encode()?)? {
        Creation::Created => return Ok(()),
        Creation::Taken(bytes) => bytes,
    };
    Err(taken_by(client, Manifest::decode(&taken).ok()))
}

/// The error of a writer that another one has replaced.
fn taken_by(client: &Client, other: Option<Manifest>) -> Error {
    let other = other.map_or_else(
        || "an unreadable manifest of another writer".to_owned(),
        |other| format!("manifest {} by {}", other.number, other.writer),
    );
    let error = Error::conflict("prefix of an object store").at(client.location());
    error.expected("no other writer").got(other)
}

/// Checks that no writer has published a manifest after `number`.
///
/// # Errors
/// `Conflict` if one has, naming it.
pub(crate) fn must_be_last(client: &Client, number: u64) -> Result<()> {
    match read(client, number.saturating_add(1))? {
        Some(other) => Err(taken_by(client, Some(other))),
        None => Ok(()),
    }
}

/// Publishes the claim of a writer that `claim` makes from the newest manifest. Returns the claim.
///
/// # Errors
/// As [`publish`], after several writers have claimed at the same time.
pub(crate) fn claim(client: &Client, claim: impl Fn(Manifest) -> Manifest) -> Result<Manifest> {
    let mut newest = newest(client)?;
    for left in (0..CLAIMS_MAX).rev() {
        let claimed = claim(newest);
        match publish(client, &claimed) {
            Err(error) if error.is_conflict() && left > 0 => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(claimed),
        }
        // Its number is taken, so it can be read, whatever a list says.
        newest = match read(client, claimed.number)? {
            Some(other) => climb(client, other)?,
            None => self::newest(client)?,
        };
    }
    Err(Error::conflict("claim of a prefix of an object store")
        .at(client.location())
        .expected("a free number"))
}

/// Checks that the store refuses to create `manifest`, which exists. A store that ignores the condition would
/// let two writers overwrite each other.
pub(crate) fn must_be_conditional(client: &Client, manifest: &Manifest) -> Result<()> {
    let key = client.location().key(&manifest_name(manifest.number));
    if objects::refuses_second(client, &key, &manifest.encode()?)? {
        return Ok(());
    }
    let error = Error::invalid("object store").at(client.location());
    Err(error.expected("conditional creation (If-None-Match)").got("a store that ignores it"))
}

/// Checks that no later manifest than `number` is known: a writer that is very late could have created one
/// that was removed already.
pub(crate) fn must_be_newest(client: &Client, number: u64) -> Result<()> {
    match hinted(client)? {
        Some(later) if later > number => {
            let error = Error::conflict("prefix of an object store").at(client.location());
            Err(error.expected("no other writer").got(format_args!("manifest {later}")))
        }
        _ => Ok(()),
    }
}

/// Writes the hint after manifest `number` was published, and removes a manifest that nobody reads any more.
pub(crate) fn settle(client: &Client, number: u64) -> Result<()> {
    objects::put(client, &client.location().key(LATEST), number.to_string().as_bytes())?;
    match number.checked_sub(KEPT) {
        Some(old @ 1..) => objects::remove(client, &client.location().key(&manifest_name(old))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_manifests_have_one_form() {
        assert_eq!(parse_manifest_name(&manifest_name(17)), Some(17));
        assert_eq!(parse_manifest_name(&manifest_name(u64::MAX)), Some(u64::MAX));
        for other in ["manifest/17", "manifest/", "latest", "manifest/+0000000000000000017"] {
            assert_eq!(parse_manifest_name(other), None, "{other}");
        }
    }
}

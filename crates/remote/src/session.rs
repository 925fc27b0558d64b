//! Session: what one process knows of a repository, and the names that it has not published yet.
//!
//! Names change here at once and are published together ([`Session::publish`]). An object of a published
//! name is removed only after a manifest without the name was published.

use std::collections::{BTreeMap, BTreeSet};

use base::Clock as _;
use base::{Error, Result, SystemClock};

use crate::client::Client;
use crate::history;
use crate::manifest::{Manifest, ObjectEntry};
use crate::objects::{self, Upload};
use crate::sweep::Remains;

/// The claim of this process.
#[derive(Debug)]
struct Claim {
    /// The number of the manifest that claims.
    number: u64,
    nonce: u128,
    /// Number of the next object.
    next: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The names were read.
    is_read: bool,
    /// The error of reading them, for those that waited meanwhile.
    failed: Option<Error>,
    /// The newest manifest that was read or published.
    published: Manifest,
    /// The files as they are to be.
    files: BTreeMap<String, ObjectEntry>,
    /// Files that are being written.
    unfinished: BTreeSet<String>,
    claim: Option<Claim>,
    /// Keys of published objects that lost their name.
    unnamed: Vec<String>,
    /// Uploads of the writer before this one, by file name.
    resumable: BTreeMap<String, Upload>,
    /// Bytes of objects that no published manifest has.
    unpublished_bytes: u64,
    /// A file was not finished: its upload may be resumed.
    is_interrupted: bool,
    /// The first error after which nothing may be published.
    stopped: Option<Error>,
}

/// The error of a name that does not exist.
fn missing(name: &str) -> Error {
    Error::invalid("no such file").at(name)
}

impl Session {
    /// Reads the newest manifest.
    pub(crate) fn read(client: &Client) -> Result<Self> {
        Ok(Self::of(history::newest(client)?))
    }

    /// A session that reads the newest manifest now, or `later`.
    pub(crate) fn begun(client: &Client, later: bool) -> Result<Self> {
        if later { Ok(Self::default()) } else { Self::read(client) }
    }

    /// Reads the newest manifest, unless one was read. With `is_tried` another caller has tried while this
    /// one waited, and this one gets the same error: callers do not wait one after the other.
    pub(crate) fn must_be_read(&mut self, client: &Client, is_tried: bool) -> Result<()> {
        match &self.failed {
            _ if self.is_read => return Ok(()),
            Some(error) if is_tried => return Err(error.clone()),
            _ => {}
        }
        *self = Self::read(client).inspect_err(|error| self.failed = Some(error.clone()))?;
        Ok(())
    }

    fn of(published: Manifest) -> Self {
        Self { is_read: true, files: published.files.clone(), published, ..Self::default() }
    }

    /// Becomes the writer of the repository, from its newest manifest on.
    ///
    /// # Errors
    /// `Invalid` if this process is writing it already, or if the store ignores conditions.
    pub(crate) fn begin(&mut self, client: &Client) -> Result<()> {
        if self.claim.is_some() {
            let error = Error::invalid("prefix of an object store").at(client.location());
            return Err(error.expected("one operation at a time"));
        }
        let remains = Remains::list(client)?;
        let nonce = u128::from(random()?) << 64 | u128::from(random()?);
        let claimed = history::claim(client, |newest| next(newest, nonce))?;
        let claim = Claim { number: claimed.number, nonce, next: 0 };
        history::must_be_conditional(client, &claimed)?;
        // A wrong hint must not name a later writer from now on.
        history::settle(client, claimed.number)?;
        *self = Self { claim: Some(claim), ..Self::of(claimed) };
        self.resumable = remains.sweep(client, &self.published);
        Ok(())
    }

    /// Ends writing. Nothing is published.
    pub(crate) fn end(&mut self, client: &Client) {
        if !self.is_interrupted && self.stopped.is_none() {
            for upload in self.resumable.values() {
                // Those that stay are swept the next time.
                if objects::abort_upload(client, upload).is_err() {
                    break;
                }
            }
        }
        *self = Self::of(std::mem::take(&mut self.published));
    }

    /// The files.
    pub(crate) fn files(&self) -> &BTreeMap<String, ObjectEntry> {
        &self.files
    }

    /// Bytes of objects that no published manifest has.
    pub(crate) fn unpublished_bytes(&self) -> u64 {
        self.unpublished_bytes
    }

    fn writing(&mut self) -> Result<&mut Claim> {
        let error = || Error::invalid("prefix of an object store").expected("a lock for writing");
        self.claim.as_mut().ok_or_else(error)
    }

    /// Adds a file that is being written. Returns the key of its object, and an upload of the same file that
    /// another process began.
    pub(crate) fn create(&mut self, name: &str) -> Result<(String, Option<Upload>)> {
        if self.files.contains_key(name) || self.unfinished.contains(name) {
            return Err(Error::invalid("file exists already").at(name));
        }
        let claim = self.writing()?;
        let key = data_key(claim.number, (claim.nonce >> 64) as u64, claim.next, name);
        claim.next += 1;
        self.unfinished.insert(name.to_owned());
        Ok((key, self.resumable.remove(name)))
    }

    /// Gives a complete file its name.
    pub(crate) fn finish(&mut self, name: &str, entry: ObjectEntry) -> Result<()> {
        self.writing()?;
        if !self.unfinished.remove(name) {
            return Err(missing(name));
        }
        self.unpublished_bytes = self.unpublished_bytes.saturating_add(entry.len);
        self.files.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Forgets a file that is not complete.
    pub(crate) fn give_up(&mut self, name: &str) {
        self.is_interrupted |= self.unfinished.remove(name);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Result<()> {
        self.writing()?;
        if self.unfinished.remove(name) {
            self.is_interrupted = true;
            return Ok(());
        }
        let entry = self.files.remove(name).ok_or_else(|| missing(name))?;
        self.unnamed.push(entry.key);
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        self.writing()?;
        let entry = self.files.remove(from).ok_or_else(|| missing(from))?;
        self.unnamed.extend(self.files.insert(to.to_owned(), entry).map(|replaced| replaced.key));
        Ok(())
    }

    /// Fails if another writer has claimed the repository.
    ///
    /// # Errors
    /// `Conflict`, naming it.
    pub(crate) fn must_be_writer(&self, client: &Client) -> Result<()> {
        history::must_be_last(client, self.published.number)
    }

    /// Publishes the names, and removes the objects that lost theirs.
    ///
    /// # Errors
    /// `Conflict` if another writer has begun; after this and after any other error, nothing more can be
    /// published before the repository is locked anew.
    pub(crate) fn publish(&mut self, client: &Client) -> Result<()> {
        let nonce = self.writing()?.nonce;
        if let Some(first) = &self.stopped {
            return Err(Error::poisoned_by("prefix of an object store", first));
        }
        if self.files != self.published.files {
            let mut manifest = next(self.published.clone(), nonce);
            manifest.files.clone_from(&self.files);
            let published = history::publish(client, &manifest);
            let published =
                published.and_then(|()| history::must_be_newest(client, manifest.number));
            if let Err(error) = published {
                self.stopped = Some(error.clone());
                return Err(error);
            }
            self.published = manifest;
            self.unpublished_bytes = 0;
            // It is published. The hint only saves requests.
            let _ = history::settle(client, self.published.number);
        }
        // Those that stay are swept by the next writer.
        let mut unnamed = std::mem::take(&mut self.unnamed);
        let named: BTreeSet<&str> = self.files.values().map(|entry| entry.key.as_str()).collect();
        base::invariant!(
            unnamed.iter().all(|key| !named.contains(key.as_str())),
            "an object that lost its name has no other name"
        );
        unnamed.retain(|key| !named.contains(key.as_str()));
        let _ =
            unnamed.iter().try_for_each(|key| objects::remove(client, &client.location().key(key)));
        Ok(())
    }
}

/// The key of an object, below the prefix. `claim` orders writers, `nonce` keeps keys of two stores apart
/// that count the same, and `number` counts the writer's objects.
fn data_key(claim: u64, nonce: u64, number: u64, name: &str) -> String {
    format!("data/{claim:020}-{nonce:016x}/{number:08}-{name}")
}

/// The file name that an object had when it was begun.
pub(crate) fn name_in_key(key: &str) -> Option<&str> {
    let (_, object) = key.strip_prefix("data/")?.split_once('/')?;
    Some(object.split_once('-')?.1)
}

/// The number of the claim in the key of an object.
pub(crate) fn claim_in_key(key: &str) -> Option<u64> {
    key.strip_prefix("data/")?.split_once('-')?.0.parse().ok()
}

/// The manifest after `newest`, with the same files.
fn next(newest: Manifest, nonce: u128) -> Manifest {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let writer = format!("{} process {}", host.trim(), std::process::id());
    Manifest {
        number: newest.number.saturating_add(1),
        nonce,
        written: SystemClock::new().unix_millis(),
        writer: Manifest::writer_of(&writer),
        files: newest.files,
    }
}

fn random() -> Result<u64> {
    getrandom::u64().map_err(|error| Error::invalid("random number").caused_by(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_their_claim_and_file() {
        let key = data_key(7, 0xab, 3, "log-0-1.unfinished");
        assert_eq!(key, "data/00000000000000000007-00000000000000ab/00000003-log-0-1.unfinished");
        assert_eq!((claim_in_key(&key), name_in_key(&key)), (Some(7), Some("log-0-1.unfinished")));
        assert_eq!((claim_in_key("data/x"), name_in_key("latest")), (None, None));
    }
}

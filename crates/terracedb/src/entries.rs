//! [`Entries`]: every entry of a keyspace, for exports, in no promised order.

use base::{EntryKind, KeyForm, Result};
use bytes::Bytes;
use engine::Expiry;
use tree::reads::{CursorSource, Entry, Iter, KeyEntry, iterate};
use tree::{ResidentEntries, ResidentEntry};

use crate::{Keyspace, Snapshot};

/// The entries of a keyspace at one sequence number, in the order in which they are stored: that of the keys
/// in an ordered keyspace, that of a keyed hash in a hashed one. An error ends the iteration, unless it is
/// that of one key and [`Entries::continue_after_key_errors`] was called.
#[derive(Debug)]
pub struct Entries {
    stored: Stored,
    form: KeyForm,
}

/// The stored keys and values.
#[derive(Debug)]
enum Stored {
    /// In memtables and tables.
    Tree(Box<Iter>),
    /// In the log.
    Log(LogEntries),
}

/// The entries of a resident keyspace.
#[derive(Debug)]
struct LogEntries {
    entries: ResidentEntries,
    /// The time that expiries are compared with, Unix milliseconds.
    now: u64,
    /// An error does not end the iteration.
    continues: bool,
    is_ended: bool,
    /// When the last value expires, Unix milliseconds; 0: never.
    expiry: u64,
}

impl LogEntries {
    /// The value of an entry, unless it has expired.
    fn value(&mut self, entry: &ResidentEntry) -> Result<Option<Bytes>> {
        match entry.kind {
            EntryKind::PutExpiring => {
                let (expiry, value) = base::expiry::split(&entry.value)?;
                self.expiry = expiry;
                Ok((expiry > self.now).then(|| entry.value.slice_ref(value)))
            }
            _ => {
                self.expiry = 0;
                Ok(Some(entry.value.clone()))
            }
        }
    }
}

impl Iterator for LogEntries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        while !self.is_ended {
            let read = self.entries.next()?;
            match read.and_then(|entry| Ok((self.value(&entry)?, entry.key))) {
                Ok((None, _)) => {}
                Ok((Some(value), key)) => return Some(Ok((key, value))),
                Err(error) => {
                    self.is_ended = !self.continues;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Entries {
    fn new(source: CursorSource, form: KeyForm) -> Self {
        Self { stored: Stored::Tree(Box::new(iterate::<&[u8]>(source, ..))), form }
    }

    /// As [`Iter::continue_after_key_errors`].
    #[must_use]
    pub fn continue_after_key_errors(self) -> Self {
        let stored = match self.stored {
            Stored::Tree(stored) => Stored::Tree(Box::new(stored.continue_after_key_errors())),
            Stored::Log(entries) => Stored::Log(LogEntries { continues: true, ..entries }),
        };
        Self { stored, ..self }
    }

    /// As [`Iter::next_key`].
    ///
    /// # Errors
    /// As [`Iter::next_key`].
    pub fn next_key(&mut self) -> Result<Option<KeyEntry>> {
        let stored = match &mut self.stored {
            Stored::Tree(stored) => stored.next_key()?,
            // The key is read with its value.
            Stored::Log(entries) => match entries.next() {
                Some(read) => read.map(|(key, value)| Some((key, Ok(value))))?,
                None => None,
            },
        };
        let Some((key, value)) = stored else { return Ok(None) };
        // The hash is checked on the way, so that an export never invents a key.
        let user = self.form.user(&key)?;
        Ok(Some((key.slice_ref(user), value)))
    }

    /// When the value that was returned last expires.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        Expiry::of(match &self.stored {
            Stored::Tree(stored) => stored.expiry_unix_ms(),
            Stored::Log(entries) => entries.expiry,
        })
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let entry = match &mut self.stored {
            Stored::Tree(stored) => stored.next(),
            Stored::Log(entries) => entries.next(),
        }?;
        Some(entry.and_then(|(key, value)| {
            // The hash is checked on the way, so that an export never invents a key.
            let user = self.form.user(&key)?;
            Ok((key.slice_ref(user), value))
        }))
    }
}

impl std::iter::FusedIterator for Entries {}

impl Keyspace {
    /// Iterates over every key and its value, in the order in which they are stored. It works in keyspaces
    /// of every kind; the iterator reads the state of now. That of a resident keyspace returns each entry
    /// once, as it is now or as it is written while the iterator runs.
    ///
    /// # Errors
    /// `Closed` if the keyspace was dropped; those of [`Keyspace::flush`] in a resident keyspace.
    pub fn entries(&self) -> Result<Entries> {
        let view = self.tree().view_owned();
        if let Some(resident) = view.read_context.resident() {
            // The index has every write that was acknowledged before.
            self.flush()?;
            let (entries, now) =
                (ResidentEntries::new(resident), view.read_context.timekeeper().now());
            let entries = LogEntries { entries, now, continues: false, is_ended: false, expiry: 0 };
            return Ok(Entries { stored: Stored::Log(entries), form: *self.tree().key_form() });
        }
        let at = self.now()?;
        Ok(Entries::new(self.cursor_source(at), *self.tree().key_form()))
    }
}

impl Snapshot {
    /// Iterates over every entry of the keyspace at the snapshot; otherwise as [`Keyspace::entries`].
    ///
    /// # Errors
    /// As [`Keyspace::entries`].
    pub fn entries(&self, keyspace: &Keyspace) -> Result<Entries> {
        keyspace.check_snapshots()?;
        Ok(Entries::new(keyspace.cursor_source(self.at(keyspace)?), *keyspace.tree().key_form()))
    }
}

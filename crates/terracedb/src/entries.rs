//! [`Entries`]: every entry of a keyspace, for exports, in no promised order.

use base::{KeyForm, Result};
use tree::reads::{CursorSource, Entry, Iter, KeyEntry, iterate};

use crate::{Keyspace, Snapshot};

/// The entries of a keyspace at one sequence number, in the order in which they are stored: that of the keys
/// in an ordered keyspace, that of a keyed hash in a hashed one. An error ends the iteration, unless it is
/// that of one key and [`Entries::continue_after_key_errors`] was called.
#[derive(Debug)]
pub struct Entries {
    stored: Iter,
    form: KeyForm,
}

impl Entries {
    fn new(source: CursorSource, form: KeyForm) -> Self {
        Self { stored: iterate::<&[u8]>(source, ..), form }
    }

    /// As [`Iter::continue_after_key_errors`].
    #[must_use]
    pub fn continue_after_key_errors(self) -> Self {
        Self { stored: self.stored.continue_after_key_errors(), ..self }
    }

    /// As [`Iter::next_key`].
    ///
    /// # Errors
    /// As [`Iter::next_key`].
    pub fn next_key(&mut self) -> Result<Option<KeyEntry>> {
        let Some((key, value)) = self.stored.next_key()? else { return Ok(None) };
        // The hash is checked on the way, so that an export never invents a key.
        let user = self.form.user(&key)?;
        Ok(Some((key.slice_ref(user), value)))
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let entry = self.stored.next()?;
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
    /// of every kind; the iterator reads the state of now.
    ///
    /// # Errors
    /// `Closed` if the keyspace was dropped.
    pub fn entries(&self) -> Result<Entries> {
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

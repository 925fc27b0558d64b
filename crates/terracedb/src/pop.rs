//! Pops: take the first or the last entry of an ordered keyspace and delete it, in one transaction.
//!
//! The tombstones of earlier pops cost little: walks note key ranges without values and jump over them
//! ([`tree::DeadSpans`]), and a transaction remembers how far its own pops came.

use std::ops::Bound;

use base::{Error, KeyspaceId, Result};
use tree::reads::Entry;

use crate::transaction::transact;
use crate::{Keyspace, Transaction, WriteOptions};

/// The keys up to which the pops of a transaction left no value, by keyspace.
#[derive(Debug, Default)]
pub(crate) struct Popped(Vec<(KeyspaceId, Ends)>);

#[derive(Debug, Default)]
struct Ends {
    first: Option<Vec<u8>>,
    last: Option<Vec<u8>>,
}

impl Popped {
    fn of(&mut self, keyspace: KeyspaceId) -> Option<&mut Ends> {
        if !self.0.iter().any(|(id, _)| *id == keyspace) {
            self.0.push((keyspace, Ends::default()));
        }
        self.0.iter_mut().find(|(id, _)| *id == keyspace).map(|(_, ends)| ends)
    }

    /// The transaction wrote `key`, and may have given it a value.
    pub(crate) fn written(&mut self, keyspace: KeyspaceId, key: &[u8]) {
        if let Some((_, ends)) = self.0.iter_mut().find(|(id, _)| *id == keyspace) {
            ends.first.take_if(|first| key <= first.as_slice());
            ends.last.take_if(|last| key >= last.as_slice());
        }
    }
}

impl Keyspace {
    /// Takes the entry with the first key and deletes it; `None` if there is no entry. Atomic: each entry is
    /// popped once, and a write to a key up to the popped one makes it begin again.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// let jobs = db.create_keyspace("jobs")?;
    /// jobs.put("1", "wash")?;
    /// jobs.put("2", "dry")?;
    /// let (key, value) = jobs.pop_first()?.unwrap();
    /// assert_eq!((&key[..], &value[..]), (&b"1"[..], &b"wash"[..]));
    /// assert_eq!(&jobs.pop_last()?.unwrap().0[..], b"2");
    /// assert_eq!(jobs.pop_first()?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::iter`] and [`Keyspace::delete`]; `Invalid` if the keyspace is hashed; `Conflict` if
    /// other writes to the first keys made it begin again too often.
    pub fn pop_first(&self) -> Result<Option<Entry>> {
        self.pop_first_opt(&WriteOptions::new())
    }

    /// As [`Keyspace::pop_first`], with options for the delete.
    ///
    /// # Errors
    /// As [`Keyspace::pop_first`].
    pub fn pop_first_opt(&self, options: &WriteOptions) -> Result<Option<Entry>> {
        transact(
            self.store_arc(),
            options,
            |transaction| transaction.pop_first(self),
            Error::is_conflict,
        )
    }

    /// As [`Keyspace::pop_first`], for the last key.
    ///
    /// # Errors
    /// As [`Keyspace::pop_first`].
    pub fn pop_last(&self) -> Result<Option<Entry>> {
        self.pop_last_opt(&WriteOptions::new())
    }

    /// As [`Keyspace::pop_last`], with options for the delete.
    ///
    /// # Errors
    /// As [`Keyspace::pop_first`].
    pub fn pop_last_opt(&self, options: &WriteOptions) -> Result<Option<Entry>> {
        transact(
            self.store_arc(),
            options,
            |transaction| transaction.pop_last(self),
            Error::is_conflict,
        )
    }
}

impl Transaction {
    /// Takes the entry with the first key, as the transaction sees it, and deletes it at commit. Another
    /// write to a key up to that one, before the commit, is a conflict.
    ///
    /// # Errors
    /// As [`Transaction::iter`] and [`Transaction::delete`]; `Invalid` if the keyspace is hashed.
    pub fn pop_first(&mut self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        keyspace.check_ordered("pop")?;
        let id = keyspace.tree().id();
        let after = self.popped.of(id).and_then(|ends| ends.first.clone());
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entry =
            self.range::<Vec<u8>>(keyspace, (start, Bound::Unbounded))?.next().transpose()?;
        self.take(keyspace, entry, |ends, key| ends.first = Some(key))
    }

    /// As [`Transaction::pop_first`], for the last key and the keys from it on.
    ///
    /// # Errors
    /// As [`Transaction::pop_first`].
    pub fn pop_last(&mut self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        keyspace.check_ordered("pop")?;
        let id = keyspace.tree().id();
        let before = self.popped.of(id).and_then(|ends| ends.last.clone());
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let mut range = self.range::<Vec<u8>>(keyspace, (Bound::Unbounded, end))?;
        let entry = range.next_back().transpose()?;
        drop(range);
        self.take(keyspace, entry, |ends, key| ends.last = Some(key))
    }

    fn take(
        &mut self,
        keyspace: &Keyspace,
        entry: Option<Entry>,
        note: impl FnOnce(&mut Ends, Vec<u8>),
    ) -> Result<Option<Entry>> {
        let Some((key, value)) = entry else { return Ok(None) };
        self.delete(keyspace, &key)?;
        if let Some(ends) = self.popped.of(keyspace.tree().id()) {
            note(ends, key.to_vec());
        }
        Ok(Some((key, value)))
    }
}

//! Pops: take the first or the last entry of an ordered keyspace and delete it, in one transaction.
//!
//! The tombstones of earlier pops cost little: walks note key ranges without values and jump over them, over
//! those in the store ([`tree::DeadSpans`]) and over those of a transaction (`engine::TransactionIter`).

use base::{Error, Result};
use tree::reads::Entry;

use crate::transaction::transact;
use crate::{Keyspace, Transaction, WriteOptions};

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
        let first = self.iter(keyspace)?.next().transpose()?;
        self.take(keyspace, first)
    }

    /// As [`Transaction::pop_first`], for the last key and the keys from it on.
    ///
    /// # Errors
    /// As [`Transaction::pop_first`].
    pub fn pop_last(&mut self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        keyspace.check_ordered("pop")?;
        let last = self.iter(keyspace)?.next_back().transpose()?;
        self.take(keyspace, last)
    }

    fn take(&mut self, keyspace: &Keyspace, entry: Option<Entry>) -> Result<Option<Entry>> {
        if let Some((key, _)) = &entry {
            self.delete(keyspace, key)?;
        }
        Ok(entry)
    }
}

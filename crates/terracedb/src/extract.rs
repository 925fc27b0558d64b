//! Deletes at a cursor: walk a range of an ordered keyspace, and delete the entries that a predicate picks.
//!
//! The walk reads a snapshot. A delete commits only if its key was not written since, else the entry is
//! looked at again: so no entry is deleted whose present value the predicate did not see. In a transaction,
//! the walk and the deletes are a part of it, and commit with it.
//!
//! Cost: an entry costs a step of an iterator, a delete that of a transaction with one read and one write;
//! [`Keyspace::retain`] commits up to [`CHUNK_KEYS`] deletes together.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::RangeBounds;
use std::sync::Arc;

use base::{Error, Result, Write};
use bytes::Bytes;
use engine::{ReadSet, TransactionIter, WriteSet};
use tree::reads::{Entry, Iter};

use crate::transaction::transact;
use crate::{Keyspace, Snapshot, Transaction, WriteOptions};

/// Most deletes that one commit of [`Keyspace::retain`] holds, and the bytes of their keys that end it.
const CHUNK_KEYS: usize = 1024;
const CHUNK_BYTES: usize = 256 << 10;

/// An iterator that deletes the entries that its predicate picks, and returns them. Made by
/// [`Keyspace::extract_if`] and [`Keyspace::drain`].
///
/// Each entry is deleted, in a commit of its own, before it is returned. An error ends the iterator; the
/// entries that it returned before stay deleted.
pub struct ExtractIf<F> {
    walk: Walk,
    predicate: F,
    ended: bool,
}

/// As [`ExtractIf`], in a transaction: made by [`Transaction::extract_if`] and [`Transaction::drain`]. The
/// deletes take effect when the transaction commits.
pub struct TransactionExtractIf<'a, F> {
    transaction: &'a mut Transaction,
    keyspace: Keyspace,
    entries: TransactionIter,
    predicate: F,
    ended: bool,
}

/// Predicate of a drain.
type All = fn(&[u8], &[u8]) -> bool;

/// A walk over the entries of a snapshot, to delete some of them.
struct Walk {
    keyspace: Keyspace,
    snapshot: Snapshot,
    entries: Iter,
}

impl Walk {
    fn new<K: AsRef<[u8]>>(keyspace: &Keyspace, bounds: impl RangeBounds<K>) -> Result<Self> {
        keyspace.check_ordered("delete at a cursor")?;
        let snapshot = Snapshot::new(Arc::clone(keyspace.store_arc()));
        let entries = snapshot.range(keyspace, bounds)?;
        Ok(Self { keyspace: keyspace.clone(), snapshot, entries })
    }

    /// Deletes `keys` in one commit.
    ///
    /// # Errors
    /// `Conflict` if one of them was written since the snapshot: nothing is deleted then.
    fn delete(&self, keys: &[Bytes]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let (store, tree) = (self.keyspace.store(), self.keyspace.tree());
        let account = &store.transactions.account;
        let mut reads = ReadSet::new(account, store.resources.value_bytes_max());
        let mut writes = WriteSet::new(account, store.resources.batch_bytes_max());
        for key in keys {
            reads.add_key(tree, key)?;
            writes.write(tree, key, Write::Delete)?;
        }
        let (batch, _charge) = writes.to_batch()?;
        // The set, the batch and the memtable together may exceed the memory limit.
        drop(writes);
        let durability = WriteOptions::new().durability_in(store);
        let (reads, since) = (reads.finish()?, self.snapshot.read_seqno());
        store.transactions.commit(&store.committer, reads, since, &batch, durability).map(drop)
    }

    /// Deletes `key`, whose value changed since the snapshot, if `picks` picks its value of now. Returns the
    /// value that was deleted.
    fn delete_changed(
        &self,
        key: &Bytes,
        picks: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<Bytes>> {
        let again = |transaction: &mut Transaction| {
            let value = transaction.get(&self.keyspace, key)?;
            let picked = value.filter(|value| picks(key, value));
            if picked.is_some() {
                transaction.delete(&self.keyspace, key)?;
            }
            Ok(picked)
        };
        transact(self.keyspace.store_arc(), &WriteOptions::new(), again, Error::is_conflict)
    }

    /// The next entry that `picks` picks, deleted.
    fn next(&mut self, picks: &mut impl FnMut(&[u8], &[u8]) -> bool) -> Result<Option<Entry>> {
        while let Some((key, value)) = self.entries.next().transpose()? {
            if !picks(&key, &value) {
                continue;
            }
            match self.delete(std::slice::from_ref(&key)) {
                Ok(()) => return Ok(Some((key, value))),
                Err(error) if error.is_conflict() => {
                    if let Some(value) = self.delete_changed(&key, picks)? {
                        return Ok(Some((key, value)));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Deletes the next entries that `picks` picks, in one commit if nobody writes to them; returns their
    /// number, and whether entries are left.
    fn next_chunk(&mut self, picks: &mut impl FnMut(&[u8], &[u8]) -> bool) -> Result<(u64, bool)> {
        let (mut keys, mut bytes, mut is_left) = (Vec::new(), 0, true);
        while keys.len() < CHUNK_KEYS && bytes < CHUNK_BYTES {
            let Some((key, value)) = self.entries.next().transpose()? else {
                is_left = false;
                break;
            };
            if picks(&key, &value) {
                bytes += key.len();
                keys.push(key);
            }
        }
        let deleted = match self.delete(&keys) {
            Ok(()) => keys.len() as u64,
            Err(error) if error.is_conflict() => {
                let mut deleted = 0;
                for key in &keys {
                    deleted += u64::from(self.delete_changed(key, picks)?.is_some());
                }
                deleted
            }
            Err(error) => return Err(error),
        };
        Ok((deleted, is_left))
    }
}

impl Keyspace {
    /// Deletes the entries within `bounds` for which `keep` returns false; returns their number. Up to 1024
    /// deletes are committed together; all together are not atomic. It walks the entries of now. An entry
    /// that another write changed meanwhile is shown to `keep` again, with its new value.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// let scores = db.create_keyspace("scores")?;
    /// for (name, score) in [("ada", "90"), ("bob", "20"), ("cy", "70")] {
    ///     scores.put(name, score)?;
    /// }
    /// assert_eq!(scores.retain::<&str>(.., |_, score| score >= b"50".as_slice())?, 1);
    /// assert_eq!(scores.drain(.."b")?.next().unwrap()?.0, "ada");
    /// assert_eq!(scores.iter()?.count(), 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::iter`] and [`Keyspace::delete`]; `Invalid` if the keyspace is hashed; `Conflict` if
    /// other writes changed one entry again and again.
    pub fn retain<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        mut keep: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<u64> {
        let mut walk = Walk::new(self, bounds)?;
        let (mut deleted, mut is_left) = (0, true);
        while is_left {
            let (more, rest) = walk.next_chunk(&mut |key, value| !keep(key, value))?;
            (deleted, is_left) = (deleted + more, rest);
        }
        Ok(deleted)
    }

    /// Takes the entries within `bounds` for which `predicate` returns true, in key order: each is deleted
    /// and returned. It walks the entries of now. An entry that another write changed meanwhile is shown to
    /// `predicate` again, with its new value. Entries behind the last one returned stay.
    ///
    /// # Errors
    /// As [`Keyspace::iter`]; `Invalid` if the keyspace is hashed. Those of the returned iterator are of
    /// [`Keyspace::retain`].
    pub fn extract_if<K: AsRef<[u8]>, F: FnMut(&[u8], &[u8]) -> bool>(
        &self,
        bounds: impl RangeBounds<K>,
        predicate: F,
    ) -> Result<ExtractIf<F>> {
        Ok(ExtractIf { walk: Walk::new(self, bounds)?, predicate, ended: false })
    }

    /// Takes all entries within `bounds`, in key order: each is deleted and returned. Entries behind the
    /// last one returned stay. Entries that nobody wants to see are deleted at less cost by
    /// [`Keyspace::delete_range`].
    ///
    /// # Errors
    /// As [`Keyspace::extract_if`].
    pub fn drain<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<ExtractIf<All>> {
        let all: All = |_, _| true;
        self.extract_if(bounds, all)
    }
}

impl Transaction {
    /// Deletes the entries within `bounds`, as the transaction sees them, for which `keep` returns false;
    /// returns their number. The range counts as read.
    ///
    /// # Errors
    /// As [`Transaction::extract_if`].
    pub fn retain<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
        mut keep: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<u64> {
        let mut deleted = 0;
        for entry in self.extract_if(keyspace, bounds, |key, value| !keep(key, value))? {
            entry?;
            deleted += 1;
        }
        Ok(deleted)
    }

    /// Takes the entries within `bounds`, as the transaction sees them, for which `predicate` returns true,
    /// in key order: each is returned, and deleted when the transaction commits. The part of the range that
    /// was walked counts as read.
    ///
    /// # Errors
    /// As [`Transaction::iter`]; `Invalid` if the keyspace is hashed. Those of the returned iterator are also
    /// of [`Transaction::delete`].
    pub fn extract_if<K: AsRef<[u8]>, F: FnMut(&[u8], &[u8]) -> bool>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
        predicate: F,
    ) -> Result<TransactionExtractIf<'_, F>> {
        keyspace.check_ordered("delete at a cursor")?;
        let (entries, keyspace) = (self.range(keyspace, bounds)?, keyspace.clone());
        Ok(TransactionExtractIf { transaction: self, keyspace, entries, predicate, ended: false })
    }

    /// Takes all entries within `bounds`, as the transaction sees them; as [`Transaction::extract_if`].
    ///
    /// # Errors
    /// As [`Transaction::extract_if`].
    pub fn drain<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<TransactionExtractIf<'_, All>> {
        let all: All = |_, _| true;
        self.extract_if(keyspace, bounds, all)
    }
}

impl<F: FnMut(&[u8], &[u8]) -> bool> Iterator for ExtractIf<F> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.ended {
            return None;
        }
        let next = self.walk.next(&mut self.predicate).transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl<F: FnMut(&[u8], &[u8]) -> bool> FusedIterator for ExtractIf<F> {}

impl<F: FnMut(&[u8], &[u8]) -> bool> Iterator for TransactionExtractIf<'_, F> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.ended {
            return None;
        }
        let predicate = &mut self.predicate;
        let picked = self.entries.find(|entry| match entry {
            Ok((key, value)) => predicate(key, value),
            Err(_) => true,
        });
        let taken = picked.map(|entry| {
            let (key, value) = entry?;
            self.transaction.delete(&self.keyspace, &key)?;
            Ok((key, value))
        });
        self.ended = !matches!(taken, Some(Ok(_)));
        taken
    }
}

impl<F: FnMut(&[u8], &[u8]) -> bool> FusedIterator for TransactionExtractIf<'_, F> {}

impl<F> fmt::Debug for ExtractIf<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtractIf({:?})", self.walk.entries)
    }
}

impl<F> fmt::Debug for TransactionExtractIf<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransactionExtractIf({:?})", self.entries)
    }
}

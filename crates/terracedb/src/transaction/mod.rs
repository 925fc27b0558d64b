//! Optimistic transactions: reads as of one moment, writes kept aside, and at commit a check that
//! nobody wrote to what was read since.
//!
//! A transaction reads at its snapshot's sequence number and remembers what it read ([`ReadSet`]);
//! its writes wait in a [`WriteSet`], which its own reads see. Commit validates the read set
//! and logs the writes in one step of the log, so that what the
//! transaction read is still so at its own sequence number. Hence committed transactions are
//! serializable, in the order of their sequence numbers; one that wrote nothing stands at its
//! snapshot's. No lock is held between the first read and the commit, so there are no deadlocks,
//! and a transaction that is forgotten blocks nobody.

mod retry;

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::{Durability, Key, Result, Seqno};
use bytes::Bytes;
use parking_lot::Mutex;

use engine::{KeySpan, Pending, ReadSet, TransactionIter, WriteSet, successor};
pub(crate) use retry::transact;

use crate::{Keyspace, Snapshot};
use base::{DeleteRange, Write};
use engine::Store;
use engine::unix_millis;
use tree::reads::after_prefix;

/// Reads and writes that happen as if at one moment, or not at all.
///
/// It sees every keyspace as of when it began, and its own writes. What it reads is tracked: where
/// anyone writes to that before [`Transaction::commit`], even an equal value, the commit is
/// refused with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) and nothing is written;
/// [`Db::transact`](crate::Db::transact) then runs it again. A range that was walked is tracked as
/// far as the walk went, keys that were not there included. Two transactions that write the same
/// key without reading it are in no conflict: the later commit wins.
///
/// Dropped without a commit it leaves nothing. While it lives, the versions it may read are kept.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// let accounts = db.keyspace("accounts")?;
/// accounts.put("ada", "100")?;
/// let mut transaction = db.transaction();
/// let balance = transaction.get(&accounts, "ada")?;
/// accounts.put("ada", "90")?; // Someone else was quicker.
/// transaction.put(&accounts, "ada", "80")?;
/// assert!(balance.is_some() && transaction.commit().unwrap_err().is_conflict());
/// # Ok(()) }
/// ```
pub struct Transaction {
    store: Arc<Store>,
    snapshot: Snapshot,
    reads: Arc<Mutex<ReadSet>>,
    /// Shared with the iterators made since the last write.
    writes: Arc<WriteSet>,
}

impl Transaction {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let resources = &store.resources;
        let account = &store.transactions.account;
        let reads = ReadSet::new(account, resources.value_bytes_max());
        let writes = WriteSet::new(account, resources.batch_bytes_max());
        let snapshot = Snapshot::new(Arc::clone(&store));
        Self { store, snapshot, reads: Arc::new(Mutex::new(reads)), writes: Arc::new(writes) }
    }

    /// The sequence number it reads at: it sees every write up to this one, and its own.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.snapshot.seqno()
    }

    /// How many keys it has written, those of range deletes apart.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// True where it has written nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The value of `key`. A write to `key` by anyone else before the commit is a conflict.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Invalid` where the keyspace is another store's, here and below, and
    /// where the transaction has read more than an eighth of the memory number in keys.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.read(keyspace, key.as_ref(), true)
    }

    /// As [`Transaction::get`], but others may write to `key` all the same: for values that the
    /// transaction's outcome does not depend on.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_untracked(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Bytes>> {
        self.read(keyspace, key.as_ref(), false)
    }

    fn read(&self, keyspace: &Keyspace, key: &[u8], tracked: bool) -> Result<Option<Bytes>> {
        let stored = match self.needs_stored(keyspace, key)? {
            false => None,
            true => {
                if tracked {
                    self.reads.lock().add_key(keyspace.tree(), key)?;
                }
                self.snapshot.get(keyspace, key)?
            }
        };
        self.over(keyspace, key, stored)
    }

    /// Whether the value of `key` depends on what the store has.
    fn needs_stored(&self, keyspace: &Keyspace, key: &[u8]) -> Result<bool> {
        keyspace.check_store(&self.store)?;
        Key::new(key)?;
        let own = self.writes.get(keyspace.tree(), key);
        let needs = own.is_none_or(Pending::needs_stored);
        Ok(needs && !self.writes.hides(keyspace.tree(), key))
    }

    /// The value of `key` with the transaction's own writes over what the store has.
    fn over(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        stored: Option<Bytes>,
    ) -> Result<Option<Bytes>> {
        match self.writes.get(keyspace.tree(), key) {
            Some(pending) => pending.value(keyspace.tree(), key, stored),
            None => Ok(stored),
        }
    }

    /// True where `key` has a value; tracked as [`Transaction::get`] is.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains_key(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(keyspace, key).map(|value| value.is_some())
    }

    /// The values of `keys`, in their order, tracked as [`Transaction::get`] is. Device reads are
    /// in flight together.
    ///
    /// # Errors
    /// As [`Transaction::get`]. What fails for one key is that key's result.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Result<Option<Bytes>>>> {
        let mut stored = Vec::new();
        for key in keys {
            let key = key.as_ref();
            if self.needs_stored(keyspace, key)? {
                self.reads.lock().add_key(keyspace.tree(), key)?;
                stored.push(key);
            }
        }
        let mut stored = self.snapshot.multi_get(keyspace, &stored)?.into_iter();
        let read = |key: &K| {
            let key = key.as_ref();
            let stored = match self.needs_stored(keyspace, key)? {
                true => stored.next().unwrap_or(Ok(None))?,
                false => None,
            };
            self.over(keyspace, key, stored)
        };
        Ok(keys.iter().map(read).collect())
    }

    /// Every key and value, in key order. Also backwards: `.rev()`.
    ///
    /// # Errors
    /// As [`Keyspace::iter`] and [`Transaction::get`].
    pub fn iter(&self, keyspace: &Keyspace) -> Result<TransactionIter> {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// The keys within `bounds` and their values, in key order, as the transaction sees them now.
    /// As far as it is walked over, a write by anyone else before the commit is a conflict.
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<TransactionIter> {
        let start = match bounds.start_bound() {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.as_ref().to_vec(),
            Bound::Excluded(key) => successor(key.as_ref()),
        };
        let end = match bounds.end_bound() {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(successor(key.as_ref())),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        };
        self.walk(keyspace, KeySpan { start: &start, end: end.as_deref() })
    }

    /// The keys that begin with `prefix` and their values, in key order; as
    /// [`Transaction::range`].
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<TransactionIter> {
        let end = after_prefix(prefix.as_ref());
        self.walk(keyspace, KeySpan { start: prefix.as_ref(), end: end.as_deref() })
    }

    fn walk(&self, keyspace: &Keyspace, range: KeySpan<'_>) -> Result<TransactionIter> {
        let end = range.end.map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(range.start), end);
        let stored = self.snapshot.range::<&[u8]>(keyspace, bounds)?;
        TransactionIter::new(keyspace.tree(), range, stored, &self.writes, &self.reads)
    }

    /// Sets `key` to `value` at commit; the transaction's own reads see it from now on.
    ///
    /// # Errors
    /// `Invalid` where the key or the value is too long or the transaction would not fit in the
    /// write buffers, `Retry` where memory is short; the transaction stays as it was.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write(keyspace, key.as_ref(), Write::Put(value.as_ref()))
    }

    /// As [`Transaction::put`], with a value that is gone `ttl` from now.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let (expiry, value) = (keyspace.expiry_in(ttl), value.as_ref());
        self.write(keyspace, key.as_ref(), Write::PutExpiring { expiry, value })
    }

    /// As [`Transaction::put`], with a value that is gone from `expiry` on.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put_expiring_at(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: SystemTime,
    ) -> Result<()> {
        let (expiry, value) = (unix_millis(expiry), value.as_ref());
        self.write(keyspace, key.as_ref(), Write::PutExpiring { expiry, value })
    }

    /// Gives the keyspace's merge operator `operand` for `key` at commit. It reads nothing: two
    /// transactions that merge into the same key are in no conflict.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `Invalid` where the keyspace has no merge operator.
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write(keyspace, key.as_ref(), Write::Merge(operand.as_ref()))
    }

    /// Removes `key` at commit; no effect where it has no value then.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, key.as_ref(), Write::Delete)
    }

    /// Removes every key within `bounds` at commit, also those that others put there meanwhile.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<()> {
        keyspace.check_store(&self.store)?;
        match DeleteRange::new(&bounds)? {
            Some(range) => self.add(keyspace, range.start(), range.write()),
            None => Ok(()),
        }
    }

    fn write(&mut self, keyspace: &Keyspace, key: &[u8], write: Write<'_>) -> Result<()> {
        keyspace.check_store(&self.store)?;
        Key::new(key)?;
        keyspace.check_write(write)?;
        self.add(keyspace, key, write)
    }

    fn add(&mut self, keyspace: &Keyspace, key: &[u8], write: Write<'_>) -> Result<()> {
        if Arc::get_mut(&mut self.writes).is_none() {
            self.writes = Arc::new(self.writes.try_clone()?);
        }
        match Arc::get_mut(&mut self.writes) {
            Some(writes) => writes.write(keyspace.tree(), key, write),
            None => Ok(()),
        }
    }

    /// Makes its writes visible at once, with the store's default durability; after a crash all of
    /// them are there or none. One that wrote nothing commits free.
    ///
    /// # Errors
    /// `Conflict` where someone wrote to what it read: run it again, from its first read.
    /// Otherwise as [`Db::write`](crate::Db::write). Nothing was written then.
    pub fn commit(self) -> Result<()> {
        let durability = self.store.settings.load().durability;
        self.commit_with(durability)
    }

    /// As [`Transaction::commit`] with a durability of its own.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        self.commit_at(durability).map(drop)
    }

    /// As [`Transaction::commit_with`]; the sequence number it stands at in the order of
    /// transactions.
    pub(crate) fn commit_at(self, durability: Durability) -> Result<Seqno> {
        if self.is_empty() {
            return Ok(self.snapshot.moment());
        }
        let (batch, _charge) = self.writes.to_batch()?;
        let mut reads = self.reads.lock();
        let reads = reads.finish()?;
        let since = self.snapshot.moment();
        self.store.transactions.commit(&self.store.committer, reads, since, &batch, durability)
    }

    /// Forgets its writes; as dropping it.
    pub fn rollback(self) {}
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction(at {}, {} keys written)", self.seqno(), self.len())
    }
}

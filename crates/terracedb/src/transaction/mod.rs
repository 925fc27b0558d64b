//! [`Transaction`]: optimistic concurrency control with backward validation (Kung and Robinson, 1981).
//!
//! A transaction reads at its snapshot's sequence number and records the keys and ranges that it read in
//! a [`ReadSet`]. Its writes are buffered in a [`WriteSet`], which its own reads see. Commit validates the
//! read set (no later write to it) and logs the writes in one step of the log, so every tracked read still
//! holds at the transaction's own sequence number. Hence committed transactions are serializable in the
//! order of their sequence numbers; a transaction without writes stands at its snapshot's.
//!
//! No lock is held between the first read and the commit: there are no deadlocks, and an abandoned
//! transaction blocks no other.

mod retry;

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use base::{Durability, Result, Seqno, Write};
use bytes::Bytes;
use engine::{KeySpan, Pending, ReadSet, Store, TransactionIter, WriteSet, entry_put, successor};
use parking_lot::Mutex;
use tree::reads::after_prefix;

pub(crate) use retry::transact;

use crate::{EntryOptions, Keyspace, Snapshot, WriteOptions};

/// An optimistic transaction over any keyspaces of a store: serializable, all of it or nothing.
///
/// It reads a snapshot taken when it began, plus its own writes. Its reads are tracked: if another write
/// changes a key that it read before [`Transaction::commit`], even to an equal value, the commit fails
/// with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) and writes nothing.
/// [`Db::transact`](crate::Db::transact) repeats a transaction after a conflict. An iterator tracks the
/// range that it passed, including keys without a value. Two transactions that write the same key without
/// reading it do not conflict: the later commit wins.
///
/// Dropping a transaction without a commit discards its writes. Compaction keeps the versions that it may
/// read until then.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// let accounts = db.create_keyspace("accounts")?;
/// accounts.put("ada", "100")?;
/// let mut transaction = db.transaction();
/// let balance = transaction.get(&accounts, "ada")?;
/// accounts.put("ada", "90")?; // Another write to the key that was read.
/// transaction.put(&accounts, "ada", "80")?;
/// assert!(balance.is_some() && transaction.commit().unwrap_err().is_conflict());
/// # Ok(()) }
/// ```
pub struct Transaction {
    store: Arc<Store>,
    snapshot: Snapshot,
    reads: Arc<Mutex<ReadSet>>,
    /// Shared with iterators of this transaction; copied by the next write while one of them lives.
    writes: Arc<WriteSet>,
}

impl Transaction {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let resources = &store.resources;
        let account = &store.transactions.account;
        let reads = ReadSet::new(account, resources.value_bytes_max());
        let writes = WriteSet::new(account, resources.batch_bytes_max());
        let snapshot = Snapshot::new(Arc::clone(&store));
        let (reads, writes) = (Arc::new(Mutex::new(reads)), Arc::new(writes));
        Self { store, snapshot, reads, writes }
    }

    /// The sequence number that it reads at: it sees every write up to this one, and its own writes.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.snapshot.seqno()
    }

    /// The number of keys that it has written, without range deletes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// True if it has written nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The value of `key`. Another write to `key` before the commit is a conflict. In a window, eviction may
    /// make it absent; an eviction of writes after the transaction's snapshot is a conflict too.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Invalid` if the keyspace belongs to another store (as in every method here),
    /// or if the tracked keys need more than an eighth of the memory limit.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.read(keyspace, key.as_ref(), true)
    }

    /// As [`Transaction::get`], but another write to `key` is no conflict: for values on which the
    /// transaction's outcome does not depend.
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
        keyspace.check_store(&self.store)?;
        let stored_key = keyspace.tree().key_form().stored(key)?;
        let own_key = stored_key.bytes();
        let before = match self.needs_snapshot(keyspace, own_key) {
            false => None,
            true => {
                if tracked {
                    self.reads.lock().add_key(keyspace.tree(), own_key)?;
                }
                self.snapshot.get_in(keyspace, key)?
            }
        };
        self.after_own_writes(keyspace, own_key, before)
    }

    /// True if the value of the stored key `key` depends on the value in the snapshot: no own write replaces
    /// it.
    fn needs_snapshot(&self, keyspace: &Keyspace, key: &[u8]) -> bool {
        let own = self.writes.get(keyspace.tree(), key);
        let needs = own.is_none_or(Pending::needs_stored);
        needs && !self.writes.hides(keyspace.tree(), key)
    }

    /// The value of the stored key `key` after the transaction's own writes, given the value in the snapshot.
    fn after_own_writes(
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

    /// True if `key` has a value; tracked as by [`Transaction::get`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains_key(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(keyspace, key).map(|value| value.is_some())
    }

    /// The values of `keys`, in the order of `keys`, tracked as by [`Transaction::get`]. Device reads are
    /// in flight together.
    ///
    /// # Errors
    /// As [`Transaction::get`]. An error of a single key is that key's result and fails no other.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Result<Option<Bytes>>>> {
        keyspace.check_store(&self.store)?;
        let form = keyspace.tree().key_form();
        let mut needed = Vec::new();
        for key in keys {
            let stored_key = form.stored(key.as_ref())?;
            if self.needs_snapshot(keyspace, stored_key.bytes()) {
                self.reads.lock().add_key(keyspace.tree(), stored_key.bytes())?;
                needed.push(key.as_ref());
            }
        }
        let mut before = self.snapshot.multi_get_in(keyspace, &needed)?.into_iter();
        let read = |key: &K| {
            let stored_key = form.stored(key.as_ref())?;
            let before = match self.needs_snapshot(keyspace, stored_key.bytes()) {
                true => before.next().unwrap_or_else(|| {
                    Err(base::broken_invariant!("a multi-get returns one result per key"))
                })?,
                false => None,
            };
            self.after_own_writes(keyspace, stored_key.bytes(), before)
        };
        Ok(keys.iter().map(read).collect())
    }

    /// Iterates over every key and value in key order; backwards with `.rev()`.
    ///
    /// # Errors
    /// As [`Keyspace::iter`] and [`Transaction::get`].
    pub fn iter(&self, keyspace: &Keyspace) -> Result<TransactionIter> {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// Iterates over the keys within `bounds` and their values, as the transaction sees them now. Another
    /// write to the range that the iterator passed, before the commit, is a conflict.
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

    /// Iterates over the keys that begin with `prefix` and their values; as [`Transaction::range`].
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<TransactionIter> {
        keyspace.check_ordered("prefix read")?;
        let end = after_prefix(prefix.as_ref());
        self.walk(keyspace, KeySpan { start: prefix.as_ref(), end: end.as_deref() })
    }

    fn walk(&self, keyspace: &Keyspace, range: KeySpan<'_>) -> Result<TransactionIter> {
        let end = range.end.map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(range.start), end);
        let stored = self.snapshot.range::<&[u8]>(keyspace, bounds)?;
        self.writes.overlay(keyspace.tree(), range, stored, &self.reads)
    }

    /// Sets `key` to `value` at commit. The transaction's own reads see the value at once.
    ///
    /// # Errors
    /// `Invalid` if the key or value is too long, or the transaction would not fit into the write buffers;
    /// `Retry` if memory is short. The transaction is unchanged then.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write(keyspace, key.as_ref(), Write::Put(value.as_ref()))
    }

    /// As [`Transaction::put`], with options. A ttl counts from this call, not from the commit.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put_opt(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &EntryOptions,
    ) -> Result<()> {
        self.write(keyspace, key.as_ref(), entry_put(options, keyspace.tree(), value.as_ref()))
    }

    /// Adds `operand` to `key` at commit, for the keyspace's merge operator. This reads nothing, so two
    /// transactions that merge into the same key do not conflict.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `Invalid` if the keyspace has no merge operator.
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write(keyspace, key.as_ref(), Write::Merge(operand.as_ref()))
    }

    /// Deletes `key` at commit. A key without a value may be deleted.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, key.as_ref(), Write::Delete)
    }

    /// Deletes every key within `bounds` at commit, including keys that others write before the commit.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<()> {
        keyspace.check_store(&self.store)?;
        match keyspace.delete_bounds(&bounds)? {
            Some(range) => self.add(keyspace, range.start(), range.write()),
            None => Ok(()),
        }
    }

    fn write(&mut self, keyspace: &Keyspace, key: &[u8], write: Write<'_>) -> Result<()> {
        keyspace.check_store(&self.store)?;
        let key = keyspace.tree().key_form().stored(key)?;
        keyspace.check_write(write)?;
        self.add(keyspace, key.bytes(), write)
    }

    fn add(&mut self, keyspace: &Keyspace, key: &[u8], write: Write<'_>) -> Result<()> {
        // An iterator that still reads the write set keeps the old one.
        if Arc::get_mut(&mut self.writes).is_none() {
            self.writes = Arc::new(self.writes.try_clone()?);
        }
        let Some(writes) = Arc::get_mut(&mut self.writes) else {
            return Err(base::broken_invariant!("a fresh copy of the write set has one owner"));
        };
        writes.write(keyspace.tree(), key, write)
    }

    /// Validates the reads and commits the writes with the store's default durability. The writes become
    /// visible together, and a crash leaves all of them or none. Without writes, a commit with
    /// [`Durability::Sync`] syncs every earlier write, and another one does nothing.
    ///
    /// # Errors
    /// `Conflict` if another write changed a tracked key or range: repeat the transaction from its first
    /// read. Otherwise as [`Db::write`](crate::Db::write). Nothing was written then.
    pub fn commit(self) -> Result<()> {
        self.commit_opt(&WriteOptions::new())
    }

    /// As [`Transaction::commit`], with options.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_opt(self, options: &WriteOptions) -> Result<()> {
        let durability = options.durability_in(&self.store);
        self.commit_at(durability).map(drop)
    }

    /// As [`Transaction::commit_opt`]; returns its sequence number in the serial order of transactions.
    pub(crate) fn commit_at(mut self, durability: Durability) -> Result<Seqno> {
        self.store.owner.check()?;
        if self.is_empty() {
            if durability == Durability::Sync {
                self.store.sync()?;
            }
            return Ok(self.snapshot.read_seqno());
        }
        let (batch, _charge) = self.writes.to_batch()?;
        // The set, the batch and the memtable together may exceed the memory limit.
        self.writes = Arc::new(WriteSet::new(&self.store.transactions.account, 0));
        let mut reads = self.reads.lock();
        let reads = reads.finish()?;
        let since = self.snapshot.read_seqno();
        let transactions = &self.store.transactions;
        transactions.commit(&self.store.committer, reads, since, &batch, durability)
    }

    /// Discards the writes, as dropping the transaction does.
    pub fn rollback(self) {}
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction(at {}, {} keys written)", self.seqno(), self.len())
    }
}

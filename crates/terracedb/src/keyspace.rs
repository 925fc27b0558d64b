//! [`Keyspace`], the handle of one keyspace: single writes, reads of the latest state, ingests, compaction.
//!
//! A write is checked against the limits here and handed to the committer of the crate `engine`. A get
//! (`get.rs`) takes the state of its key in the row cache, then a read view of the keyspace's tree, then
//! looks up the row cache, memtables and tables (`tree`). Other reads begin with the read view.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use base::{DeleteRange, Durability, Error, HashedPolicy, KeyRange, Result, Seqno, Write};
use bytes::Bytes;
use engine::{Expiry, Ingest, Store, entry_put};
use tree::compaction::Compaction;
use tree::reads::{
    Cursor, CursorSource, Iter, ReadQueue, iterate, iterate_prefix, reads_from, start_get,
};
use tree::{Tree, View};

use crate::{PutOptions, ReadOptions, WriteOptions};

/// A named set of keys and values within a store (RocksDB: column family).
///
/// A handle is cheap to clone and may be used from any thread. Keys have 1 byte to 64 KiB; they are ordered
/// bytewise, unless the keyspace is hashed ([`KeyspaceOptions::hashed`](crate::KeyspaceOptions::hashed)),
/// where they have 8 bytes less and no order. A value has at most 64 MiB, and at most an eighth of the memory
/// limit.
#[derive(Clone, Debug)]
pub struct Keyspace {
    store: Arc<Store>,
    tree: Arc<Tree>,
}

impl Keyspace {
    pub(crate) fn new(store: Arc<Store>, tree: Arc<Tree>) -> Self {
        Self { store, tree }
    }

    /// Refuses a keyspace of another store: a snapshot's sequence number has no meaning there.
    pub(crate) fn check_store(&self, store: &Arc<Store>) -> Result<()> {
        if !Arc::ptr_eq(&self.store, store) {
            return Err(Error::invalid("keyspace").expected("one of the snapshot's store"));
        }
        Ok(())
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn store_arc(&self) -> &Arc<Store> {
        &self.store
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The name of the keyspace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tree.name()
    }

    /// Which entries a hashed keyspace keeps; `None` for an ordered keyspace.
    #[must_use]
    pub fn hashed_policy(&self) -> Option<&HashedPolicy> {
        self.tree.kind().policy()
    }

    /// Sets `key` to `value` with the store's default durability.
    ///
    /// # Errors
    /// `Invalid` if the key is empty or the key or value is too long; `NoSpace` if the device is full;
    /// `Retry` if a write stall lasts longer than a flush should take; `Poisoned` after a failed write
    /// or sync of the log; `Closed` if the keyspace was dropped.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_opt(key, value, &WriteOptions::new())
    }

    /// As [`Keyspace::put`], with a durability ([`WriteOptions`]), an expiry
    /// ([`EntryOptions`](crate::EntryOptions)) or both ([`PutOptions`]).
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// use std::time::Duration;
    /// use terracedb::{Durability, EntryOptions, WriteOptions};
    /// let sessions = db.create_keyspace("sessions")?;
    /// sessions.put_opt("token", "ada", &EntryOptions::new().ttl(Duration::from_secs(3600)))?;
    /// assert!(sessions.contains_key("token")?);
    /// sessions.put_opt("token", "ada", &EntryOptions::new().ttl(Duration::ZERO))?;
    /// assert!(!sessions.contains_key("token")?);
    /// let durable = WriteOptions::new().durability(Durability::Sync);
    /// sessions.put_opt("token", "ada", &durable.ttl(Duration::from_secs(3600)))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`]; the limit of a value that expires is 8 bytes lower.
    pub fn put_opt(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &(impl Into<PutOptions> + Copy),
    ) -> Result<()> {
        let PutOptions { write, entry } = (*options).into();
        let durability = write.durability_in(&self.store);
        self.write(key.as_ref(), entry_put(&entry, &self.tree, value.as_ref()), durability)
    }

    /// The time at which the value of `key` expires; `None` if `key` has no value.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let value = self.find(key.as_ref(), ReadOptions::new())?;
        Ok(value.map(|value| Expiry::of(value.expiry)))
    }

    fn write(&self, key: &[u8], write: Write<'_>, durability: Durability) -> Result<()> {
        let key = self.tree.key_form().stored(key)?;
        self.check_write(write)?;
        self.store.committer.write(&self.tree, key.bytes(), write, durability)
    }

    /// Refuses a value over the limit or over an eighth of the memory, and an operand if the keyspace has no
    /// merge operator.
    pub(crate) fn check_write(&self, write: Write<'_>) -> Result<()> {
        if let Write::Merge(_) = write {
            self.check_ordered("merge")?;
        }
        self.store.check_write(&self.tree, write)
    }

    /// Adds an operand to `key` without reading its value, for example an increment. The keyspace's
    /// merge operator combines base value and operands when the key is read or compacted.
    /// [`crate::KeyspaceOptions`] has an example.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Invalid` if the keyspace has no merge operator, if the operator is not
    /// registered ([`Builder::merge_operator`](crate::Builder::merge_operator)), or if it refuses the
    /// operand ([`MergeOperator::validate`](crate::operators::MergeOperator::validate)).
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_opt(key, operand, &WriteOptions::new())
    }

    /// As [`Keyspace::merge`], with options.
    ///
    /// # Errors
    /// As [`Keyspace::merge`].
    pub fn merge_opt(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<()> {
        let durability = options.durability_in(&self.store);
        self.write(key.as_ref(), Write::Merge(operand.as_ref()), durability)
    }

    /// Deletes every key within `bounds`, in one operation of constant cost. Bounds that no key can
    /// satisfy have no effect.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// let events = db.create_keyspace("events")?;
    /// for day in ["2024-12-31", "2025-01-01", "2025-01-02"] {
    ///     events.put(day, "sunny")?;
    /// }
    /// events.delete_range(.."2025")?;
    /// assert_eq!(events.iter()?.count(), 2);
    /// events.delete_range::<&str>(..)?;
    /// assert_eq!(events.iter()?.count(), 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Invalid` if a bound is longer than a key may be.
    pub fn delete_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        self.delete_range_opt(bounds, &WriteOptions::new())
    }

    /// As [`Keyspace::delete_range`], with options.
    ///
    /// # Errors
    /// As [`Keyspace::delete_range`].
    pub fn delete_range_opt<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        options: &WriteOptions,
    ) -> Result<()> {
        let Some(range) = self.delete_bounds(&bounds)? else { return self.usable() };
        let durability = options.durability_in(&self.store);
        self.store.committer.write(&self.tree, range.start(), range.write(), durability)
    }

    /// Deletes `key`. A key without a value may be deleted.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_opt(key, &WriteOptions::new())
    }

    /// As [`Keyspace::delete`], with options.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete_opt(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        self.write(key.as_ref(), Write::Delete, options.durability_in(&self.store))
    }

    /// True if `key` has a value. Costs as much as a get.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(key).map(|value| value.is_some())
    }

    /// Starts a get of `key` in `queue`. [`ReadQueue::wait`] or [`ReadQueue::poll`] returns its result,
    /// which carries `token`.
    ///
    /// # Errors
    /// `Invalid` if the key's length is out of bounds or the queue belongs to another store; `Retry` if
    /// the queue is full; `Closed` if the keyspace was dropped.
    pub fn submit(&self, queue: &mut ReadQueue, key: impl AsRef<[u8]>, token: u64) -> Result<()> {
        let stored = self.tree.key_form().stored(key.as_ref())?;
        let key = stored.key();
        self.check_queue(queue)?;
        let probe = self.store.reader.rows.probe(self.tree.rows(), key.bytes());
        let (view, at) = self.now()?;
        start_get(queue, &view, key, probe, at, None, token)
    }

    /// Refuses a read queue of another store.
    pub(crate) fn check_queue(&self, queue: &ReadQueue) -> Result<()> {
        if reads_from(queue, &self.store.reader) {
            return Ok(());
        }
        Err(Error::invalid("read queue").expected("a queue of the keyspace's store"))
    }

    /// Iterates over every key and value in key order; backwards with `.rev()`. The iterator reads the
    /// state of now: later writes do not appear.
    ///
    /// # Errors
    /// `Closed` if the keyspace was dropped; `Invalid` if it is hashed: a hashed keyspace has no key order,
    /// and [`Keyspace::entries`] returns its entries.
    pub fn iter(&self) -> Result<Iter> {
        self.range::<&[u8]>(..)
    }

    /// Iterates over the keys within `bounds` and their values; as [`Keyspace::iter`].
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Iter> {
        self.check_ordered("range read")?;
        let at = self.now()?;
        Ok(iterate(self.cursor_source(at), bounds))
    }

    /// Iterates over the keys that begin with `prefix` and their values; as [`Keyspace::iter`].
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.check_ordered("prefix read")?;
        let at = self.now()?;
        Ok(iterate_prefix(self.cursor_source(at), prefix.as_ref()))
    }

    /// A cursor over the state of now, which must be positioned by a seek before it is read.
    ///
    /// # Errors
    /// As [`Keyspace::iter`]; `Retry` if there is no memory for the cursor's blocks.
    pub fn cursor(&self) -> Result<Cursor> {
        self.check_ordered("cursor")?;
        let at = self.now()?;
        self.cursor_source(at).cursor()
    }

    /// A read view for any number of keys, and the read sequence number.
    pub(crate) fn now(&self) -> Result<(Arc<View>, Seqno)> {
        let (view, at) = self.tree.batch_read_view(|| self.store.ring.visible());
        self.usable()?;
        Ok((Arc::clone(&view), at))
    }

    /// The current view. That of a dropped keyspace is empty, so the drop is checked after taking it.
    fn view(&self) -> Result<Arc<View>> {
        let view = self.tree.view_owned();
        self.usable()?;
        Ok(view)
    }

    /// The current view, to be read at `seqno`, which a live snapshot must hold.
    pub(crate) fn at(&self, seqno: Seqno) -> Result<(Arc<View>, Seqno)> {
        Ok((self.view()?, seqno))
    }

    pub(crate) fn cursor_source(&self, (view, at): (Arc<View>, Seqno)) -> CursorSource {
        let now = view.read_context.timekeeper().now();
        CursorSource { reader: Arc::clone(&self.store.reader.pages), view, at, now }
    }

    /// Begins an ingest: a bulk load of sorted keys straight into tables, past the log and memtables.
    ///
    /// # Errors
    /// `Closed` if the keyspace was dropped; `Invalid` if it is hashed.
    pub fn ingest(&self) -> Result<Ingest> {
        self.check_ordered("ingest")?;
        self.store.ingest(&self.tree)
    }

    /// Flushes the memtables of this keyspace to tables, and returns when they are durable.
    ///
    /// # Errors
    /// The error of the flush: `NoSpace` if the device is full.
    pub fn flush(&self) -> Result<()> {
        self.usable()?;
        self.store.flush(&[Arc::clone(&self.tree)])
    }

    /// Compacts the keys within `bounds` into as few tables as hold them, and waits until that is done.
    /// It frees the space of overwritten and deleted versions, except those that a snapshot reads.
    ///
    /// # Errors
    /// As [`Compaction::wait`].
    pub fn compact_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        self.start_compaction(bounds)?.wait()
    }

    /// Starts the compaction of [`Keyspace::compact_range`] without waiting.
    ///
    /// # Errors
    /// As [`Keyspace::flush`].
    pub fn start_compaction<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
    ) -> Result<Compaction> {
        self.usable()?;
        let range = key_range(&bounds);
        if range != KeyRange::all() {
            self.check_ordered("compaction of a key range")?;
        }
        let requests = self.store.compact(&[Arc::clone(&self.tree)], &range)?;
        Ok(self.store.compactor.handle(requests, Arc::clone(&self.store) as _))
    }

    /// Refuses an operation that needs an order of keys.
    pub(crate) fn check_ordered(&self, operation: &'static str) -> Result<()> {
        match self.tree.kind().policy() {
            None => Ok(()),
            Some(_) => Err(Error::invalid(operation)
                .at(format_args!("`{}`", self.name()))
                .expected("an ordered keyspace; a hashed one has get, multi_get and entries")
                .got(self.tree.kind())),
        }
    }

    /// Refuses a read at a snapshot in a window, whose eviction does not keep what a snapshot reads, and in a
    /// resident keyspace, which has no older versions.
    pub(crate) fn check_snapshots(&self) -> Result<()> {
        if !self.tree.kind().is_window() && !self.tree.kind().is_resident() {
            return Ok(());
        }
        Err(Error::invalid("read at a snapshot")
            .at(format_args!("`{}`", self.name()))
            .expected(
                "a keyspace that keeps older versions; this one has get, multi_get and entries",
            )
            .got(self.tree.kind()))
    }

    /// The range delete of `bounds`; `None` if no key can lie within them. In a hashed keyspace only the
    /// range of all keys can be deleted.
    pub(crate) fn delete_bounds<K: AsRef<[u8]>>(
        &self,
        bounds: &impl RangeBounds<K>,
    ) -> Result<Option<DeleteRange>> {
        let range = DeleteRange::new(bounds)?;
        if range.as_ref().is_some_and(|range| !range.is_everything()) {
            self.check_ordered("delete of a key range")?;
        }
        if self.tree.kind().is_resident() {
            self.check_ordered("delete of every key")?;
        }
        Ok(range)
    }

    /// `Closed` if the keyspace was dropped.
    pub(crate) fn usable(&self) -> Result<()> {
        self.tree.usable()
    }
}

/// The keys within `bounds`.
fn key_range<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> KeyRange {
    // The smallest key greater than `key` is `key` followed by a zero byte.
    let after = |key: &K| Bytes::from([key.as_ref(), &[0]].concat());
    let at = |key: &K| Bytes::copy_from_slice(key.as_ref());
    let first = match bounds.start_bound() {
        Bound::Included(key) => at(key),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Bytes::new(),
    };
    let end = match bounds.end_bound() {
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(at(key)),
        Bound::Unbounded => None,
    };
    KeyRange { first, end }
}

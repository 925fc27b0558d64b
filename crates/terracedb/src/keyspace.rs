//! A keyspace as its users see it.

use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::{Durability, Error, Key, Result, Seqno};
use bytes::Bytes;

use base::KeyRange;
use base::{DeleteRange, Write};
use engine::Ingest;
use engine::Store;
use engine::{Expiry, unix_millis};
use tree::compaction::Compaction;
use tree::reads::Cursor;
use tree::reads::Iter;
use tree::reads::{Lookup, Probe, ReadQueue, Value};
use tree::{Tree, View};

/// A named, ordered set of keys and values within a store. Cheap to clone; safe to share.
///
/// Keys are 1 byte to 64 KiB and ordered by their bytes. Values are up to 64 MiB, and up to an
/// eighth of the memory budget.
#[derive(Clone, Debug)]
pub struct Keyspace {
    store: Arc<Store>,
    tree: Arc<Tree>,
}

impl Keyspace {
    pub(crate) fn new(store: Arc<Store>, tree: Arc<Tree>) -> Self {
        Self { store, tree }
    }

    /// Refuses a keyspace of another store: a snapshot's moment is none of its moments.
    pub(crate) fn check_store(&self, store: &Arc<Store>) -> Result<()> {
        if !Arc::ptr_eq(&self.store, store) {
            return Err(Error::invalid("keyspace").expected("one of the snapshot's store"));
        }
        Ok(())
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The name it was created by.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tree.name()
    }

    /// Sets `key` to `value` with the store's default durability.
    ///
    /// # Errors
    /// `Invalid` where the key or the value is too long, `NoSpace` where the device is full,
    /// `Retry` where memory is short for longer than flushing should take, `Poisoned` after a
    /// failed log write or sync, `Closed` where the keyspace was dropped.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.store.settings.load().durability)
    }

    /// As [`Keyspace::put`] with a durability of its own.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write(key.as_ref(), Write::Put(value.as_ref()), durability)
    }

    /// Sets `key` to `value` until `ttl` from now: from then on, reads of every kind find no value.
    ///
    /// Time is the wall clock's, but never runs back: not within a process, and, up to a minute, not
    /// across a restart.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// use std::time::Duration;
    /// let sessions = db.keyspace("sessions")?;
    /// sessions.put_with_ttl("token", "ada", Duration::from_secs(3600))?;
    /// assert!(sessions.contains_key("token")?);
    /// sessions.put_with_ttl("token", "ada", Duration::ZERO)?;
    /// assert!(!sessions.contains_key("token")?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`]; the value may be 8 bytes shorter.
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let write = Write::PutExpiring { expiry: self.expiry_in(ttl), value: value.as_ref() };
        self.write(key.as_ref(), write, self.store.settings.load().durability)
    }

    /// Sets `key` to `value` until the moment `expiry`, to the millisecond; see
    /// [`Keyspace::put_with_ttl`].
    ///
    /// # Errors
    /// As [`Keyspace::put_with_ttl`].
    pub fn put_expiring_at(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: SystemTime,
    ) -> Result<()> {
        self.put_expiring_at_with(key, value, expiry, self.store.settings.load().durability)
    }

    /// As [`Keyspace::put_expiring_at`] with a durability of its own.
    ///
    /// # Errors
    /// As [`Keyspace::put_with_ttl`].
    pub fn put_expiring_at_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: SystemTime,
        durability: Durability,
    ) -> Result<()> {
        let write = Write::PutExpiring { expiry: unix_millis(expiry), value: value.as_ref() };
        self.write(key.as_ref(), write, durability)
    }

    /// When the value of `key` expires; `None` where it has no value.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let value = self.find(Key::new(key.as_ref())?)?;
        Ok(value.map(|value| Expiry::of(value.expiry)))
    }

    /// The moment `ttl` from now, Unix milliseconds.
    pub(crate) fn expiry_in(&self, ttl: Duration) -> u64 {
        self.tree.view().read_context.timekeeper().expiry_after(ttl)
    }

    fn write(&self, key: &[u8], write: Write<'_>, durability: Durability) -> Result<()> {
        Key::new(key)?;
        self.check_write(write)?;
        self.store.committer.write(&self.tree, key, write, durability)
    }

    /// Refuses a value over the limit or over the memory's part, and operands that no operator merges.
    pub(crate) fn check_write(&self, write: Write<'_>) -> Result<()> {
        self.store.check_write(&self.tree, write)
    }

    /// Gives `key` an operand for the keyspace's merge operator, which makes the value of it and of
    /// what the key had when it is next read: an increment, say, without a read before.
    /// [`crate::KeyspaceOptions`] has an example.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Invalid` where the keyspace has no merge operator, or the process
    /// does not know it.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_with(key, operand, self.store.settings.load().durability)
    }

    /// As [`Keyspace::merge`] with a durability of its own.
    ///
    /// # Errors
    /// As [`Keyspace::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write(key.as_ref(), Write::Merge(operand.as_ref()), durability)
    }

    /// Removes every key within `bounds`, as one operation, whatever the number of keys; no effect
    /// where no key can lie in them.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// let events = db.keyspace("events")?;
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
    /// As [`Keyspace::put`], for a bound.
    pub fn delete_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        self.delete_range_with(bounds, self.store.settings.load().durability)
    }

    /// As [`Keyspace::delete_range`] with a durability of its own.
    ///
    /// # Errors
    /// As [`Keyspace::delete_range`].
    pub fn delete_range_with<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        durability: Durability,
    ) -> Result<()> {
        let Some(range) = DeleteRange::new(&bounds)? else { return self.usable() };
        self.store.committer.write(&self.tree, range.start(), range.write(), durability)
    }

    /// Removes `key`; no effect where it has no value.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, self.store.settings.load().durability)
    }

    /// As [`Keyspace::delete`] with a durability of its own.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write(key.as_ref(), Write::Delete, durability)
    }

    /// The value of `key`, without a copy where it lies in a page in DRAM: the bytes keep what they
    /// point into alive.
    ///
    /// # Errors
    /// `Corrupt` where the page that should hold the key is damaged: other keys still read.
    /// `Closed` where the keyspace was dropped.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        Ok(self.find(Key::new(key.as_ref())?)?.map(|value| value.bytes))
    }

    fn find(&self, key: Key<'_>) -> Result<Option<Value>> {
        let probe = self.store.reader.rows.probe(self.tree.rows(), key.bytes());
        let (view, at) = self.tree.read_view(|| self.store.ring.visible());
        self.usable()?;
        self.lookup(key, probe, view, at)
    }

    pub(crate) fn get_at(&self, key: Key<'_>, at: Seqno) -> Result<Option<Bytes>> {
        let view = self.tree.view();
        self.usable()?;
        let value = self.lookup(key, Probe::without_fill(key.bytes()), view, at)?;
        Ok(value.map(|value| value.bytes))
    }

    fn lookup<V: Deref<Target = Arc<View>>>(
        &self,
        key: Key<'_>,
        probe: Probe,
        view: V,
        at: Seqno,
    ) -> Result<Option<Value>> {
        let reader = &self.store.reader;
        if let Some(value) = reader.row(&view, key.bytes(), probe, at, None) {
            return Ok(Some(value));
        }
        let mut lookup = Lookup::new(key, probe, view, at, None);
        let (value, depth) = reader.pages.run(&mut lookup, None)?;
        reader.pages.counters.lookup_ended(depth, value.is_some());
        if let Some(value) = &value {
            reader.rows.fill(&lookup, value, depth);
        }
        Ok(value)
    }

    /// True where `key` has a value.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(key).map(|value| value.is_some())
    }

    /// Puts a get of `key` in flight in `queue`; the result carries `token`.
    ///
    /// # Errors
    /// `Invalid` where the key is out of bounds or the queue is another store's, `Retry` where
    /// the queue is full, `Closed` where the keyspace was dropped.
    pub fn submit(&self, queue: &mut ReadQueue, key: impl AsRef<[u8]>, token: u64) -> Result<()> {
        let key = Key::new(key.as_ref())?;
        self.check_queue(queue)?;
        let probe = self.store.reader.rows.probe(self.tree.rows(), key.bytes());
        let (view, at) = self.now()?;
        queue.start(&view, key, probe, at, None, token)
    }

    /// Refuses a queue of another store.
    pub(crate) fn check_queue(&self, queue: &ReadQueue) -> Result<()> {
        if queue.reads(&self.store.reader) {
            return Ok(());
        }
        Err(Error::invalid("read queue").expected("a queue of the keyspace's store"))
    }

    /// Every key and value, in key order, as of now. Also backwards: `.rev()`.
    ///
    /// # Errors
    /// `Closed` where the keyspace was dropped.
    pub fn iter(&self) -> Result<Iter> {
        self.range::<&[u8]>(..)
    }

    /// The keys within `bounds` and their values, in key order, as of now.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Iter> {
        let at = self.now()?;
        Ok(Iter::new(self.cursor_source(at), bounds))
    }

    /// The keys that begin with `prefix` and their values, in key order, as of now.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        let at = self.now()?;
        Ok(Iter::prefix(self.cursor_source(at), prefix.as_ref()))
    }

    /// A cursor over the keyspace as of now, standing nowhere yet.
    ///
    /// # Errors
    /// As [`Keyspace::iter`]; `Retry` where there is no memory for its blocks.
    pub fn cursor(&self) -> Result<Cursor> {
        let at = self.now()?;
        self.cursor_source(at).cursor()
    }

    /// The view to read any number of keys in, with the moment to read it at.
    pub(crate) fn now(&self) -> Result<(Arc<View>, Seqno)> {
        let (view, at) = self.tree.batch_read_view(|| self.store.ring.visible());
        self.usable()?;
        Ok((Arc::clone(&view), at))
    }

    /// The view in force. A dropped keyspace's is empty, so the drop is looked for afterwards.
    fn view(&self) -> Result<Arc<View>> {
        let view = self.tree.view_owned();
        self.usable()?;
        Ok(view)
    }

    pub(crate) fn at(&self, seqno: Seqno) -> Result<(Arc<View>, Seqno)> {
        Ok((self.view()?, seqno))
    }

    pub(crate) fn cursor_source(
        &self,
        (view, at): (Arc<View>, Seqno),
    ) -> tree::reads::CursorSource {
        let now = view.read_context.timekeeper().now();
        tree::reads::CursorSource { reader: Arc::clone(&self.store.reader.pages), view, at, now }
    }

    /// Starts adding sorted keys in bulk.
    ///
    /// # Errors
    /// `Closed` where the keyspace was dropped.
    pub fn ingest(&self) -> Result<Ingest> {
        Ingest::new(&self.store, &self.tree)
    }

    /// Writes every memtable of this keyspace to tables and waits for it.
    ///
    /// # Errors
    /// The flush's: `NoSpace` where the device is full.
    pub fn flush(&self) -> Result<()> {
        self.usable()?;
        self.store.flush(&[Arc::clone(&self.tree)])
    }

    /// Merges the keys within `bounds` into as few tables as hold them, and waits for it. Space of
    /// what was overwritten or deleted there is given back, as far as no snapshot reads it.
    ///
    /// # Errors
    /// As [`Compaction::wait`].
    pub fn compact_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        self.start_compaction(bounds)?.wait()
    }

    /// Starts what [`Keyspace::compact_range`] does.
    ///
    /// # Errors
    /// As [`Keyspace::flush`].
    pub fn start_compaction<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
    ) -> Result<Compaction> {
        self.usable()?;
        let requests = self.store.compact(&[Arc::clone(&self.tree)], &key_range(&bounds))?;
        Ok(Compaction::new(
            Arc::clone(&self.store.compactor),
            requests,
            Arc::clone(&self.store) as _,
        ))
    }

    pub(crate) fn usable(&self) -> Result<()> {
        self.tree.usable()
    }
}

/// The keys within `bounds`.
fn key_range<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> KeyRange {
    // The least key after another has a zero behind it.
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

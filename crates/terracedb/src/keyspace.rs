//! A keyspace as its users see it.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use base::{Durability, Error, Key, Result, Seqno};
use bytes::Bytes;

use crate::batch::value_too_long;
use crate::compaction::Compaction;
use crate::cursor::Cursor;
use crate::iter::Iter;
use crate::manifest::KeyRange;
use crate::ordered::Tree;
use crate::read::{Completed, Lookup, ReadQueue};
use crate::store::Store;

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
        self.put_with(key, value, self.store.settings.durability)
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
        let (key, value) = (Key::new(key.as_ref())?, value.as_ref());
        self.check_value(value)?;
        self.store.committer.write(&self.tree, key, Some(value), durability)
    }

    /// Refuses a value over the limit or over the memory's part.
    pub(crate) fn check_value(&self, value: &[u8]) -> Result<()> {
        let max = self.store.resources.value_bytes_max();
        if value.len() as u64 > max {
            return Err(value_too_long(value.len(), max));
        }
        Ok(())
    }

    /// Removes `key`; no effect where it has no value.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, self.store.settings.durability)
    }

    /// As [`Keyspace::delete`] with a durability of its own.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.store.committer.write(&self.tree, Key::new(key.as_ref())?, None, durability)
    }

    /// The value of `key`, without a copy where it lies in a page: the bytes keep what they point
    /// into alive.
    ///
    /// # Errors
    /// `Corrupt` where the page that should hold the key is damaged: other keys still read.
    /// `Closed` where the keyspace was dropped.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let key = Key::new(key.as_ref())?;
        // The view first: everything at or below a number read later is in it or newer than it.
        let view = self.tree.view();
        self.usable()?;
        let at = self.store.ring.visible();
        self.lookup(Lookup::new(key, view, at))
    }

    pub(crate) fn get_at(&self, key: Key<'_>, at: Seqno) -> Result<Option<Bytes>> {
        let view = self.tree.view();
        self.usable()?;
        self.lookup(Lookup::new(key, view, at))
    }

    fn lookup<K: AsRef<[u8]> + Clone, V: std::ops::Deref<Target = Arc<crate::ordered::View>>>(
        &self,
        mut lookup: Lookup<K, V>,
    ) -> Result<Option<Bytes>> {
        let reader = &self.store.reader;
        let (value, depth) = reader.run(&mut lookup, None)?;
        reader.counters.lookup_ended(depth);
        Ok(value)
    }

    /// True where `key` has a value.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(key).map(|value| value.is_some())
    }

    /// The values of `keys`, in their order, all as of one moment. Device reads are in flight
    /// together.
    ///
    /// # Errors
    /// `Invalid` where a key is out of bounds. What fails for one key is that key's result.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Result<Option<Bytes>>>> {
        let (view, at) = self.now()?;
        self.multi_get_at(keys, view, at)
    }

    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        view: Arc<crate::ordered::View>,
        at: Seqno,
    ) -> Result<Vec<Result<Option<Bytes>>>> {
        for key in keys {
            Key::new(key.as_ref())?;
        }
        let mut results: Vec<Result<Option<Bytes>>> = keys.iter().map(|_| Ok(None)).collect();
        let mut done = Vec::new();
        let mut place = |done: &mut Vec<Completed>| {
            for Completed { token, result } in done.drain(..) {
                if let Some(slot) = results.get_mut(token as usize) {
                    *slot = result;
                }
            }
        };
        self.store.queues.with(&self.store.reader, &*self.store.medium, |queue| {
            for (token, key) in (0u64..).zip(keys) {
                while queue.room() == 0 {
                    queue.wait(1, &mut done)?;
                    place(&mut done);
                }
                queue.start(Arc::clone(&view), Key::new(key.as_ref())?, at, token)?;
            }
            while queue.in_flight() > 0 {
                queue.wait(1, &mut done)?;
            }
            queue.poll(&mut done)?;
            place(&mut done);
            Ok(())
        })?;
        Ok(results)
    }

    /// Puts a get of `key` in flight in `queue`; the result carries `token`.
    ///
    /// # Errors
    /// `Invalid` where the key is out of bounds or the queue is another store's, `Retry` where
    /// the queue is full, `Closed` where the keyspace was dropped.
    pub fn submit(&self, queue: &mut ReadQueue, key: impl AsRef<[u8]>, token: u64) -> Result<()> {
        let key = Key::new(key.as_ref())?;
        if !queue.reads(&self.store.reader) {
            return Err(Error::invalid("read queue").expected("a queue of the keyspace's store"));
        }
        let (view, at) = self.now()?;
        queue.start(view, key, at, token)
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

    /// The view to read, with the moment to read it at.
    fn now(&self) -> Result<(Arc<crate::ordered::View>, Seqno)> {
        let view = self.view()?;
        Ok((view, self.store.ring.visible()))
    }

    /// The view in force. A dropped keyspace's is empty, so the drop is looked for afterwards.
    fn view(&self) -> Result<Arc<crate::ordered::View>> {
        let view = self.tree.view_owned();
        self.usable()?;
        Ok(view)
    }

    pub(crate) fn at(&self, seqno: Seqno) -> Result<(Arc<crate::ordered::View>, Seqno)> {
        Ok((self.view()?, seqno))
    }

    pub(crate) fn cursor_source(
        &self,
        (view, at): (Arc<crate::ordered::View>, Seqno),
    ) -> crate::cursor::CursorSource {
        crate::cursor::CursorSource { reader: Arc::clone(&self.store.reader), view, at }
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
        Ok(Compaction::new(Arc::clone(&self.store), requests))
    }

    fn usable(&self) -> Result<()> {
        if self.tree.is_dropped() {
            return Err(Error::closed("keyspace").at(format_args!("`{}`", self.tree.name())));
        }
        Ok(())
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

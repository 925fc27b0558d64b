//! [`Snapshot`]: reads of every keyspace at one sequence number.

use std::ops::RangeBounds;
use std::sync::Arc;

use base::{Result, Seqno};
use bytes::Bytes;
use engine::Store;
use tree::View;
use tree::reads::{Cursor, Iter, iterate, iterate_prefix};

use crate::Keyspace;

/// A consistent view of the whole store: reads see every write up to one sequence number and no later one.
///
/// Compaction keeps the versions that a snapshot reads until the snapshot is dropped, so a long-lived
/// snapshot costs space. Snapshot reads do not fill the row cache.
#[derive(Debug)]
pub struct Snapshot {
    store: Arc<Store>,
    seqno: Seqno,
}

impl Snapshot {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let seqno = match store.owner.is_here() {
            true => store.snapshots.acquire(&store.ring),
            // Reads in a forked child fail, so there is nothing to keep for them.
            false => store.ring.visible(),
        };
        base::invariant!(seqno <= store.ring.visible(), "a snapshot reads only visible writes");
        Self { store, seqno }
    }

    /// The sequence number that the snapshot reads at: it sees every write up to and including this one.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.seqno.get()
    }

    /// As [`Snapshot::seqno`], typed.
    pub(crate) fn read_seqno(&self) -> Seqno {
        self.seqno
    }

    /// The value of `key` at the snapshot; otherwise as [`Keyspace::get`].
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Invalid` if the keyspace belongs to another store, is a window or
    /// resident, as in every method here.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        keyspace.check_snapshots()?;
        self.get_in(keyspace, key.as_ref())
    }

    /// As [`Snapshot::get`], also in a window, for transactions: eviction may make the value absent.
    pub(crate) fn get_in(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        keyspace.check_store(&self.store)?;
        keyspace.get_at(key, self.seqno)
    }

    /// The values of `keys` at the snapshot; otherwise as [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// As [`Keyspace::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Result<Option<Bytes>>>> {
        keyspace.check_snapshots()?;
        self.multi_get_in(keyspace, keys)
    }

    /// As [`Snapshot::get_in`], for many keys.
    pub(crate) fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Result<Option<Bytes>>>> {
        let (view, at) = self.at(keyspace)?;
        let mut found = keyspace.multi_get_at(keys, view, at)?;
        for (key, found) in keys.iter().zip(&mut found) {
            let stored = keyspace.tree().key_form().stored(key.as_ref())?;
            if let Err(error) = keyspace.check_read_at(stored.bytes(), at) {
                *found = Err(error);
            }
        }
        Ok(found)
    }

    /// Iterates over the keyspace at the snapshot; otherwise as [`Keyspace::iter`].
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Iter> {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// Iterates over the keys within `bounds` at the snapshot; otherwise as [`Keyspace::range`].
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<Iter> {
        keyspace.check_ordered("range read")?;
        Ok(iterate(keyspace.cursor_source(self.at(keyspace)?), bounds))
    }

    /// Iterates over the keys that begin with `prefix` at the snapshot; otherwise as [`Keyspace::prefix`].
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        keyspace.check_ordered("prefix read")?;
        Ok(iterate_prefix(keyspace.cursor_source(self.at(keyspace)?), prefix.as_ref()))
    }

    /// A cursor over the keyspace at the snapshot; otherwise as [`Keyspace::cursor`].
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn cursor(&self, keyspace: &Keyspace) -> Result<Cursor> {
        keyspace.check_ordered("cursor")?;
        keyspace.cursor_source(self.at(keyspace)?).cursor()
    }

    /// The keyspace's current view and the snapshot's sequence number to read it at.
    pub(crate) fn at(&self, keyspace: &Keyspace) -> Result<(Arc<View>, Seqno)> {
        keyspace.check_store(&self.store)?;
        keyspace.at(self.seqno)
    }
}

impl Clone for Snapshot {
    /// A second handle at the same sequence number. The versions that it reads are kept until the last
    /// handle is dropped.
    fn clone(&self) -> Self {
        self.store.snapshots.share(self.seqno);
        Self { store: Arc::clone(&self.store), seqno: self.seqno }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if self.store.owner.is_here() {
            self.store.snapshots.release(self.seqno);
        }
    }
}

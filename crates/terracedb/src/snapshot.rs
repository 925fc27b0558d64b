//! A snapshot: the whole store as of one moment.

use std::ops::RangeBounds;
use std::sync::Arc;

use base::{Key, Result, Seqno};
use bytes::Bytes;

use crate::Keyspace;
use engine::Store;
use tree::View;
use tree::reads::Cursor;
use tree::reads::Iter;

/// Reads every keyspace as of the moment it was taken, whatever is written since. The versions it
/// needs are kept until it is dropped.
#[derive(Debug)]
pub struct Snapshot {
    store: Arc<Store>,
    seqno: Seqno,
}

impl Snapshot {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let seqno = store.snapshots.acquire(&store.ring);
        Self { store, seqno }
    }

    /// The sequence number it reads at: it sees every write up to this one.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.seqno.get()
    }

    /// The sequence number it reads at.
    pub(crate) fn moment(&self) -> Seqno {
        self.seqno
    }

    /// As [`Keyspace::get`], as of the snapshot.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Invalid` where the keyspace is another store's, here and below.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        keyspace.check_store(&self.store)?;
        keyspace.get_at(Key::new(key.as_ref())?, self.seqno)
    }

    /// As [`Keyspace::multi_get`], as of the snapshot.
    ///
    /// # Errors
    /// As [`Keyspace::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Result<Option<Bytes>>>> {
        let (view, at) = self.at(keyspace)?;
        keyspace.multi_get_at(keys, view, at)
    }

    /// As [`Keyspace::iter`], as of the snapshot.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Iter> {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// As [`Keyspace::range`], as of the snapshot.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<Iter> {
        Ok(Iter::new(keyspace.cursor_source(self.at(keyspace)?), bounds))
    }

    /// As [`Keyspace::prefix`], as of the snapshot.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Ok(Iter::prefix(keyspace.cursor_source(self.at(keyspace)?), prefix.as_ref()))
    }

    /// As [`Keyspace::cursor`], as of the snapshot.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn cursor(&self, keyspace: &Keyspace) -> Result<Cursor> {
        keyspace.cursor_source(self.at(keyspace)?).cursor()
    }

    /// The keyspace's view, with the snapshot's moment.
    fn at(&self, keyspace: &Keyspace) -> Result<(Arc<View>, Seqno)> {
        keyspace.check_store(&self.store)?;
        keyspace.at(self.seqno)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.store.snapshots.release(self.seqno);
    }
}

//! Gets: reads of one key.

use std::ops::Deref;
use std::sync::Arc;

use base::{Error, Key, Result, Seqno};
use bytes::Bytes;
use read::Depth;
use tree::View;
use tree::reads::{Lookup, Probe, Value};

use crate::polling::TryGet;
use crate::{Keyspace, ReadOptions};

impl Keyspace {
    /// The value of `key`; `None` if it has none. A value in a DRAM page is not copied: the returned
    /// bytes keep the page's memory in use until they are dropped.
    ///
    /// # Errors
    /// `Corrupt` if the page that should hold the key is damaged; keys of other pages still read.
    /// `Closed` if the keyspace was dropped.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.get_opt(key, &ReadOptions::new())
    }

    /// As [`Keyspace::get`], with options.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_opt(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Bytes>> {
        Ok(self.find(key.as_ref(), *options)?.map(|value| value.bytes))
    }

    /// As [`Keyspace::get`] without waiting, for programs that must not block a thread: an event loop, an
    /// async runtime. Returns [`TryGet::Done`] if data in memory decides the key, or [`TryGet::Wait`]: get it
    /// on a thread that may wait, or through a [`ReadQueue`](crate::ReadQueue).
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn try_get(&self, key: impl AsRef<[u8]>) -> Result<TryGet> {
        let stored = self.tree().key_form().stored(key.as_ref())?;
        let key = stored.key();
        let reader = &self.store().reader;
        let probe = reader.rows.probe(self.tree().rows(), key.bytes());
        let (view, at) = self.tree().read_view(|| self.store().ring.visible());
        self.usable()?;
        if let Some(value) = reader.row(&view, key.bytes(), probe, at, None) {
            return Ok(TryGet::Done(Some(value.bytes)));
        }
        let mut lookup = Lookup::new(key, probe, view, at, None);
        let Some((value, depth)) = reader.pages.run_in_memory(&mut lookup)? else {
            return Ok(TryGet::Wait);
        };
        Ok(TryGet::Done(self.found(&lookup, value, depth).map(|value| value.bytes)))
    }

    pub(crate) fn find(&self, key: &[u8], options: ReadOptions) -> Result<Option<Value>> {
        let stored = self.tree().key_form().stored(key)?;
        let key = stored.key();
        let probe = match options.fill_row_cache {
            true => self.store().reader.rows.probe(self.tree().rows(), key.bytes()),
            false => Probe::without_fill(key.bytes()),
        };
        let (view, at) = self.tree().read_view(|| self.store().ring.visible());
        self.usable()?;
        self.lookup(key, probe, view, at)
    }

    pub(crate) fn get_at(&self, key: &[u8], at: Seqno) -> Result<Option<Bytes>> {
        let stored = self.tree().key_form().stored(key)?;
        let key = stored.key();
        let view = self.tree().view();
        self.usable()?;
        let value = self.lookup(key, Probe::without_fill(key.bytes()), view, at)?;
        self.check_read_at(key.bytes(), at)?;
        Ok(value.map(|value| value.bytes))
    }

    /// Refuses a read at `at` of a key of a resident keyspace that was written after `at`: the log has the
    /// newest version only.
    pub(crate) fn check_read_at(&self, key: &[u8], at: Seqno) -> Result<()> {
        // After the read: the view has what was in the index when the key was read, or the index has it.
        let view = self.tree().view();
        let Some(resident) = view.read_context.resident() else { return Ok(()) };
        if resident.indexed_up_to() <= at {
            return Ok(());
        }
        match resident.newest(key)?.filter(|newest| *newest > at) {
            None => Ok(()),
            Some(newest) => Err(Error::conflict("transaction")
                .at(format_args!("a key in the resident keyspace `{}`", self.name()))
                .expected(format_args!("no write after sequence number {at}"))
                .got(newest)),
        }
    }

    fn lookup<V: Deref<Target = Arc<View>>>(
        &self,
        key: Key<'_>,
        probe: Probe,
        view: V,
        at: Seqno,
    ) -> Result<Option<Value>> {
        let reader = &self.store().reader;
        if let Some(value) = reader.row(&view, key.bytes(), probe, at, None) {
            return Ok(Some(value));
        }
        let mut lookup = Lookup::new(key, probe, view, at, None);
        let (value, depth) = reader.pages.run(&mut lookup, None)?;
        Ok(self.found(&lookup, value, depth))
    }

    /// Counts a lookup that ended, and caches the row that it found.
    fn found<V: Deref<Target = Arc<View>>>(
        &self,
        lookup: &Lookup<Key<'_>, V>,
        value: Option<Value>,
        depth: Depth,
    ) -> Option<Value> {
        let reader = &self.store().reader;
        reader.pages.counters.lookup_ended(depth, value.is_some());
        lookup.count(value.is_some());
        if let Some(value) = &value {
            reader.rows.fill(lookup, value, depth);
        }
        value
    }
}

//! The end of a load: entries go into a keyspace, by ingest or in batches.

use terracedb::{Db, EntryOptions, Ingest, Keyspace, Result, WriteBatch};

/// A batch is written once it has this many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// The number and size of what was added.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Added {
    pub(super) entries: u64,
    /// Tables that an ingest wrote, and their length in bytes.
    pub(super) tables: usize,
    pub(super) file_bytes: u64,
}

/// Adds entries to a keyspace.
pub(super) enum Sink {
    /// Into an ordered keyspace: all become visible together at the end, or none.
    Ingest(Box<Ingest>),
    /// Into a hashed keyspace, which takes no ingest.
    Batches { db: Db, keyspace: Keyspace, batch: WriteBatch, entries: u64 },
}

impl Sink {
    /// # Errors
    /// As [`Keyspace::ingest`].
    pub(super) fn new(db: &Db, keyspace: &Keyspace) -> Result<Self> {
        if keyspace.hashed_policy().is_none() {
            return Ok(Self::Ingest(Box::new(keyspace.ingest()?)));
        }
        let (db, keyspace, batch) = (db.clone(), keyspace.clone(), WriteBatch::new());
        Ok(Self::Batches { db, keyspace, batch, entries: 0 })
    }

    /// Adds an entry. Into an ordered keyspace keys ascend.
    ///
    /// # Errors
    /// As [`Ingest::put_opt`] and [`WriteBatch::put_opt`]. After `Invalid` the sink can go on without the
    /// entry.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8], options: &EntryOptions) -> Result<()> {
        match self {
            Self::Ingest(ingest) => ingest.put_opt(key, value, options),
            Self::Batches { keyspace, batch, entries, .. } => {
                batch.put_opt(keyspace, key, value, options)?;
                *entries += 1;
                Ok(())
            }
        }
    }

    /// Writes the entries that wait, if they are many.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub(super) fn write_if_full(&mut self) -> Result<()> {
        match self {
            Self::Batches { db, batch, .. } if batch.bytes() >= BATCH_BYTES => {
                db.write(batch)?;
                batch.clear();
                Ok(())
            }
            Self::Batches { .. } | Self::Ingest(_) => Ok(()),
        }
    }

    /// Adds the rest, and makes it visible.
    ///
    /// # Errors
    /// As [`Ingest::finish`] and [`Db::write`].
    pub(super) fn finish(self) -> Result<Added> {
        match self {
            Self::Ingest(ingest) => {
                let added = ingest.finish()?;
                let (entries, tables, file_bytes) = (added.entries, added.tables, added.file_bytes);
                Ok(Added { entries, tables, file_bytes })
            }
            Self::Batches { db, batch, entries, .. } => {
                db.write(&batch)?;
                Ok(Added { entries, ..Added::default() })
            }
        }
    }
}

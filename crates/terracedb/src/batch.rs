//! [`WriteBatch`]: operations over any keyspaces that become visible together or not at all.
//!
//! Each operation is encoded when it is added, in the format of the log (docs/format/batch.md). The batch
//! also sums up the memory that each memtable will need, so a commit only copies bytes. Operation *i* gets
//! the batch's first sequence number plus *i*.

use std::ops::RangeBounds;

use base::{Result, Write};
use engine::{EncodedBatch, entry_put};

use crate::{EntryOptions, Keyspace};

/// Writes that commit atomically, to one or several keyspaces of one store. [`Db::write`](crate::Db::write)
/// commits them.
///
/// [`WriteBatch::clear`] empties a batch and keeps its memory, so refilling it does not allocate.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch(EncodedBatch);

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value` in `keyspace`.
    ///
    /// # Errors
    /// `Invalid` if the key does not have 1 byte to 64 KiB, the value is over the limits of
    /// [`Keyspace`], or the batch would exceed 128 MiB or 2^20 operations. The batch is unchanged then.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add(keyspace, key.as_ref(), Write::Put(value.as_ref()))
    }

    /// As [`WriteBatch::put`], with options. A ttl counts from this call, not from the commit.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; the limit of a value that expires is 8 bytes lower.
    pub fn put_opt(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &EntryOptions,
    ) -> Result<()> {
        self.add(keyspace, key.as_ref(), entry_put(options, keyspace.tree(), value.as_ref()))
    }

    /// Adds an operand to `key` in `keyspace`. As [`Keyspace::merge`].
    ///
    /// # Errors
    /// As [`WriteBatch::put`] and [`Keyspace::merge`].
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add(keyspace, key.as_ref(), Write::Merge(operand.as_ref()))
    }

    /// Deletes `key` from `keyspace`. A key without a value may be deleted.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(keyspace, key.as_ref(), Write::Delete)
    }

    /// Deletes every key of `keyspace` within `bounds`, in one operation. As [`Keyspace::delete_range`].
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; `Invalid` if a bound is longer than a key may be.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<()> {
        let Some(range) = keyspace.delete_bounds(&bounds)? else { return Ok(()) };
        self.0.push(keyspace.tree(), range.start(), range.write())
    }

    fn add(&mut self, keyspace: &Keyspace, key: &[u8], write: Write<'_>) -> Result<()> {
        let key = keyspace.tree().key_form().stored(key)?;
        keyspace.check_write(write)?;
        self.0.push(keyspace.tree(), key.bytes(), write)
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.ops() as usize
    }

    /// True if the batch has no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The size of the encoded operations, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.body().len()
    }

    /// Removes every operation, and keeps the memory for reuse.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) const fn encoded(&self) -> &EncodedBatch {
        &self.0
    }
}

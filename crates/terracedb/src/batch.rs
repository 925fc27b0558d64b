//! A write batch: operations over any keyspaces that become visible together or not at all.
//!
//! A batch is encoded as it is built, in the form the log stores (docs/format/batch.md), and counts
//! what its keyspaces' memtables will need, so that commit copies bytes and nothing else. Operation
//! *i* takes the batch's first sequence number plus *i*.

use std::ops::RangeBounds;
use std::time::{Duration, SystemTime};

use base::{DeleteRange, Key, Result, Write};

use crate::Keyspace;
use engine::EncodedBatch;
use engine::unix_millis;

/// Writes that commit atomically, over one or several keyspaces of one store.
///
/// Cleared by [`WriteBatch::clear`], it can be filled again without allocating.
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
    /// `Invalid` where the key is not 1 byte to 64 KiB, the value is over 64 MiB, or the batch
    /// would pass 128 MiB or 2^20 operations; the batch stays as it was.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add(keyspace, key.as_ref(), Write::Put(value.as_ref()))
    }

    /// Sets `key` to `value` in `keyspace` until `ttl` from now: from when the batch is filled,
    /// not from when it is written. As [`Keyspace::put_with_ttl`].
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; the value may be 8 bytes shorter.
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let expiry = keyspace.expiry_in(ttl);
        self.add(keyspace, key.as_ref(), Write::PutExpiring { expiry, value: value.as_ref() })
    }

    /// Sets `key` to `value` in `keyspace` until the moment `expiry`. As
    /// [`Keyspace::put_expiring_at`].
    ///
    /// # Errors
    /// As [`WriteBatch::put_with_ttl`].
    pub fn put_expiring_at(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: SystemTime,
    ) -> Result<()> {
        let expiry = unix_millis(expiry);
        self.add(keyspace, key.as_ref(), Write::PutExpiring { expiry, value: value.as_ref() })
    }

    /// Gives `key` in `keyspace` an operand for its merge operator. As [`Keyspace::merge`].
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

    /// Removes `key` from `keyspace`; no effect where it has no value.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(keyspace, key.as_ref(), Write::Delete)
    }

    /// Removes every key of `keyspace` that lies within `bounds`. As [`Keyspace::delete_range`]:
    /// one operation, whatever the number of keys.
    ///
    /// # Errors
    /// As [`WriteBatch::put`], for a bound.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<()> {
        let Some(range) = DeleteRange::new(&bounds)? else { return Ok(()) };
        self.0.push(keyspace.tree(), range.start(), range.write())
    }

    fn add(&mut self, keyspace: &Keyspace, key: &[u8], write: Write<'_>) -> Result<()> {
        Key::new(key)?;
        keyspace.check_write(write)?;
        self.0.push(keyspace.tree(), key, write)
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.ops() as usize
    }

    /// True where there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The encoded size, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.body().len()
    }

    /// Removes every operation, keeping the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) const fn encoded(&self) -> &EncodedBatch {
        &self.0
    }
}

//! A write batch: operations over any keyspaces that become visible together or not at all.
//!
//! A batch is encoded as it is built, in the form the log stores (docs/format/batch.md), and counts
//! what its keyspaces' memtables will need, so that commit copies bytes and nothing else. Operation
//! *i* takes the batch's first sequence number plus *i*.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX};
use base::{DeleteRange, Error, Key, Result, Write, WriteSize};

use crate::Keyspace;
use crate::expiry::unix_millis;
use tree::{DeletedRanges, Tree};

/// Writes that commit atomically, over one or several keyspaces of one store.
///
/// Cleared by [`WriteBatch::clear`], it can be filled again without allocating.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    body: Vec<u8>,
    ops: u32,
    parts: Vec<BatchPart>,
}

/// What a batch holds for one keyspace.
#[derive(Clone, Debug)]
pub(crate) struct BatchPart {
    pub(crate) tree: Arc<Tree>,
    pub(crate) size: WriteSize,
}

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
        self.push(keyspace.tree(), range.start(), range.write())
    }

    fn add(&mut self, keyspace: &Keyspace, key: &[u8], write: Write<'_>) -> Result<()> {
        Key::new(key)?;
        keyspace.check_write(write)?;
        self.push(keyspace.tree(), key, write)
    }

    /// Appends an operation whose key and value were checked.
    pub(crate) fn push(&mut self, tree: &Arc<Tree>, key: &[u8], write: Write<'_>) -> Result<()> {
        let bytes = write.encoded_bytes_max(key.len());
        if self.body.len() + bytes > BATCH_BYTES_MAX || self.ops as usize >= BATCH_OPS_MAX {
            return Err(Error::invalid("write batch size")
                .expected(format_args!(
                    "at most {BATCH_BYTES_MAX} bytes, {BATCH_OPS_MAX} operations"
                ))
                .got(format_args!(
                    "{} bytes, {} operations",
                    self.body.len() + bytes,
                    self.ops + 1
                )));
        }
        let size = WriteSize::of(key, write);
        match self.parts.iter_mut().find(|part| Arc::ptr_eq(&part.tree, tree)) {
            Some(part) => part.size.add(size),
            None => self.parts.push(BatchPart { tree: Arc::clone(tree), size }),
        }
        write.encode(&mut self.body, tree.id(), key);
        self.ops += 1;
        Ok(())
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops as usize
    }

    /// True where there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// The encoded size, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Removes every operation, keeping the memory.
    pub fn clear(&mut self) {
        self.body.clear();
        self.parts.clear();
        self.ops = 0;
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn ops(&self) -> u32 {
        self.ops
    }

    pub(crate) fn parts(&self) -> &[BatchPart] {
        &self.parts
    }

    /// Refuses more range deletes of one keyspace than a table bears.
    pub(crate) fn check_ranges(&self) -> Result<()> {
        let bytes = |part: &BatchPart| {
            DeletedRanges::reserved_bytes(part.size.ranges, part.size.range_bytes)
        };
        let most = self.parts.iter().map(bytes).max().unwrap_or(0);
        if most > DeletedRanges::BYTES_MAX {
            return Err(Error::invalid("range deletes of one keyspace in a write batch")
                .expected(format_args!("at most {} B of memory", DeletedRanges::BYTES_MAX))
                .got(most));
        }
        Ok(())
    }
}

//! A write batch, encoded: operations over any keyspaces that become visible together or not at all.
//!
//! A batch is encoded while it is built, in the form that the log stores (docs/format/batch.md), and counts
//! the memory that its keyspaces' memtables need, so that a commit only copies bytes. Operation *i* gets the
//! batch's first sequence number plus *i*.

use std::sync::Arc;

use base::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX};
use base::{Error, Result, Write, WriteSize, invariant};
use tree::{DeletedRanges, Tree};

/// The encoded operations of a batch, and the memory that they need in each keyspace.
#[derive(Clone, Debug, Default)]
pub struct EncodedBatch {
    body: Vec<u8>,
    ops: u32,
    /// Whether an operation is not a delete.
    keeps: bool,
    parts: Vec<BatchPart>,
}

/// The part of a batch that goes to one keyspace.
#[derive(Clone, Debug)]
pub struct BatchPart {
    /// The keyspace.
    pub tree: Arc<Tree>,
    /// The memory that its memtable needs.
    pub size: WriteSize,
}

impl EncodedBatch {
    /// An empty batch with memory for `bytes` of encoded operations.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { body: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Appends an operation. The caller has checked key and value.
    ///
    /// # Errors
    /// `Invalid` if the batch would exceed 128 MiB or 2^20 operations; the batch is unchanged then.
    pub fn push(&mut self, tree: &Arc<Tree>, key: &[u8], write: Write<'_>) -> Result<()> {
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
        let before = self.body.len();
        write.encode(&mut self.body, tree.id(), key);
        invariant!(
            self.body.len() - before <= bytes,
            "an encoded operation is no longer than its bound"
        );
        self.ops += 1;
        self.keeps |= !matches!(write, Write::Delete | Write::DeleteRange { .. });
        invariant!(
            self.parts.len() as u64 <= u64::from(self.ops),
            "every keyspace of a batch has an operation"
        );
        Ok(())
    }

    /// True if the batch has no operation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// Removes every operation and keeps the memory.
    pub fn clear(&mut self) {
        self.body.clear();
        self.parts.clear();
        (self.ops, self.keeps) = (0, false);
    }

    /// True if every operation is a delete: a full device takes them, because they free space.
    #[must_use]
    pub const fn only_deletes(&self) -> bool {
        !self.keeps
    }

    /// The operations as the log stores them.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The number of operations.
    #[must_use]
    pub const fn ops(&self) -> u32 {
        self.ops
    }

    /// The keyspaces that it writes to.
    #[must_use]
    pub fn parts(&self) -> &[BatchPart] {
        &self.parts
    }

    /// Refuses more range deletes of one keyspace than a table can hold.
    ///
    /// # Errors
    /// `Invalid`, naming the limit.
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

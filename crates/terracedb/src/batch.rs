//! A write batch: operations over any keyspaces that become visible together or not at all.
//!
//! A batch is encoded as it is built, in the form the log stores (docs/format/batch.md), so that
//! commit copies bytes and nothing else. Operation *i* takes the batch's first sequence number
//! plus *i*.

use std::sync::Arc;

use base::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use base::{Cursor, EntryKind, Error, Key, KeyspaceId, Result, put_bytes, put_varint};

use crate::Keyspace;
use crate::ordered::Tree;

/// Writes that commit atomically, over one or several keyspaces of one store.
///
/// Cleared by [`WriteBatch::clear`], it can be filled again without allocating.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    body: Vec<u8>,
    ops: u32,
    trees: Vec<Arc<Tree>>,
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
        let (key, value) = (Key::new(key.as_ref())?, value.as_ref());
        keyspace.check_value(value)?;
        self.push(keyspace.tree(), key, Some(value))
    }

    /// Removes `key` from `keyspace`; no effect where it has no value.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(keyspace.tree(), Key::new(key.as_ref())?, None)
    }

    pub(crate) fn push(
        &mut self,
        tree: &Arc<Tree>,
        key: Key<'_>,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let bytes = op_bytes_max(key, value);
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
        if !self.trees.iter().any(|known| Arc::ptr_eq(known, tree)) {
            self.trees.push(Arc::clone(tree));
        }
        encode_op(&mut self.body, tree.id(), key, value);
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
        self.trees.clear();
        self.ops = 0;
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn ops(&self) -> u32 {
        self.ops
    }

    pub(crate) fn trees(&self) -> &[Arc<Tree>] {
        &self.trees
    }
}

pub(crate) fn value_too_long(len: usize, max: u64) -> Error {
    Error::invalid("value length, bytes").expected(format_args!("at most {max}")).got(len)
}

/// The most bytes [`encode_op`] appends.
fn op_bytes_max(key: Key<'_>, value: Option<&[u8]>) -> usize {
    1 + 5 + 5 + key.bytes().len() + 5 + value.map_or(0, <[u8]>::len)
}

/// One operation as read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchOp<'a> {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) kind: EntryKind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// Appends one operation: kind, keyspace, key, and for a put the value.
pub(crate) fn encode_op(
    out: &mut Vec<u8>,
    keyspace: KeyspaceId,
    key: Key<'_>,
    value: Option<&[u8]>,
) {
    let kind = if value.is_some() { EntryKind::Put } else { EntryKind::Delete };
    out.push(kind as u8);
    put_varint(out, u64::from(keyspace.0));
    put_bytes(out, key.bytes());
    if let Some(value) = value {
        put_bytes(out, value);
    }
}

/// Reads the operations of an encoded batch in order. Ends after the first error.
pub(crate) fn decode_ops(body: &[u8]) -> impl Iterator<Item = Result<BatchOp<'_>>> {
    let mut cursor = Cursor::new("write batch", body);
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || cursor.is_empty() {
            return None;
        }
        let op = decode_op(&mut cursor);
        failed = op.is_err();
        Some(op)
    })
}

fn decode_op<'a>(cursor: &mut Cursor<'a>) -> Result<BatchOp<'a>> {
    let at = cursor.position();
    let kind = EntryKind::decode(cursor.u8()?)?;
    let keyspace = KeyspaceId(cursor.length(u32::MAX as usize)? as u32);
    let key = cursor.bytes(KEY_BYTES_MAX)?;
    if key.is_empty() {
        return Err(Error::corrupt("write batch").at(format_args!("byte {at}")).expected("a key"));
    }
    let value = match kind {
        EntryKind::Delete => &[][..],
        EntryKind::Put => cursor.bytes(VALUE_BYTES_MAX)?,
        other => {
            return Err(Error::corrupt("write batch")
                .at(format_args!("byte {at}"))
                .expected("a put or a delete")
                .got(format_args!("{other:?}")));
        }
    };
    Ok(BatchOp { keyspace, kind, key, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut body = Vec::new();
        encode_op(&mut body, KeyspaceId(1), Key::new(b"apple").unwrap(), Some(b"red"));
        encode_op(&mut body, KeyspaceId(300), Key::new(b"b").unwrap(), None);
        encode_op(&mut body, KeyspaceId(1), Key::new(b"c").unwrap(), Some(b""));
        body
    }

    #[test]
    fn golden_bytes() {
        let golden = include_str!("../golden/batch.hex");
        let hex: String = sample().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden.split_whitespace().collect::<String>());
    }

    #[test]
    fn operations_round_trip() {
        let body = sample();
        let ops: Vec<_> = decode_ops(&body).map(Result::unwrap).collect();
        assert_eq!(ops.len(), 3);
        assert_eq!((ops[0].key, ops[0].value), (&b"apple"[..], &b"red"[..]));
        assert_eq!((ops[1].keyspace, ops[1].kind), (KeyspaceId(300), EntryKind::Delete));
        assert_eq!((ops[2].kind, ops[2].value), (EntryKind::Put, &b""[..]));
    }

    #[test]
    fn damaged_bytes_end_in_an_error_or_other_operations_never_in_a_panic() {
        let body = sample();
        for cut in 0..body.len() {
            let read = decode_ops(&body[..cut]).take_while(Result::is_ok).count();
            assert!(read < 3);
        }
        for at in 0..body.len() {
            for bit in 0..8 {
                let mut flipped = body.clone();
                flipped[at] ^= 1 << bit;
                assert!(decode_ops(&flipped).count() <= body.len());
            }
        }
    }
}

//! One operation of a write batch and its encoding: docs/format/batch.md.
//!
//! The log, memtables and tables store the same value bytes for an entry kind, so an operation is encoded
//! once, when it is written, and only copied afterwards.

use std::ops::{Bound, RangeBounds};

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{
    Cursor, EntryKind, Error, KeyspaceId, Result, WriteSize, expiry, put_bytes, put_varint,
};

/// A write to one key or to a range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Sets the key's value.
    Put(&'a [u8]),
    /// Sets the key's value until it expires.
    PutExpiring {
        /// The expiry, Unix milliseconds, greater than 0.
        expiry: u64,
        /// The value.
        value: &'a [u8],
    },
    /// Adds an operand for the keyspace's merge operator.
    Merge(&'a [u8]),
    /// Deletes the key.
    Delete,
    /// Deletes every key from the operation's key up to `end`.
    DeleteRange {
        /// The first key past the range; empty if the range has no end.
        end: &'a [u8],
    },
}

impl Write<'_> {
    /// The kind of the entry that the write becomes.
    #[must_use]
    pub const fn kind(self) -> EntryKind {
        match self {
            Self::Put(_) => EntryKind::Put,
            Self::PutExpiring { .. } => EntryKind::PutExpiring,
            Self::Merge(_) => EntryKind::Merge,
            Self::Delete => EntryKind::Delete,
            Self::DeleteRange { .. } => EntryKind::DeleteRange,
        }
    }

    /// The length of the value as stored, bytes.
    #[must_use]
    pub const fn stored_bytes(self) -> usize {
        match self {
            Self::Put(value) | Self::Merge(value) => value.len(),
            Self::PutExpiring { value, .. } => expiry::BYTES + value.len(),
            Self::Delete => 0,
            Self::DeleteRange { end } => end.len(),
        }
    }

    /// The most bytes that [`Write::encode`] appends for a key of `key` bytes.
    #[must_use]
    pub const fn encoded_bytes_max(self, key: usize) -> usize {
        1 + 5 + 5 + key + 5 + self.stored_bytes()
    }

    /// Appends the operation to `out`: kind, keyspace, key, and last the value as stored.
    pub fn encode(self, out: &mut Vec<u8>, keyspace: KeyspaceId, key: &[u8]) {
        out.push(self.kind() as u8);
        put_varint(out, u64::from(keyspace.0));
        put_bytes(out, key);
        match self {
            Self::Put(value) | Self::Merge(value) | Self::DeleteRange { end: value } => {
                put_bytes(out, value);
            }
            Self::PutExpiring { expiry: moment, value } => {
                put_varint(out, self.stored_bytes() as u64);
                expiry::put(out, moment, value);
            }
            Self::Delete => {}
        }
    }
}

/// The bounds of a range delete, as the log stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRange {
    /// The first key of the range; empty if it has no start.
    start: Vec<u8>,
    /// The first key past the range; empty if it has no end.
    end: Vec<u8>,
}

impl DeleteRange {
    /// The range of `bounds`, or `None` if no key can lie in it.
    ///
    /// # Errors
    /// `Invalid` if a bound is longer than a key may be.
    pub fn new<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> Result<Option<Self>> {
        let start = match bounds.start_bound() {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => checked(key.as_ref())?.to_vec(),
            Bound::Excluded(key) => after(checked(key.as_ref())?),
        };
        let end = match bounds.end_bound() {
            Bound::Unbounded => return Ok(Some(Self { start, end: Vec::new() })),
            Bound::Included(key) => after(checked(key.as_ref())?),
            Bound::Excluded(key) => checked(key.as_ref())?.to_vec(),
        };
        Ok((start < end).then_some(Self { start, end }))
    }

    /// The first key of the range; empty if it has no start.
    #[must_use]
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// Whether every key lies in the range.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.start.is_empty() && self.end.is_empty()
    }

    /// The write that deletes the range, to the key [`DeleteRange::start`].
    #[must_use]
    pub fn write(&self) -> Write<'_> {
        Write::DeleteRange { end: &self.end }
    }
}

/// `bound`, if it is a key or empty.
fn checked(bound: &[u8]) -> Result<&[u8]> {
    if bound.len() > KEY_BYTES_MAX {
        return Err(Error::invalid("bound of a range, bytes")
            .expected(format_args!("at most {KEY_BYTES_MAX}"))
            .got(bound.len()));
    }
    Ok(bound)
}

/// The least key after `key`.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// One decoded operation of a write batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOp<'a> {
    /// The keyspace to write to.
    pub keyspace: KeyspaceId,
    /// The kind of the entry that the operation becomes.
    pub kind: EntryKind,
    /// The key; the start of a range delete, empty if it has none.
    pub key: &'a [u8],
    /// The value as stored; the end of a range delete, empty if it has none.
    pub value: &'a [u8],
}

impl BatchOp<'_> {
    /// The size of the operation in a memtable.
    #[must_use]
    pub fn size(&self) -> WriteSize {
        WriteSize::of_op(self.kind, self.key.len() + self.value.len())
    }
}

/// Decodes the operations of a write batch in order. Ends after the first error.
///
/// # Errors
/// An item is `Corrupt` if the bytes are no operation.
pub fn decode_ops(body: &[u8]) -> impl Iterator<Item = Result<BatchOp<'_>>> {
    decode_ops_at(body).map(|op| op.map(|(_, op)| op))
}

/// As [`decode_ops`], with the offset at which each operation begins.
///
/// # Errors
/// As [`decode_ops`].
pub fn decode_ops_at(body: &[u8]) -> impl Iterator<Item = Result<(usize, BatchOp<'_>)>> {
    let mut cursor = Cursor::new("write batch", body);
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || cursor.is_empty() {
            return None;
        }
        let at = cursor.position();
        let op = decode_op(&mut cursor).map(|op| (at, op));
        failed = op.is_err();
        Some(op)
    })
}

pub(crate) fn decode_op<'a>(cursor: &mut Cursor<'a>) -> Result<BatchOp<'a>> {
    let at = cursor.position();
    let refused = |expected: &'static str, got: &dyn std::fmt::Debug| {
        Error::corrupt("write batch")
            .at(format_args!("byte {at}"))
            .expected(expected)
            .got(format_args!("{got:?}"))
    };
    let kind = EntryKind::decode(cursor.u8()?)?;
    let keyspace = KeyspaceId(cursor.length(u32::MAX as usize)? as u32);
    if kind == EntryKind::DeleteRange {
        // A bound may lie just after the longest key.
        let start = cursor.bytes(KEY_BYTES_MAX + 1)?;
        let end = cursor.bytes(KEY_BYTES_MAX + 1)?;
        if !end.is_empty() && end <= start {
            return Err(refused("a range's end after its start", &end.escape_ascii()));
        }
        return Ok(BatchOp { keyspace, kind, key: start, value: end });
    }
    let key = cursor.bytes(KEY_BYTES_MAX)?;
    if key.is_empty() {
        return Err(refused("a key", &key));
    }
    let value = match kind {
        EntryKind::Delete => &[][..],
        EntryKind::Put | EntryKind::Merge => cursor.bytes(VALUE_BYTES_MAX)?,
        EntryKind::PutExpiring => {
            let stored = cursor.bytes(VALUE_BYTES_MAX)?;
            expiry::split(stored).map_err(|error| error.at(format_args!("byte {at}")))?;
            stored
        }
        EntryKind::PutPointer | EntryKind::DeleteRange => {
            return Err(refused("a kind that the log holds", &kind));
        }
    };
    Ok(BatchOp { keyspace, kind, key, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(ops: &[(u32, &[u8], Write<'_>)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (keyspace, key, write) in ops {
            let before = body.len();
            write.encode(&mut body, KeyspaceId(*keyspace), key);
            assert!(body.len() - before <= write.encoded_bytes_max(key.len()));
        }
        body
    }

    /// Puts and deletes, the only operations of the first version of the format.
    fn first() -> Vec<u8> {
        encoded(&[
            (1, b"apple", Write::Put(b"red")),
            (300, b"b", Write::Delete),
            (1, b"c", Write::Put(b"")),
        ])
    }

    fn every_kind() -> Vec<u8> {
        let (expiry, value) = (1_700_000_000_000, &b"value"[..]);
        encoded(&[
            (1, b"k", Write::Put(b"v")),
            (1, b"e", Write::PutExpiring { expiry, value }),
            (2, b"n", Write::Merge(b"+1")),
            (2, b"k", Write::Delete),
            (2, b"a", Write::DeleteRange { end: b"f" }),
            (2, b"", Write::DeleteRange { end: b"" }),
        ])
    }

    #[test]
    fn golden_bytes() {
        let hex = |body: &[u8]| body.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let golden = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(hex(&first()), golden(include_str!("../golden/batch.hex")));
        assert_eq!(hex(&every_kind()), golden(include_str!("../golden/batch_kinds.hex")));
    }

    #[test]
    fn operations_round_trip() {
        let body = every_kind();
        let ops: Vec<_> = decode_ops(&body).map(Result::unwrap).collect();
        let kinds: Vec<_> = ops.iter().map(|op| op.kind).collect();
        use EntryKind::{Delete, DeleteRange, Merge, Put, PutExpiring};
        assert_eq!(kinds, [Put, PutExpiring, Merge, Delete, DeleteRange, DeleteRange]);
        assert_eq!(ops[1].keyspace, KeyspaceId(1));
        assert_eq!(expiry::split(ops[1].value).unwrap(), (1_700_000_000_000, &b"value"[..]));
        assert_eq!(
            (ops[2].keyspace, ops[2].key, ops[2].value),
            (KeyspaceId(2), &b"n"[..], &b"+1"[..])
        );
        assert_eq!((ops[4].key, ops[4].value), (&b"a"[..], &b"f"[..]));
        assert_eq!((ops[5].key, ops[5].value), (&b""[..], &b""[..]));
    }

    #[test]
    fn bounds_of_all_kinds_become_a_first_key_and_an_end() {
        let of = |bounds: (Bound<&str>, Bound<&str>)| {
            let range = DeleteRange::new::<&str>(&bounds).unwrap()?;
            Some((String::from_utf8(range.start).unwrap(), String::from_utf8(range.end).unwrap()))
        };
        let some = |start: &str, end: &str| Some((start.to_owned(), end.to_owned()));
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(of((Included("a"), Excluded("c"))), some("a", "c"));
        assert_eq!(of((Excluded("a"), Included("c"))), some("a\0", "c\0"));
        assert_eq!(of((Included("a"), Included("a"))), some("a", "a\0"));
        assert_eq!(of((Unbounded, Unbounded)), some("", ""));
        assert_eq!(of((Included("b"), Unbounded)), some("b", ""));
        for empty in [
            (Included("a"), Excluded("a")),
            (Excluded("a"), Included("a")),
            (Included("b"), Excluded("a")),
            (Unbounded, Excluded("")),
        ] {
            assert_eq!(of(empty), None);
        }
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        assert!(DeleteRange::new::<&str>(&(..long.as_str())).is_err());
        assert!(DeleteRange::new::<&str>(&(&long[1..]..)).unwrap().is_some());
    }

    #[test]
    fn operations_that_no_writer_makes_are_corrupt() {
        let refused = |ops: &[(u32, &[u8], Write<'_>)]| {
            let body = encoded(ops);
            let error = decode_ops(&body).find_map(Result::err).unwrap();
            assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
        };
        refused(&[(1, b"", Write::Put(b"v"))]);
        refused(&[(1, b"", Write::Delete)]);
        refused(&[(1, b"b", Write::DeleteRange { end: b"b" })]);
        refused(&[(1, b"b", Write::DeleteRange { end: b"a" })]);
    }

    #[test]
    fn an_expiry_of_zero_is_corrupt() {
        let mut body = encoded(&[(1, b"k", Write::PutExpiring { expiry: 1, value: b"v" })]);
        let lowest = body.len() - b"v".len() - expiry::BYTES;
        assert_eq!(std::mem::replace(&mut body[lowest], 0), 1);
        let error = decode_ops(&body).find_map(Result::err).unwrap();
        assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
    }

    #[test]
    fn damaged_batches_decode_without_a_panic() {
        for body in [first(), every_kind()] {
            let whole = decode_ops(&body).count();
            for cut in 0..body.len() {
                let read = decode_ops(&body[..cut]).take_while(Result::is_ok).count();
                assert!(read < whole);
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
}

//! The body of a record of moved operations: docs/format/batch.md.
//!
//! The collector of a log copies the live entries of an old segment to its end. A copy says which record had
//! the entry first, so that a replay prefers every version that was written since.

use crate::op::decode_op;
use crate::{
    BatchOp, Cursor, EntryKind, Error, KEY_HASH_BYTES, KeyspaceId, Result, Seqno, put_bytes,
    put_u64, put_varint,
};

/// The first byte of such a body: no kind of an operation.
const MOVED: u8 = 0xff;

/// Bytes between two operations: the seqno of the record that had the second one first.
const FIRST_BYTES: usize = 8;

/// An operation that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedOp<'a> {
    /// The first seqno of the record that had it first.
    pub first: Seqno,
    /// The operation: a put, an expiring put, a delete or a lost entry ([`LOST`]).
    pub op: BatchOp<'a>,
}

/// The kind of a lost entry: one that the collector found damaged. Its key is the hash of the lost key, as
/// far as the index knew it, and its value is empty. It has the number of a pointer into a value file, which
/// no resident keyspace has.
pub const LOST: EntryKind = EntryKind::PutPointer;

/// Whether `body` has moved operations.
#[must_use]
pub fn is_moved(body: &[u8]) -> bool {
    body.first() == Some(&MOVED)
}

/// Appends to `body` the operation `op`, which the record at `first` had first. Returns its offset in the
/// body.
pub fn put_moved(body: &mut Vec<u8>, first: Seqno, op: &BatchOp<'_>) -> usize {
    if body.is_empty() {
        body.push(MOVED);
    }
    put_u64(body, first.get());
    let at = body.len();
    body.push(op.kind as u8);
    put_varint(body, u64::from(op.keyspace.0));
    put_bytes(body, op.key);
    if !matches!(op.kind, EntryKind::Delete | LOST) {
        put_bytes(body, op.value);
    }
    at
}

/// The offset, within a record, of the seqno that [`put_moved`] stored for the operation at offset `at`.
#[must_use]
pub const fn moved_first_at(at: u64) -> u64 {
    at.saturating_sub(FIRST_BYTES as u64)
}

/// Decodes the operations of a body for which [`is_moved`] is true, each with its offset. Ends after the
/// first error.
///
/// # Errors
/// An item is `Corrupt` if the bytes are no moved operation.
pub fn decode_moved(body: &[u8]) -> impl Iterator<Item = Result<(usize, MovedOp<'_>)>> {
    let mut cursor = Cursor::new("moved operations", body);
    let mut failed = cursor.u8().is_ok_and(|kind| kind != MOVED);
    std::iter::from_fn(move || {
        if failed || cursor.is_empty() {
            return None;
        }
        let op = decode_one(&mut cursor);
        failed = op.is_err();
        Some(op)
    })
}

fn decode_one<'a>(cursor: &mut Cursor<'a>) -> Result<(usize, MovedOp<'a>)> {
    let first = Seqno::try_from(cursor.u64()?)?;
    let at = cursor.position();
    if cursor.rest().first() == Some(&(LOST as u8)) {
        cursor.u8()?;
        let keyspace = KeyspaceId(cursor.length(u32::MAX as usize)? as u32);
        let key = cursor.bytes(KEY_HASH_BYTES)?;
        if key.len() != KEY_HASH_BYTES {
            return Err(Error::corrupt("moved operations")
                .at(format_args!("byte {at}"))
                .expected(format_args!("{KEY_HASH_BYTES} bytes of a hash"))
                .got(key.len()));
        }
        return Ok((at, MovedOp { first, op: BatchOp { keyspace, kind: LOST, key, value: &[] } }));
    }
    let op = decode_op(cursor)?;
    match op.kind {
        EntryKind::Put | EntryKind::PutExpiring | EntryKind::Delete => {
            Ok((at, MovedOp { first, op }))
        }
        kind => Err(Error::corrupt("moved operations")
            .at(format_args!("byte {at}"))
            .expected("a put, a delete or a lost entry")
            .got(format_args!("{kind:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Write;

    fn op(key: &[u8], write: Write<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        write.encode(&mut bytes, KeyspaceId(1), key);
        bytes
    }

    fn put(body: &mut Vec<u8>, first: u64, key: &[u8], write: Write<'_>) {
        let encoded = op(key, write);
        let op = crate::decode_ops(&encoded).next().unwrap().unwrap();
        let at = put_moved(body, Seqno::new(first), &op);
        assert_eq!(body[at..], encoded);
    }

    fn body() -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, 5, b"k", Write::Put(b"v"));
        put(&mut body, 300, b"d", Write::Delete);
        let expiring = Write::PutExpiring { expiry: 1_700_000_000_000, value: b"value" };
        put(&mut body, 7, b"e", expiring);
        body
    }

    #[test]
    fn golden_bytes() {
        let hex: String = body().iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = include_str!("../golden/batch_moved.hex");
        assert_eq!(hex, golden.split_whitespace().collect::<String>());
    }

    #[test]
    fn moved_operations_round_trip() {
        let body = body();
        assert!(is_moved(&body) && !is_moved(&op(b"k", Write::Delete)) && !is_moved(b""));
        let ops: Vec<_> = decode_moved(&body).map(Result::unwrap).collect();
        let firsts: Vec<_> = ops.iter().map(|(_, moved)| moved.first.get()).collect();
        assert_eq!(firsts, [5, 300, 7]);
        assert_eq!((ops[1].1.op.kind, ops[1].1.op.key), (EntryKind::Delete, &b"d"[..]));
        for (at, moved) in ops {
            let first = &body[moved_first_at(at as u64) as usize..at];
            assert_eq!(first, moved.first.get().to_le_bytes());
            assert_eq!(crate::decode_ops(&body[at..]).next().unwrap().unwrap(), moved.op);
        }
    }

    fn lost() -> BatchOp<'static> {
        BatchOp {
            keyspace: KeyspaceId(1),
            kind: LOST,
            key: b"\xab\xcd\xef\x01\0\0\0\0",
            value: &[],
        }
    }

    #[test]
    fn golden_bytes_of_a_lost_entry() {
        let mut body = Vec::new();
        let at = put_moved(&mut body, Seqno::new(9), &lost());
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = include_str!("../golden/batch_lost.hex");
        assert_eq!(hex, golden.split_whitespace().collect::<String>());
        let ops: Vec<_> = decode_moved(&body).map(Result::unwrap).collect();
        assert_eq!(ops, [(at, MovedOp { first: Seqno::new(9), op: lost() })]);
        for end in 1..body.len() {
            assert!(decode_moved(&body[..end]).all(|it| it.is_err()), "cut at {end}");
        }
        let mut short = Vec::new();
        put_moved(&mut short, Seqno::new(9), &BatchOp { key: b"1234567", ..lost() });
        assert!(decode_moved(&short).all(|it| it.is_err()));
    }

    #[test]
    fn bytes_that_no_collector_writes_are_corrupt() {
        let mut merge = Vec::new();
        put(&mut merge, 5, b"k", Write::Merge(b"1"));
        assert!(decode_moved(&merge).any(|it| it.is_err()));
        let body = body();
        for end in 2..body.len() {
            let cut = decode_moved(&body[..end]).filter(Result::is_ok).count();
            assert!(cut < 3, "cut at {end}");
        }
        let mut far = body.clone();
        far[1..9].fill(0xff);
        assert!(decode_moved(&far).any(|it| it.is_err()));
        // An older reader refuses the first byte.
        assert!(crate::decode_ops(&body).any(|it| it.is_err()));
    }
}

//! The operations of a record of the log, for `terrace inspect log --entries`.

use std::fmt;

use base::{
    BatchOp, KEY_HASH_BYTES, KeyspaceId, LOST, MovedOp, Result, Seqno, decode_moved, decode_ops_at,
    is_moved,
};
use serde_json::Value;

use super::entries::{Version, kind_name};

/// An operation of a batch.
pub(super) struct Operation {
    /// Its offset in the segment, bytes.
    offset: u64,
    keyspace: KeyspaceId,
    /// The stored version; of a lost entry without key and value.
    version: Version,
    is_lost: bool,
    /// Of a moved entry: the hash of its key, and the first seqno of the record that had it first.
    moved: Option<(u64, Seqno)>,
}

/// The operations of a batch with this `body`; none of other entries. Ends after the first error.
pub(super) fn of<'a>(
    entry: &wal::LogEntry,
    body: &'a [u8],
) -> impl Iterator<Item = Result<Operation>> + 'a {
    let (start, first) = match entry {
        wal::LogEntry::Batch { offset, bytes, seqno, .. } => {
            (offset + bytes - body.len() as u64, *seqno)
        }
        _ => (0, Seqno::ZERO),
    };
    let moved = is_moved(body).then(|| decode_moved(body)).into_iter().flatten();
    let plain = (!is_moved(body)).then(|| decode_ops_at(body)).into_iter().flatten();
    let moved = moved.map(|it| it.map(|(at, MovedOp { first, op })| (at, op, Some(first))));
    let all = moved.chain(plain.map(|it| it.map(|(at, op)| (at, op, None))));
    all.zip(first.get()..).map(move |(found, seqno)| {
        let (at, op, moved_from) = found?;
        operation(start + at as u64, Seqno::try_from(seqno)?, &op, moved_from)
    })
}

fn operation(
    offset: u64,
    seqno: Seqno,
    op: &BatchOp<'_>,
    moved_from: Option<Seqno>,
) -> Result<Operation> {
    let BatchOp { keyspace, kind, key, value } = *op;
    let hashed = key.split_first_chunk::<KEY_HASH_BYTES>();
    let moved = moved_from.zip(hashed).map(|(first, (hash, key))| (first, *hash, key));
    let key = moved.map_or(key, |(_, _, key)| key);
    Ok(Operation {
        offset,
        keyspace,
        version: Version::of(key, seqno, kind, value),
        is_lost: moved_from.is_some() && kind == LOST,
        moved: moved.map(|(first, hash, _)| (u64::from_be_bytes(hash), first)),
    })
}

impl Operation {
    fn kind(&self) -> &'static str {
        if self.is_lost { "lost" } else { kind_name(self.version.kind) }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut json = self.version.to_json();
        let own = [
            ("kind", self.kind().into()),
            ("offset", self.offset.into()),
            ("keyspace", self.keyspace.0.into()),
            ("hash", self.moved.map(|(hash, _)| format!("{hash:016x}")).into()),
            ("moved_from", self.moved.map(|(_, first)| first.get()).into()),
        ];
        let lost = self.is_lost.then_some(("key", Value::Null));
        let own = own.into_iter().chain(lost).map(|(name, value)| (name.to_owned(), value));
        if let Some(fields) = json.as_object_mut() {
            fields.extend(own);
        }
        json
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, keyspace, version, is_lost, moved } = self;
        let seqno = version.seqno;
        write!(f, "{offset:>12}  {:<6}  {:>10}  {seqno:>12}  keyspace {keyspace} ", "entry", "")?;
        match is_lost {
            true => f.write_str("lost")?,
            false => version.fmt_content(f)?,
        }
        match moved {
            Some((hash, first)) => write!(f, ", hash {hash:016x}, first in record {first}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{EntryKind, put_moved};

    use super::*;

    fn shown(body: &[u8]) -> Vec<(String, Value)> {
        let bytes = 30 + body.len() as u64;
        let (offset, seqno, ops) = (4096, Seqno::new(70), 3);
        let entry = wal::LogEntry::Batch {
            offset,
            bytes,
            sequence: 9,
            seqno,
            ops,
            keyspaces: Vec::new(),
            body_bytes: body.len(),
        };
        let found = of(&entry, body).map(|it| it.unwrap());
        found.map(|it| (it.to_string(), it.to_json())).collect()
    }

    #[test]
    fn moved_and_lost_entries_say_where_and_whose_they_are() {
        let (mut body, hash) = (Vec::new(), [1, 2, 3, 4, 5, 6, 7, 8]);
        let key = [&hash[..], b"key"].concat();
        let put = BatchOp { keyspace: KeyspaceId(3), kind: EntryKind::Put, key: &key, value: b"v" };
        let first = put_moved(&mut body, Seqno::new(11), &put);
        let lost = BatchOp { keyspace: KeyspaceId(4), kind: LOST, key: &hash, value: &[] };
        let second = put_moved(&mut body, Seqno::new(12), &lost);
        let [(moved, moved_json), (lost, lost_json)] = &shown(&body)[..] else { panic!("two") };
        assert!(moved.contains("keyspace 3 `key` put, 1 B `v`, hash 0102030405060708"), "{moved}");
        assert!(moved.ends_with("first in record 11") && moved.contains(" 70  "), "{moved}");
        assert!(lost.contains("keyspace 4 lost, hash 0102030405060708"), "{lost}");
        let fields = ["kind", "keyspace", "key", "hash", "seqno", "moved_from", "offset"];
        let of = |json: &Value| fields.map(|field| json[field].clone());
        let (hash, at) = (Value::from("0102030405060708"), |at: usize| 4096 + 30 + at as u64);
        let expected = ["put".into(), 3.into(), "key".into(), hash.clone(), 70.into(), 11.into()];
        assert_eq!(of(moved_json)[..6], expected);
        assert_eq!(of(moved_json)[6], at(first));
        let expected = ["lost".into(), 4.into(), Value::Null, hash, 71.into(), 12.into()];
        assert_eq!(of(lost_json)[..6], expected);
        assert_eq!(of(lost_json)[6], at(second));
    }

    #[test]
    fn entries_of_a_batch_keep_their_stored_keys() {
        let mut body = Vec::new();
        base::Write::Delete.encode(&mut body, KeyspaceId(3), b"\x01key");
        let [(text, json)] = &shown(&body)[..] else { panic!("one") };
        assert!(text.ends_with("keyspace 3 `\\x01key` delete"), "{text}");
        assert!(json["hash"].is_null() && json["moved_from"].is_null(), "{json}");
        let broken = wal::LogEntry::Batch {
            offset: 0,
            bytes: 30,
            sequence: 0,
            seqno: Seqno::ZERO,
            ops: 1,
            keyspaces: Vec::new(),
            body_bytes: 1,
        };
        assert!(of(&broken, &[9]).all(|it| it.is_err()));
    }
}

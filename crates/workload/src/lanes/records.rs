//! The records that every store of the experiment writes, in the format of TerraceDB's own log.

use std::collections::HashMap;

use base::{Error, KeyspaceId, Result, Seqno, Write, decode_ops, put_u64};
use wal::{Batch, Content, encode_group, parse_record, record_bytes};

/// The seed of the one segment to which all records belong.
const SEED: u32 = 0x5eed_1095;

/// The one keyspace.
const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// One put of a logical thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Put {
    pub(super) key: u64,
    /// The number of the put: no other has it, and the value depends on it.
    pub(super) version: u64,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) seqno: u64,
    pub(super) at: u64,
    pub(super) len: usize,
}

/// The shape of a record's key and value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
}

impl Shape {
    pub(super) const fn user_bytes(self) -> u64 {
        (self.key_bytes + self.value_bytes) as u64
    }

    fn key(self, key: u64) -> Vec<u8> {
        let mut bytes = key.to_be_bytes().to_vec();
        bytes.resize(self.key_bytes, 0);
        bytes
    }

    /// The value: the version, then words that key and version determine.
    fn value(self, put: Put) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.value_bytes + 8);
        put_u64(&mut bytes, put.version);
        let mut word = put.key ^ put.version.rotate_left(32);
        while bytes.len() < self.value_bytes {
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ put.version;
            put_u64(&mut bytes, word);
        }
        bytes.truncate(self.value_bytes);
        bytes
    }

    fn body(self, put: Put) -> Vec<u8> {
        let mut body = Vec::new();
        Write::Put(&self.value(put)).encode(&mut body, KEYSPACE, &self.key(put.key));
        body
    }

    /// The bytes of `puts` as one group of the log, from the seqno `first` on, and the length of each record.
    pub(super) fn group(self, puts: &[Put], first: u64) -> Result<(Vec<u8>, Vec<usize>)> {
        let bodies: Vec<Vec<u8>> = puts.iter().map(|put| self.body(*put)).collect();
        let keyspaces = [KEYSPACE];
        let batch = |body| Batch { keyspaces: &keyspaces, ops: 1, body };
        let batches: Vec<Batch<'_>> = bodies.iter().map(|body| batch(body.as_slice())).collect();
        let image = encode_group(&batches, SEED, first, Seqno::new(first))?;
        let (mut lens, mut rest) = (Vec::with_capacity(puts.len()), image.as_slice());
        while let Some(len) = record_bytes(rest) {
            lens.push(len);
            rest = rest.get(len..).unwrap_or_default();
        }
        base::invariant!(lens.len() == puts.len(), "a group holds one record for each put");
        Ok((image, lens))
    }

    /// The length of a record.
    pub(super) fn record_bytes(self) -> Result<usize> {
        Ok(self.group(&[Put { key: 0, version: 1 }], 1)?.0.len())
    }

    /// Checks that `bytes` are a record of `key`, whole and with its own value. Returns its seqno and
    /// version.
    pub(super) fn verify(self, bytes: &[u8], key: u64) -> Result<(u64, u64)> {
        let wrong = |got: &str| Error::corrupt("answer").expected("the key's own record").got(got);
        let record = parse_record(SEED, bytes)?;
        let Content::Batch { body, .. } = record.content else { return Err(wrong("no batch")) };
        let op = decode_ops(body).next().ok_or_else(|| wrong("no operation"))??;
        let version = op.value.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if op.key != self.key(key) || op.value != self.value(Put { key, version }) {
            return Err(wrong("another key or value"));
        }
        Ok((record.seqno.get(), version))
    }
}

/// The index in DRAM that every store has: the newest record of each key.
#[derive(Debug, Default)]
pub(super) struct Index(HashMap<u64, Place>);

impl Index {
    /// Notes a record unless a newer one is known.
    pub(super) fn insert(&mut self, key: u64, place: Place) {
        let known = self.0.entry(key).or_insert(place);
        if known.seqno < place.seqno {
            *known = place;
        }
    }

    pub(super) fn get(&self, key: u64) -> Option<Place> {
        self.0.get(&key).copied()
    }
}

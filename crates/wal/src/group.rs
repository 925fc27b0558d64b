//! A group: records encoded one behind the other, to be written in one piece.

use base::{KeyspaceId, crc32c, put_varint, varint_len};

use crate::options::Batch;
use crate::record::{FIXED_BYTES, Kind, finish_record};

/// Records that lack only their place: lane sequence, seqno and what depends on it.
#[derive(Debug, Default)]
pub(crate) struct Group {
    image: Vec<u8>,
    entries: Vec<GroupRecord>,
    keyspaces: Vec<KeyspaceId>,
    ops: u64,
}

#[derive(Debug)]
struct GroupRecord {
    /// Where in `image` the record begins.
    start: usize,
    /// How long it is up to its body.
    head: usize,
    body: usize,
    body_crc: u32,
    ops: u32,
    keyspaces: usize,
}

/// The bytes a batch takes as a record.
pub(crate) fn encoded_bytes(batch: &Batch<'_>) -> usize {
    head_bytes(batch) + batch.body.len()
}

fn head_bytes(batch: &Batch<'_>) -> usize {
    let ids: usize = batch.keyspaces.iter().map(|id| varint_len(u64::from(id.0))).sum();
    let counts = varint_len(u64::from(batch.ops)) + varint_len(batch.keyspaces.len() as u64);
    FIXED_BYTES + counts + ids
}

impl Group {
    /// Adds a batch whose body has CRC-32C `body_crc`; how many operations stand before it.
    pub(crate) fn push(&mut self, batch: &Batch<'_>, body_crc: u32) -> u64 {
        let before = self.push_head(batch, body_crc);
        self.image.extend_from_slice(batch.body);
        before
    }

    /// As [`Group::push`], but leaves the body to the caller, who writes it behind the group. The
    /// last of its group.
    pub(crate) fn push_head(&mut self, batch: &Batch<'_>, body_crc: u32) -> u64 {
        debug_assert_eq!(body_crc, crc32c(batch.body));
        let start = self.image.len();
        self.image.extend_from_slice(&[0; FIXED_BYTES]);
        put_varint(&mut self.image, u64::from(batch.ops));
        put_varint(&mut self.image, batch.keyspaces.len() as u64);
        for keyspace in batch.keyspaces {
            put_varint(&mut self.image, u64::from(keyspace.0));
        }
        self.keyspaces.extend_from_slice(batch.keyspaces);
        self.entries.push(GroupRecord {
            start,
            head: self.image.len() - start,
            body: batch.body.len(),
            body_crc,
            ops: batch.ops,
            keyspaces: batch.keyspaces.len(),
        });
        let before = self.ops;
        self.ops += u64::from(batch.ops);
        before
    }

    /// Takes in the records of `other`, which is empty then; how many operations stand before them.
    pub(crate) fn take_in(&mut self, other: &mut Self) -> u64 {
        let (before, start) = (self.ops, self.image.len());
        self.image.extend_from_slice(&other.image);
        self.keyspaces.extend_from_slice(&other.keyspaces);
        let moved = other.entries.drain(..);
        self.entries.extend(moved.map(|entry| GroupRecord { start: start + entry.start, ..entry }));
        self.ops += other.ops;
        other.clear();
        before
    }

    /// Gives every record its place, from `sequence` and `seqno` on, in the segment of `seed`.
    pub(crate) fn finish(&mut self, seed: u32, mut sequence: u64, mut seqno: u64) {
        for entry in &self.entries {
            let head = self.image.get_mut(entry.start..entry.start + entry.head);
            let head = head.unwrap_or_default();
            finish_record(head, seed, Kind::Batch, sequence, seqno, entry.body, entry.body_crc);
            sequence += 1;
            seqno += u64::from(entry.ops);
        }
    }

    /// Calls `pin` with each record's keyspaces and the seqno behind its last, counted from
    /// `seqno`.
    pub(crate) fn pins(&self, mut seqno: u64, mut pin: impl FnMut(KeyspaceId, u64)) {
        let mut keyspaces = self.keyspaces.iter();
        for entry in &self.entries {
            seqno += u64::from(entry.ops);
            for keyspace in keyspaces.by_ref().take(entry.keyspaces) {
                pin(*keyspace, seqno);
            }
        }
    }

    /// Calls `see` with each record's first seqno, counted from `seqno`, and its body; the last
    /// one's is `rest`, where that was left to the caller.
    pub(crate) fn bodies(&self, mut seqno: u64, rest: &[u8], mut see: impl FnMut(u64, &[u8])) {
        for entry in &self.entries {
            let start = entry.start + entry.head;
            see(seqno, self.image.get(start..start + entry.body).unwrap_or(rest));
            seqno += u64::from(entry.ops);
        }
    }

    /// The records' bytes, without a body left to the caller.
    pub(crate) fn image(&self) -> &[u8] {
        &self.image
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many seqnos they take.
    pub(crate) const fn ops(&self) -> u64 {
        self.ops
    }

    /// The bytes of all bodies.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.body as u64).sum()
    }

    /// Empties the group, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.image.clear();
        self.entries.clear();
        self.keyspaces.clear();
        self.ops = 0;
    }
}

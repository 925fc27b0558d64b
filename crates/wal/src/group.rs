//! A group: encoded records, one after the other, that are written in one piece.

use base::{
    KeyspaceId, Result, Seqno, broken_invariant, crc32c, invariant, put_varint, varint_len,
};

use crate::address::Before;
use crate::options::Batch;
use crate::record::{Content, FIXED_BYTES, Kind, finish_record, parse_record};

/// Encoded records without the fields that depend on their position: checksum, lane sequence and seqno.
#[derive(Debug, Default)]
pub(crate) struct Group {
    image: Vec<u8>,
    entries: Vec<GroupRecord>,
    keyspaces: Vec<KeyspaceId>,
    ops: u64,
}

#[derive(Debug)]
struct GroupRecord {
    /// Offset in `image` at which the record begins.
    start: usize,
    /// Length up to the body, bytes.
    head: usize,
    body: usize,
    body_crc: u32,
    ops: u32,
    keyspaces: usize,
}

/// Length of the batch as a record, bytes.
pub(crate) fn encoded_bytes(batch: &Batch<'_>) -> usize {
    head_bytes(batch) + batch.body.len()
}

/// Length of the batch's record up to its body, bytes.
#[must_use]
pub fn head_bytes(batch: &Batch<'_>) -> usize {
    let ids: usize = batch.keyspaces.iter().map(|id| varint_len(u64::from(id.0))).sum();
    let counts = varint_len(u64::from(batch.ops)) + varint_len(batch.keyspaces.len() as u64);
    FIXED_BYTES + counts + ids
}

/// The bytes that a group of `batches` has in a segment with `seed`, from the lane sequence `sequence` and
/// the seqno `seqno` on. Pure: for experiments that lay out a log without a device.
///
/// # Errors
/// `Invalid` for a batch outside the limits.
pub fn encode_group(
    batches: &[Batch<'_>],
    seed: u32,
    sequence: u64,
    seqno: Seqno,
) -> Result<Vec<u8>> {
    let mut group = Group::default();
    for batch in batches {
        batch.check()?;
        group.push(batch, crc32c(batch.body));
    }
    group.finish(seed, sequence, seqno.get())?;
    Ok(group.image)
}

impl Group {
    /// Adds a batch; `body_crc` is the CRC-32C of its body. Returns the records before it.
    pub(crate) fn push(&mut self, batch: &Batch<'_>, body_crc: u32) -> Before {
        let before = self.push_head(batch, body_crc);
        self.image.extend_from_slice(batch.body);
        before
    }

    /// As [`Group::push`] without the body, which the caller writes after the group. Must be the last
    /// record of its group.
    pub(crate) fn push_head(&mut self, batch: &Batch<'_>, body_crc: u32) -> Before {
        debug_assert_eq!(body_crc, crc32c(batch.body));
        self.check_bodies();
        invariant!(
            batch.ops > 0 && !batch.keyspaces.is_empty(),
            "a record has an operation and a keyspace: replay refuses others"
        );
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
        let before = Before { ops: self.ops, bytes: start as u64 };
        self.ops += u64::from(batch.ops);
        before
    }

    fn check_bodies(&self) {
        let end = self.entries.last().map_or(0, |entry| entry.start + entry.head + entry.body);
        invariant!(end == self.image.len(), "only a group's last body is left to the caller");
    }

    /// Moves the records of `other` to the end. Returns the records before them.
    pub(crate) fn append(&mut self, other: &mut Self) -> Before {
        self.check_bodies();
        invariant!(other.entries.len() == 1, "a follower leaves one record");
        let start = self.image.len();
        let before = Before { ops: self.ops, bytes: start as u64 };
        self.image.extend_from_slice(&other.image);
        self.keyspaces.extend_from_slice(&other.keyspaces);
        let moved = other.entries.drain(..);
        self.entries.extend(moved.map(|entry| GroupRecord { start: start + entry.start, ..entry }));
        self.ops += other.ops;
        other.clear();
        before
    }

    /// Fills in the fixed fields of every record, from `sequence` and `seqno` on, for the segment with
    /// `seed`.
    pub(crate) fn finish(&mut self, seed: u32, mut sequence: u64, mut seqno: u64) -> Result<()> {
        for entry in &self.entries {
            let head = self.image.get_mut(entry.start..entry.start + entry.head);
            let head = head.ok_or_else(|| broken_invariant!("a group holds its records' heads"))?;
            finish_record(head, seed, Kind::Batch, sequence, seqno, entry.body, entry.body_crc);
            debug_assert!(
                self.reads_back(entry, seed, sequence, seqno),
                "a record that is written reads back with its numbers"
            );
            sequence += 1;
            seqno += u64::from(entry.ops);
        }
        Ok(())
    }

    /// Whether the finished record of `entry` can be read with these numbers; true if its body is left to the
    /// caller.
    fn reads_back(&self, entry: &GroupRecord, seed: u32, sequence: u64, seqno: u64) -> bool {
        let end = entry.start + entry.head + entry.body;
        let Some(bytes) = self.image.get(entry.start..end) else { return true };
        parse_record(seed, bytes).is_ok_and(|record| {
            let has_ops = matches!(record.content, Content::Batch { ops, .. } if ops == entry.ops);
            record.may_be(sequence) && record.seqno.get() == seqno && has_ops
        })
    }

    /// Calls `pin` with each record's keyspaces and the seqno after its last one. The first record has
    /// `seqno`.
    pub(crate) fn pins(&self, mut seqno: u64, mut pin: impl FnMut(KeyspaceId, u64)) {
        let mut keyspaces = self.keyspaces.iter();
        for entry in &self.entries {
            seqno += u64::from(entry.ops);
            for keyspace in keyspaces.by_ref().take(entry.keyspaces) {
                pin(*keyspace, seqno);
            }
        }
        invariant!(keyspaces.next().is_none(), "each keyspace of a group belongs to a record");
    }

    /// Calls `see` with each record's first seqno and its body. The first record has `seqno`. If the
    /// caller has the last record's body, it is `rest`.
    pub(crate) fn bodies(&self, mut seqno: u64, rest: &[u8], mut see: impl FnMut(u64, &[u8])) {
        for entry in &self.entries {
            let start = entry.start + entry.head;
            let body = self.image.get(start..start + entry.body).unwrap_or(rest);
            invariant!(body.len() == entry.body, "a body is in its group or left to the caller");
            see(seqno, body);
            seqno += u64::from(entry.ops);
        }
    }

    /// The encoded bytes, without a body that the caller has.
    pub(crate) fn image(&self) -> &[u8] {
        &self.image
    }

    /// The number of records.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of seqnos that the records take.
    pub(crate) const fn ops(&self) -> u64 {
        self.ops
    }

    /// Length of all bodies together, bytes.
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

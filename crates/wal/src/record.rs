//! The record: recovery finds it whole or not at all (I11).
//!
//! ```text
//! 0        4              8            12        20
//! | crc u32 | kind:4 len:28 | sequence u32 | seqno u64 | names | body |
//! ```
//! `len` counts names and body. The names are varints: the number of operations, the number of
//! keyspaces, each keyspace. Other records have no names. The checksum covers the body, then the
//! bytes before the body except the checksum itself, and is XORed with the segment's seed. So a writer
//! computes the checksum of its body outside every lock, before it knows the record's position.
//! docs/format/log.md has the byte tables.

use base::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX, KEYSPACES_MAX};
use base::{Cursor, Error, KeyspaceId, Result, Seqno, crc32c, crc32c_append, invariant, put_u64};

/// Length of the fixed part of a record, bytes.
pub const FIXED_BYTES: usize = 20;

/// Length of a whole Mark, bytes.
pub(crate) const MARK_BYTES: usize = FIXED_BYTES + 8;

/// Length of a whole Begin, bytes.
pub(crate) const BEGIN_BYTES: usize = FIXED_BYTES + 17;

/// Length of a whole Gap, bytes.
pub(crate) const GAP_BYTES: usize = FIXED_BYTES + 8;

/// Every lane sequence is below this one.
pub(crate) const SEQUENCE_BELOW: u64 = 1 << 63;

/// Most bytes after the fixed part.
const LENGTH_MAX: usize = BATCH_BYTES_MAX + 5 * (2 + KEYSPACES_MAX);
const _: () = assert!(LENGTH_MAX < 1 << 28);

/// The kind of a record. The numbers are stored and append-only. 0 is no record: zeros are free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A write batch.
    Batch = 1,
    /// The lane was durable up to some record. Always the first record of a page.
    Mark = 2,
    /// The first record of a segment.
    Begin = 3,
    /// Seqnos that unlogged batches took.
    Gap = 4,
}

/// A record of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The low half of its lane sequence, the record's number in the lane.
    pub sequence: u32,
    /// A Batch's or Gap's first seqno; otherwise the seqno of the next record that takes some.
    pub seqno: Seqno,
    /// The content, by kind.
    pub content: Content<'a>,
}

impl Record<'_> {
    /// Whether the record can have this lane sequence. Only a Begin stores more than the low half.
    pub(crate) const fn may_be(&self, sequence: u64) -> bool {
        match self.content {
            Content::Begin(begin) => begin.sequence == sequence && self.sequence == sequence as u32,
            Content::Batch { .. } | Content::Mark { .. } | Content::Gap { .. } => {
                self.sequence == sequence as u32
            }
        }
    }
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A write batch.
    Batch {
        /// Number of operations, and of seqnos taken.
        ops: u32,
        /// The keyspaces that the batch writes to.
        keyspaces: Keyspaces<'a>,
        /// The operations, in the engine's encoding.
        body: &'a [u8],
    },
    /// The lane was durable below this lane sequence.
    Mark {
        /// The lane sequence.
        durable: u64,
    },
    /// The first record of a segment.
    Begin(Begin),
    /// Unlogged batches took these seqnos, from the record's on.
    Gap {
        /// The number of seqnos, at least 1.
        count: u64,
    },
}

/// The position in the lane at which a segment begins. Replay of the earlier segments ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The lane sequence of the Begin itself.
    pub sequence: u64,
    /// The lane was durable below this lane sequence.
    pub durable: u64,
    /// An open wrote this Begin: every seqno below the record's is settled in every lane.
    pub opened: bool,
}

/// The keyspaces of a batch, as stored. Their encoding was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspaces<'a>(&'a [u8]);

impl<'a> Keyspaces<'a> {
    pub(crate) const fn of(stored: &'a [u8]) -> Self {
        Self(stored)
    }

    pub(crate) const fn none() -> Self {
        Self(&[])
    }

    /// Length as stored, bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl Iterator for Keyspaces<'_> {
    type Item = KeyspaceId;

    fn next(&mut self) -> Option<KeyspaceId> {
        if self.0.is_empty() {
            return None;
        }
        let mut cursor = Cursor::new("keyspaces", self.0);
        let id = cursor.varint().ok().and_then(|id| u32::try_from(id).ok());
        invariant!(id.is_some(), "a record's keyspaces were checked when it was read");
        self.0 = cursor.rest();
        id.map(KeyspaceId)
    }
}

/// The length of the record that begins with `bytes`; `None` if no record can begin so.
#[must_use]
pub fn record_bytes(bytes: &[u8]) -> Option<usize> {
    let fixed = bytes.first_chunk::<FIXED_BYTES>()?;
    let [_, _, _, _, word @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *fixed;
    let word = u32::from_le_bytes(word);
    let length = (word & 0x0fff_ffff) as usize;
    (matches!(word >> 28, 1..=4) && length <= LENGTH_MAX).then_some(FIXED_BYTES + length)
}

/// Reads the record at the start of `bytes`, in a segment with `seed`.
///
/// # Errors
/// `Corrupt` if the bytes end before the record does, its checksum does not match (I8), or a field is
/// out of range.
pub fn parse_record(seed: u32, bytes: &[u8]) -> Result<Record<'_>> {
    let Some(whole) = record_bytes(bytes) else {
        return Err(Error::corrupt("log record").expected("a kind and a length"));
    };
    let mut cursor = Cursor::new("log record", bytes);
    let record = cursor.take(whole)?;
    let mut cursor = Cursor::new("log record", record);
    let stored = cursor.u32()?;
    let kind = cursor.u32()? >> 28;
    let (sequence, seqno) = (cursor.u32()?, cursor.u64()?);
    let mut names = None;
    if kind == Kind::Batch as u32 {
        names = Some(names_of(&mut cursor)?);
    }
    let body = cursor.rest();
    let head = record.get(4..cursor.position()).unwrap_or_default();
    let computed = crc32c_append(crc32c(body), head) ^ seed;
    if stored != computed {
        return Err(Error::corrupt("log record checksum")
            .expected(format_args!("{computed:#010x}"))
            .got(format_args!("{stored:#010x}")));
    }
    let content = match names {
        Some((0, ..) | (_, 0, _)) => {
            return Err(Error::corrupt("log record").expected("an operation and a keyspace"));
        }
        Some((ops, _, keyspaces)) => {
            // A reader continues at the seqno after the batch, which must be in range too.
            Seqno::try_from(seqno.saturating_add(ops as u64))?;
            Content::Batch { ops: ops as u32, keyspaces, body }
        }
        None => {
            let content = if kind == Kind::Mark as u32 {
                Content::Mark { durable: lane_sequence(&mut cursor)? }
            } else if kind == Kind::Gap as u32 {
                Content::Gap { count: gap(seqno, cursor.u64()?)? }
            } else {
                let (sequence, durable) =
                    (lane_sequence(&mut cursor)?, lane_sequence(&mut cursor)?);
                Content::Begin(Begin { sequence, durable, opened: cursor.u8()? == 1 })
            };
            cursor.finish()?;
            content
        }
    };
    Ok(Record { sequence, seqno: Seqno::try_from(seqno)?, content })
}

/// Reads the names of a batch: the number of operations, that of keyspaces, and these.
fn names_of<'a>(cursor: &mut Cursor<'a>) -> Result<(usize, usize, Keyspaces<'a>)> {
    let ops = cursor.length(BATCH_OPS_MAX)?;
    let count = cursor.length(KEYSPACES_MAX)?;
    let start = cursor.rest();
    for _ in 0..count {
        cursor.length(u32::MAX as usize)?;
    }
    let taken = start.len() - cursor.rest().len();
    Ok((ops, count, Keyspaces(start.get(..taken).unwrap_or_default())))
}

/// Most bytes of a batch's record before its body.
pub(crate) const HEAD_BYTES_MAX: usize = FIXED_BYTES + 5 * (2 + KEYSPACES_MAX);

/// The length of a batch's record up to its body, from its first [`HEAD_BYTES_MAX`] bytes, or all of them
/// if it has fewer.
///
/// # Errors
/// `Corrupt` if it is not the record of a batch.
pub(crate) fn batch_head_bytes(bytes: &[u8]) -> Result<usize> {
    let mut cursor = Cursor::new("log record", bytes);
    cursor.take(4)?;
    if cursor.u32()? >> 28 != Kind::Batch as u32 {
        return Err(Error::corrupt("log record").expected("a batch"));
    }
    cursor.take(FIXED_BYTES - 8)?;
    names_of(&mut cursor)?;
    debug_assert!(cursor.position() <= HEAD_BYTES_MAX, "the names of a batch are bounded");
    Ok(cursor.position())
}

/// Checks the `count` of a Gap that begins at `seqno`: the seqno after it must be in range too.
fn gap(seqno: u64, count: u64) -> Result<u64> {
    Seqno::try_from(seqno.saturating_add(count))?;
    if count == 0 {
        return Err(Error::corrupt("log record")
            .expected("a gap of a sequence number")
            .got("none"));
    }
    Ok(count)
}

/// Reads a lane sequence. No lane ever comes near the bound.
fn lane_sequence(cursor: &mut Cursor<'_>) -> Result<u64> {
    let sequence = cursor.u64()?;
    if sequence < SEQUENCE_BELOW {
        return Ok(sequence);
    }
    Err(Error::corrupt("log record's lane sequence")
        .expected(format_args!("below {SEQUENCE_BELOW}"))
        .got(sequence))
}

/// Fills in the fixed part of `head`, which is a record up to its body. The body has `body_bytes` bytes
/// and the CRC-32C `body_crc`.
pub(crate) fn finish_record(
    head: &mut [u8],
    seed: u32,
    kind: Kind,
    sequence: u64,
    seqno: u64,
    body_bytes: usize,
    body_crc: u32,
) {
    let length = head.len().saturating_sub(FIXED_BYTES) + body_bytes;
    invariant!(length <= LENGTH_MAX, "a batch is bounded before it is encoded");
    invariant!(sequence < SEQUENCE_BELOW, "a lane sequence that is written can be read back");
    invariant!(
        Seqno::checked(seqno).is_some(),
        "a sequence number that is written can be read back"
    );
    invariant!(head.len() >= FIXED_BYTES, "a record's head holds its fixed part");
    let Some((crc, rest)) = head.split_first_chunk_mut::<4>() else { return };
    if let Some(fixed) = rest.first_chunk_mut::<16>() {
        let word = u128::from((kind as u32) << 28 | length as u32);
        let fields = word | u128::from(sequence as u32) << 32 | u128::from(seqno) << 64;
        *fixed = fields.to_le_bytes();
    }
    *crc = (crc32c_append(body_crc, rest) ^ seed).to_le_bytes();
}

/// Encodes a Mark, Begin or Gap.
fn small(seed: u32, kind: Kind, sequence: u64, seqno: u64, body: &[u8]) -> Vec<u8> {
    let mut record = vec![0; FIXED_BYTES];
    finish_record(&mut record, seed, kind, sequence, seqno, body.len(), crc32c(body));
    record.extend_from_slice(body);
    record
}

pub(crate) fn mark(seed: u32, sequence: u64, seqno: u64, durable: u64) -> Vec<u8> {
    invariant!(durable <= sequence, "a Mark states earlier records as durable");
    small(seed, Kind::Mark, sequence, seqno, &durable.to_le_bytes())
}

pub(crate) fn gap_record(seed: u32, sequence: u64, seqno: u64, count: u64) -> Vec<u8> {
    small(seed, Kind::Gap, sequence, seqno, &count.to_le_bytes())
}

pub(crate) fn begin(seed: u32, seqno: u64, begin: Begin) -> Vec<u8> {
    invariant!(begin.durable <= begin.sequence, "a Begin states earlier records as durable");
    let mut body = Vec::with_capacity(17);
    put_u64(&mut body, begin.sequence);
    put_u64(&mut body, begin.durable);
    body.push(u8::from(begin.opened));
    small(seed, Kind::Begin, begin.sequence, seqno, &body)
}

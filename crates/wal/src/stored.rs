//! Records read again from their segments, in place, while the log has them.
//!
//! For entries that stay in the log. A record is verified by its checksum whenever it is read whole (I8). Any
//! thread may read any record that was stored; the caller keeps the segment from being freed.

use std::fmt;
use std::sync::{Arc, OnceLock};

use base::{Cursor, Error, LaneId, Result, SegmentId, Seqno, StoreId, crc32c, crc32c_append};
use media::{Access, File, Medium, Purpose};

use crate::header::SegmentHeader;
use crate::name::segment_name;
use crate::record::{
    Content, FIXED_BYTES, HEAD_BYTES_MAX, batch_head_bytes, parse_record, record_bytes,
};

/// Offset of the seqno within a record.
const SEQNO_AT: usize = 12;

/// A segment whose records can be read.
pub struct StoredSegment {
    lane: LaneId,
    segment: SegmentId,
    seed: u32,
    medium: Arc<dyn Medium>,
    /// Opened by the first read.
    file: OnceLock<Arc<dyn File>>,
}

/// A batch's record, read whole and verified.
#[derive(Debug)]
pub struct StoredBatch {
    /// The seqno of the first operation.
    pub first: Seqno,
    /// The number of operations.
    pub ops: u32,
    bytes: Vec<u8>,
    /// Length up to the body, bytes.
    head: usize,
}

impl StoredBatch {
    /// Offset of the body within the record.
    #[must_use]
    pub const fn head_bytes(&self) -> usize {
        self.head
    }

    /// The operations.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.bytes.get(self.head..).unwrap_or_default()
    }

    /// The whole record.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl StoredSegment {
    /// The segment `segment` of `lane`, a file of `medium`.
    #[must_use]
    pub fn new(medium: &Arc<dyn Medium>, store: StoreId, lane: LaneId, segment: SegmentId) -> Self {
        let seed = SegmentHeader::seed_of(store, lane, segment);
        Self { lane, segment, seed, medium: Arc::clone(medium), file: OnceLock::new() }
    }

    /// The lane.
    #[must_use]
    pub const fn lane(&self) -> LaneId {
        self.lane
    }

    /// The segment's number.
    #[must_use]
    pub const fn segment(&self) -> SegmentId {
        self.segment
    }

    fn file(&self) -> Result<&Arc<dyn File>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let name = segment_name(self.lane, self.segment);
        let opened = self.medium.open(&name, Access::Bytes)?;
        Ok(self.file.get_or_init(|| opened))
    }

    /// Fills `bytes` from offset `at`, without a check.
    ///
    /// # Errors
    /// The device's; `Corrupt` if the segment ends before.
    pub fn load(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.file()?.load(at, bytes, Purpose::Data)
    }

    /// The record of a batch at offset `at`.
    ///
    /// # Errors
    /// `Corrupt` if no intact record of a batch is there; the device's.
    pub fn batch(&self, at: u64) -> Result<StoredBatch> {
        let placed = |error: Error| self.placed(at, error);
        let (_, end) = self.extent(at)?;
        let len = usize::try_from(end - at).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        self.load(at, &mut bytes)?;
        let (first, ops, head) = {
            let record = parse_record(self.seed, &bytes).map_err(placed)?;
            let Content::Batch { ops, body, .. } = record.content else {
                return Err(placed(Error::corrupt("log record").expected("a batch")));
            };
            (record.seqno, ops, len - body.len())
        };
        debug_assert!(head >= FIXED_BYTES && head <= len, "a record's body lies behind its head");
        debug_assert!(ops > 0, "a batch that was stored has operations");
        Ok(StoredBatch { first, ops, bytes, head })
    }

    /// Verifies the record of a batch at offset `at`, with little memory whatever its length.
    ///
    /// # Errors
    /// As [`StoredSegment::batch`].
    pub fn verify(&self, at: u64) -> Result<()> {
        const STEP_BYTES: usize = 64 << 10;
        let placed = |error: Error| self.placed(at, error);
        let (_, end) = self.extent(at)?;
        debug_assert!(at < end, "a record has bytes");
        let length = usize::try_from(end - at).unwrap_or(usize::MAX);
        let mut head = vec![0; HEAD_BYTES_MAX.min(length)];
        self.load(at, &mut head)?;
        let head_bytes = batch_head_bytes(&head).map_err(placed)?;
        debug_assert!(head_bytes <= length, "a record's head lies within it");
        head.truncate(head_bytes);
        let mut body = at + head_bytes as u64;
        let mut step = vec![0; STEP_BYTES.min(length)];
        let mut computed = crc32c(&[]);
        while body < end {
            let bytes = (end - body).min(step.len() as u64);
            let step = step.get_mut(..bytes as usize).unwrap_or_default();
            self.load(body, step)?;
            computed = crc32c_append(computed, step);
            body += bytes;
        }
        let mut cursor = Cursor::new("log record", &head);
        let stored = cursor.u32()?;
        let computed = crc32c_append(computed, cursor.rest()) ^ self.seed;
        if stored != computed {
            return Err(placed(
                Error::corrupt("log record checksum")
                    .expected(format_args!("{computed:#010x}"))
                    .got(format_args!("{stored:#010x}")),
            ));
        }
        Ok(())
    }

    /// The first seqno of the record at offset `at`, and the offset behind the record. Not verified: for a
    /// caller that got the address from the log, and reads a part of a verified record.
    ///
    /// # Errors
    /// As [`StoredSegment::load`]; `Corrupt` if no record begins there.
    pub fn extent(&self, at: u64) -> Result<(Seqno, u64)> {
        let mut fixed = [0; FIXED_BYTES];
        self.load(at, &mut fixed)?;
        let Some(len) = record_bytes(&fixed) else {
            return Err(
                self.placed(at, Error::corrupt("log record").expected("a kind and a length"))
            );
        };
        debug_assert!(len >= FIXED_BYTES, "a record has its fixed part");
        let mut cursor = Cursor::new("log record", &fixed);
        cursor.take(SEQNO_AT)?;
        Ok((Seqno::try_from(cursor.u64()?)?, at + len as u64))
    }

    fn placed(&self, at: u64, error: Error) -> Error {
        let name = segment_name(self.lane, self.segment);
        error.at(format_args!("offset {at}")).at(name)
    }
}

impl fmt::Debug for StoredSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredSegment({})", segment_name(self.lane, self.segment))
    }
}

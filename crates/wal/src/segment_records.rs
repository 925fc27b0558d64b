//! The batches of one full segment, in order, each verified: for the collector. It reads a device while
//! others write to other segments, in memory bounded by the longest record.

use std::sync::Arc;

use base::{Account, LaneId, Result, SegmentId, Seqno, StoreId};
use media::{Medium, Purpose};

use crate::address::RecordAddress;
use crate::reader::{LocatedContent, SegmentReader};

/// See the module.
#[derive(Debug)]
pub struct SegmentRecords {
    reader: SegmentReader,
    lane: LaneId,
    segment: SegmentId,
    /// The lane sequence of the next record.
    sequence: u64,
    /// The end of the records.
    end: u64,
}

/// One batch of a segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentBatch<'a> {
    /// Its record.
    pub address: RecordAddress,
    /// The seqno of its first operation.
    pub first: Seqno,
    /// The number of operations.
    pub ops: u32,
    /// Offset of the body within the record.
    pub head_bytes: usize,
    /// The operations.
    pub body: &'a [u8],
}

impl SegmentRecords {
    /// The batches of `segment` of `lane`, whose records take `bytes` bytes ([`crate::FullSegment`]).
    ///
    /// # Errors
    /// `Corrupt` for a damaged header, `Retry` without memory; the device's.
    pub fn open(
        medium: &Arc<dyn Medium>,
        store: StoreId,
        lane: LaneId,
        segment: SegmentId,
        bytes: u64,
        account: &Account,
    ) -> Result<Self> {
        let store = Some(store);
        let opened = SegmentReader::open(
            &**medium,
            lane,
            segment,
            store,
            Purpose::Compaction,
            false,
            account,
        );
        let (mut reader, header) = opened?;
        header?;
        let sequence = reader.begin()?.map_or(0, |(begin, _)| begin.sequence);
        Ok(Self { reader, lane, segment, sequence, end: bytes })
    }

    /// The offset at which the next record is expected.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.reader.at()
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` at a record that is damaged; the device's.
    pub fn next_batch(&mut self) -> Result<Option<SegmentBatch<'_>>> {
        loop {
            let Some(found) = self.reader.next(self.sequence)? else {
                let unit = self.reader.unit();
                if self.reader.at().next_multiple_of(unit) >= self.end {
                    return Ok(None);
                }
                return Err(self.reader.explain(self.sequence));
            };
            self.sequence += 1;
            let LocatedContent::Batch { ops, body, .. } = found.content else { continue };
            let address =
                RecordAddress { lane: self.lane, segment: self.segment, offset: found.offset };
            let head_bytes = (found.end - found.offset) as usize - body;
            let first = Seqno::try_from(found.seqno)?;
            let body = self.reader.body(&found)?;
            return Ok(Some(SegmentBatch { address, first, ops, head_bytes, body }));
        }
    }
}

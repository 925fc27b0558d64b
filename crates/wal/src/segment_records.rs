//! The batches of one full segment, in order, each verified: for the collector. It reads a device while
//! others write to other segments, in memory bounded by the longest record.
//!
//! Damage is passed over, and told: the batches behind it are read too.

use std::sync::Arc;

use base::{Account, Error, ErrorKind, LaneId, Result, SegmentId, Seqno, StoreId};
use media::{Medium, Purpose};

use crate::address::RecordAddress;
use crate::reader::{LocatedContent, LocatedRecord, SegmentReader, Wanted};
use crate::record::SEQUENCE_BELOW;

/// See the module.
#[derive(Debug)]
pub struct SegmentRecords {
    reader: SegmentReader,
    lane: LaneId,
    segment: SegmentId,
    /// The lane sequence of the next record, and a seqno that is not above its own.
    sequence: u64,
    seqno: u64,
    /// The first damage.
    damage: Option<Error>,
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
    /// `Retry` without memory; the device's.
    pub fn open(
        medium: &Arc<dyn Medium>,
        store: StoreId,
        lane: LaneId,
        segment: SegmentId,
        bytes: u64,
        account: &Account,
    ) -> Result<Self> {
        let (purpose, of) = (Purpose::Compaction, Some(store));
        let opened = SegmentReader::open(&**medium, lane, segment, of, purpose, true, account);
        let (mut reader, header) = opened?;
        let damage = match header {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                reader.assume_identity(store, lane, segment);
                Some(error)
            }
            header => header.map(|_| None)?,
        };
        let begin = match reader.begin() {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            begin => begin?,
        };
        let (sequence, seqno) = begin.map_or((0, 0), |(begin, seqno)| (begin.sequence, seqno));
        Ok(Self { reader, lane, segment, sequence, seqno, damage, end: bytes })
    }

    /// The offset at which the next record is expected.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.reader.at()
    }

    /// The first damage that was found.
    #[must_use]
    pub const fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// The next intact batch; `None` at the end.
    ///
    /// # Errors
    /// The device's, but for bytes that it cannot read.
    pub fn next_batch(&mut self) -> Result<Option<SegmentBatch<'_>>> {
        loop {
            let Some(found) = self.next_record()? else { return Ok(None) };
            debug_assert!(found.sequence >= self.sequence, "lane sequences of a segment only grow");
            self.sequence = found.sequence + 1;
            self.seqno = self.seqno.max(found.next_seqno());
            let LocatedContent::Batch { ops, body, .. } = found.content else { continue };
            let address =
                RecordAddress { lane: self.lane, segment: self.segment, offset: found.offset };
            let head_bytes = (found.end - found.offset) as usize - body;
            let first = Seqno::try_from(found.seqno)?;
            let body = self.reader.body(&found)?;
            return Ok(Some(SegmentBatch { address, first, ops, head_bytes, body }));
        }
    }

    fn next_record(&mut self) -> Result<Option<LocatedRecord>> {
        let error = match self.reader.next(self.sequence) {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {
                let unit = self.reader.unit();
                if self.reader.at().next_multiple_of(unit) >= self.end {
                    return Ok(None);
                }
                self.reader.explain(self.sequence)
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => error,
            Err(error) => return Err(error),
        };
        self.damage.get_or_insert(error);
        let wanted = Wanted { sequence: self.sequence, limit: SEQUENCE_BELOW, seqno: self.seqno };
        self.reader.search(&wanted)
    }
}

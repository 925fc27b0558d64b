//! The address of a record: the place from which it is read again while the log has it.

use base::{LaneId, SegmentId, Seqno};

/// A record of the log: its segment, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordAddress {
    /// The lane.
    pub lane: LaneId,
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the record's first byte.
    pub offset: u64,
}

/// A batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The seqno of its first operation.
    pub first: Seqno,
    /// Its record; `None` for an unlogged batch.
    pub address: Option<RecordAddress>,
}

/// A record, or the first one of a group, that a lane stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) first: Seqno,
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
}

impl Written {
    /// The record behind `before` of the same group.
    pub(crate) fn after(self, before: Before) -> Self {
        let (first, offset) = (self.first.plus(before.ops), self.offset + before.bytes);
        Self { first, offset, ..self }
    }
}

/// The records before one in its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Their operations.
    pub(crate) ops: u64,
    /// Their length, bytes.
    pub(crate) bytes: u64,
}

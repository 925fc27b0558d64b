//! Positions in the log: a cut between two records, and the end of the records appended so far.

use base::{LaneId, SegmentId, Seqno};

/// The lane that receives appends.
pub(crate) const LANE: LaneId = LaneId(0);

/// A position between two records of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The lane.
    pub lane: LaneId,
    /// The segment.
    pub segment: SegmentId,
    /// The offset in the segment's file.
    pub offset: u64,
    /// The lane sequence of the record that follows.
    pub sequence: u64,
}

/// A point in the log. Bytes before it are never written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The lane that receives appends.
    pub lane: LaneId,
    /// The segment being written; earlier segments of the lane are full.
    pub segment: SegmentId,
    /// Used length of the segment at the point, bytes.
    pub bytes: u64,
    /// Length of the segment's file, bytes; zeros follow the point.
    pub capacity: u64,
    /// The last sequence number before the point.
    pub last: Seqno,
}

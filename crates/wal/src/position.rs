//! Positions in the log: a cut between two records, and the end of the records appended so far.

use base::{LaneId, SegmentId, Seqno};

/// The lane that receives appends unless the options say otherwise.
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

/// A point below which the log was once durable, recorded outside the log: a log that ends before it has lost
/// records, even if no later segment shows that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The lane that receives appends.
    pub lane: LaneId,
    /// A segment that was begun durably; the newest one when the point was taken.
    pub segment: SegmentId,
    /// Every record with a lane sequence below this one was durable.
    pub sequence: u64,
    /// Every batch up to this seqno was durable.
    pub last: Seqno,
}

/// A point in a lane. Bytes before it are never written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// A lane that receives appends.
    pub lane: LaneId,
    /// The segment being written; earlier segments of the lane are full.
    pub segment: SegmentId,
    /// Used length of the segment at the point, bytes.
    pub bytes: u64,
    /// Length of the segment's file, bytes; zeros follow the point.
    pub capacity: u64,
    /// The last sequence number in the log, in all of its lanes, when the lane ended at the point.
    pub last: Seqno,
}

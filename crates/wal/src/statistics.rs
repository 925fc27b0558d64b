//! Statistics of a log.

use base::LaneId;

/// Counters since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Lanes that receive appends.
    pub lanes: u64,
    /// Batches appended.
    pub records: u64,
    /// Groups of batches written, with one store each.
    pub groups: u64,
    /// Device syncs.
    pub syncs: u64,
    /// Fences of lanes on storage-class memory: one for each group, in place of a device sync.
    pub fences: u64,
    /// Marks stored.
    pub marks: u64,
    /// Gaps stored: each stands for the unlogged operations between two batches.
    pub gaps: u64,
    /// Operations that were not logged.
    pub unlogged_ops: u64,
    /// Bytes of batches as stored, record headers included.
    pub record_bytes: u64,
    /// Bytes of the batches' bodies.
    pub body_bytes: u64,
    /// Bytes skipped because the record after a sync begins a page.
    pub padding_bytes: u64,
    /// Segments in use, the one being written included.
    pub segments_live: u64,
    /// Segments made.
    pub segments_created: u64,
    /// Segments made while a writer waited, because none was ready.
    pub segments_inline: u64,
    /// Segments removed.
    pub segments_freed: u64,
}

/// A lane that receives appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneStatistics {
    /// The lane.
    pub lane: LaneId,
    /// Whether writers append to the other lanes, and the collector to this one.
    pub is_of_survivors: bool,
    /// Segments in use, the one being written included.
    pub segments: u64,
    /// Their written bytes.
    pub bytes: u64,
    /// Segments made ahead.
    pub ready: u64,
    /// Batches appended since the log was opened.
    pub records: u64,
    /// Groups written with one store each: `records` over `groups` is how many batches waited together.
    pub groups: u64,
    /// Batches that wait for the lane's leader now.
    pub queue: u64,
}

//! What a log did since it was opened.

/// Counters since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Batches appended.
    pub records: u64,
    /// Groups they were written in, one store each.
    pub groups: u64,
    /// Device syncs.
    pub syncs: u64,
    /// Marks stored: how far the lane was durable.
    pub marks: u64,
    /// Bytes of batches as stored, headers included.
    pub record_bytes: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Bytes skipped because a record behind a sync begins a page.
    pub padding_bytes: u64,
    /// Segments in use, the one being written included.
    pub segments_live: u64,
    /// Segments made.
    pub segments_created: u64,
    /// Segments made while a writer waited, because none was prepared.
    pub segments_inline: u64,
    /// Segments removed.
    pub segments_freed: u64,
}

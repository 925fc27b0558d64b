//! Counters of background work.

use base::Counter;

/// Counters of a store's background work, since it was opened.
#[derive(Debug, Default)]
pub struct BackgroundCounters {
    /// Memtables flushed.
    pub flushes: Counter,
    /// Bytes of tables and value files that flushes wrote.
    pub flush_bytes: Counter,
    /// Flushes that failed.
    pub flush_failures: Counter,
    /// Segments of the log out of which the live entries of resident keyspaces were moved.
    pub collected_segments: Counter,
    /// Entries that were moved, and the bytes of the records with their copies.
    pub moved_entries: Counter,
    /// See [`BackgroundCounters::moved_entries`].
    pub moved_bytes: Counter,
    /// Tombstones that were given up, because no older version of their keys was left.
    pub dropped_tombstones: Counter,
    /// Collections that failed.
    pub collect_failures: Counter,
    /// Segments with live entries that the collector could not read.
    pub damaged_segments: Counter,
    /// Those entries, once they were given up.
    pub lost_entries: Counter,
    /// Checkpoints of the indexes of resident keyspaces that were written, and their bytes.
    pub index_checkpoints: Counter,
    /// See [`BackgroundCounters::index_checkpoints`].
    pub index_checkpoint_bytes: Counter,
    /// Checkpoints of indexes that failed.
    pub index_checkpoint_failures: Counter,
    /// Interval syncs that failed.
    pub sync_failures: Counter,
}

//! Counters of background work.

use base::Counter;
use parking_lot::Mutex;

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
    /// The newest checkpoint of indexes, and the log behind it.
    pub index_checkpoint: Mutex<IndexCheckpointStatus>,
    /// Interval syncs that failed.
    pub sync_failures: Counter,
}

/// The newest checkpoint of the indexes of resident keyspaces, and the log that an open would read behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCheckpointStatus {
    /// Length of its file, bytes; 0 without one.
    pub bytes: u64,
    /// When it was begun, Unix seconds; 0 without one, or if its file does not say.
    pub begun: u32,
    /// Bytes that the log wrote since; without one, as far back as this process knows.
    pub log_bytes: u64,
    /// The next one is begun once the log wrote so many bytes.
    pub log_bytes_due: u64,
}

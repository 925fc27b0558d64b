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
    /// Interval syncs that failed.
    pub sync_failures: Counter,
}

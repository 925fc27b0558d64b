//! Counters of reads of cold files.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reads of cold files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColdReads {
    /// Reads that were asked for.
    pub reads: u64,
    /// Ranges that were asked of the other medium for them.
    pub ranges: u64,
    /// Bytes of these ranges.
    pub bytes: u64,
    /// Ranges that could not be read.
    pub failures: u64,
}

/// Relaxed: they publish no other memory.
#[derive(Debug, Default)]
pub(super) struct Counters {
    reads: AtomicU64,
    ranges: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
}

impl Counters {
    /// Counts one range of `bytes` that served `reads`.
    pub(super) fn range(&self, reads: usize, bytes: usize, is_read: bool) {
        self.reads.fetch_add(reads as u64, Relaxed);
        self.ranges.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.failures.fetch_add(u64::from(!is_read), Relaxed);
    }

    pub(super) fn load(&self) -> ColdReads {
        ColdReads {
            reads: self.reads.load(Relaxed),
            ranges: self.ranges.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            failures: self.failures.load(Relaxed),
        }
    }
}

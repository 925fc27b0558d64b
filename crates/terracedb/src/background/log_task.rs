//! The log task: what writers store into is there before they get to it: the pages, and the next
//! segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Progress, Task};
use log::Log;

/// Prepares the log's next stores; woken as the log grows.
pub(crate) struct LogTask {
    pub(crate) log: Arc<Log>,
    /// The length of a segment.
    pub(crate) segment_bytes: u64,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Task for LogTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        self.log.prepare_stores();
        // As soon as the one before is in use: making one takes two syncs, which wait for merges.
        if self.log.bytes() > self.segment_bytes / 4 {
            // A failure is the log's: every writer reports it.
            let _ = self.log.prepare();
        }
        Progress::Idle
    }
}

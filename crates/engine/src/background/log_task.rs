//! The log task: prefaults the log's pages and the memtables' memory ahead of writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Progress, Task};
use wal::Log;

use crate::buffers::Buffers;

/// Prepares the memory that the next writes are stored into. Woken as the log grows. Runs on an executor on
/// which nothing waits, because writers reach that memory some ten milliseconds later.
pub(crate) struct LogTask {
    pub log: Arc<Log>,
    pub buffers: Arc<Buffers>,
    pub stop: Arc<AtomicBool>,
}

impl Task for LogTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        self.log.prepare_stores();
        self.buffers.prefault();
        Progress::Idle
    }
}

//! The log task: what writers store into is there before they get to it: the log's pages, and the
//! memory of memtables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Progress, Task};
use wal::Log;

use crate::buffers::Buffers;

/// Prepares what the next writes are stored into; woken as the log grows, and run where it waits for
/// nothing: writers are some ten milliseconds behind it.
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
        self.buffers.prepare();
        Progress::Idle
    }
}

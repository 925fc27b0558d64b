//! The log task: what writers store into is there before they get to it: the pages, and the next
//! segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Progress, Task};
use log::Log;

use super::LogLimits;

/// Prepares the log's next stores and its next segment; woken as the log grows.
pub(crate) struct LogTask {
    pub(crate) log: Arc<Log>,
    pub(crate) log_limits: LogLimits,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Task for LogTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        self.log.prepare_stores();
        // As soon as the one before is in use: making one takes two syncs, which wait for merges.
        self.log_limits.prepare(&self.log);
        Progress::Idle
    }
}

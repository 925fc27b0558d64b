//! The log task: what writers store into is there before they get to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Progress, Task};
use log::Log;

/// Prepares the log's next stores; woken as the log grows.
pub(crate) struct LogTask {
    pub(crate) log: Arc<Log>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Task for LogTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        self.log.prepare_stores();
        Progress::Idle
    }
}

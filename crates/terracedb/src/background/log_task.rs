//! The log task: what writers need of the log is there before they get to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Progress, Task};
use log::Log;

/// How often the log is looked at where it does not grow.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Prepares the log's next stores and its next segment; woken as the log grows.
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
        // Once the present segment is in use: an idle store keeps one. A failure is the log's, which
        // every writer then reports.
        if self.log.bytes() > self.segment_bytes / 4 {
            let _ = self.log.prepare();
        }
        Progress::IdleFor(LOOK_AROUND)
    }
}

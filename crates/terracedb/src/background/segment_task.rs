//! The segment task: the log's next segment is there before writers need it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Progress, Task};
use log::Log;

use super::LogLimits;

/// Makes the log's next segments; woken as the log grows. Apart from the [`super::LogTask`], which
/// must not wait for the syncs that this takes.
pub(crate) struct SegmentTask {
    pub(crate) log: Arc<Log>,
    pub(crate) log_limits: LogLimits,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Task for SegmentTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        if self.log_limits.prepare(&self.log) { Progress::Again } else { Progress::Idle }
    }
}

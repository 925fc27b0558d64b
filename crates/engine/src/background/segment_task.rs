//! The segment task: the log's next segment is there before writers need it, and space that a pause leaves
//! to it is given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Progress, Seqno, Task};
use wal::Log;

use super::LogLimits;

/// Nobody writes for so long before segments that were made for a log that grew are given back: they are
/// the next writer's otherwise.
const REST: Duration = Duration::from_secs(1);

/// Makes the log's next segments; woken as the log grows. ValueSeparator from the [`super::LogTask`], which
/// must not wait for the syncs that this takes.
pub(crate) struct SegmentTask {
    pub log: Arc<Log>,
    pub log_limits: LogLimits,
    pub stop: Arc<AtomicBool>,
    /// Where the log ended when this last looked.
    pub seen: Seqno,
}

impl Task for SegmentTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        if self.log_limits.prepare(&self.log) {
            return Progress::Again;
        }
        if self.log.prepared() == 0 {
            return Progress::Idle;
        }
        let last = self.log.last();
        if std::mem::replace(&mut self.seen, last) == last {
            self.log_limits.give_back(&self.log);
        }
        Progress::IdleFor(REST)
    }
}

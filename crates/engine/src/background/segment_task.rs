//! The segment task: makes the log's next segments before writers need them, removes spare segments while
//! nobody writes, and records in the manifest that a segment was begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Progress, Seqno, Task};
use manifest::Manifest;
use wal::Log;

use super::log_limits::LogLimits;

/// Spare segments are removed after a pause of this length in which nobody wrote; sooner, the next writer
/// would have to make them again.
const PAUSE: Duration = Duration::from_secs(1);

/// Makes the log's next segments. Woken as the log grows. Apart from the [`super::LogTask`], which must not
/// wait for the syncs that a new segment takes.
pub(crate) struct SegmentTask {
    pub log: Arc<Log>,
    pub manifest: Arc<Manifest>,
    pub log_limits: LogLimits,
    pub stop: Arc<AtomicBool>,
    /// The log's last seqno at the previous check.
    pub last_seen: Seqno,
}

impl Task for SegmentTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        if let Some(reached) = self.log.reached() {
            // Once for each segment: without it, the loss of the whole segment would look like the end of the
            // log. An error poisons the manifest, which the next flush reports; a full device has no space
            // for a new manifest, and the next flush tries again.
            let _ = self.manifest.reach_log(reached, false);
        }
        if self.log_limits.prepare_segment(&self.log) {
            return Progress::Again;
        }
        if self.log.prepared() == 0 {
            return Progress::Idle;
        }
        let last = self.log.last();
        // A group that fails gives its seqnos back: the last one may be lower than before.
        let before = std::mem::replace(&mut self.last_seen, last);
        if before == last {
            self.log_limits.remove_spare_segments(&self.log);
        }
        Progress::IdleFor(PAUSE)
    }
}

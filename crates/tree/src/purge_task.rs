//! The purge task: files that nobody needs any more go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Progress, Task};

use crate::obsolete_files::ObsoleteFiles;

/// Removes obsolete files, one a step; woken where one became so.
pub struct PurgeTask {
    pub obsolete: Arc<ObsoleteFiles>,
    pub stop: Arc<AtomicBool>,
}

impl Task for PurgeTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            // What becomes obsolete from now on goes at once.
            self.obsolete.close();
            return Progress::Done;
        }
        if self.obsolete.purge_one() { Progress::Again } else { Progress::Idle }
    }
}

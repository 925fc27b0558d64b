//! The background task that removes obsolete files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Progress, Task};

use crate::obsolete_files::ObsoleteFiles;

/// Removes obsolete files, one per step. Woken when a file becomes obsolete.
pub struct PurgeTask {
    /// The files to remove.
    pub obsolete: Arc<ObsoleteFiles>,
    /// Set when the store is closed.
    pub stop: Arc<AtomicBool>,
}

impl Task for PurgeTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            // Files that become obsolete from now on are removed by the thread that drops them.
            self.obsolete.close();
            return Progress::Done;
        }
        if self.obsolete.purge_one() { Progress::Again } else { Progress::Idle }
    }
}

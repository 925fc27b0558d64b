//! The engine, as compaction sees it: threads and clock, the size of memtables, the delays of writers.

use std::sync::Arc;

use base::Executor;
use tree::compaction::CompactionHost;

use crate::Resources;
use crate::pace::Pace;

/// What the compactor of one store uses of the engine.
#[derive(Debug)]
pub(crate) struct StoreHost {
    pub resources: Resources,
    pub pace: Arc<Pace>,
}

impl CompactionHost for StoreHost {
    fn executor(&self) -> &dyn Executor {
        self.resources.executor()
    }

    fn memtable_bytes(&self) -> u64 {
        self.resources.memtable_bytes()
    }

    fn debt_changed(&self, runs: f64, space: f64) {
        self.pace.set_trees(runs, space);
    }
}

//! The engine as the compactor sees it: executor, memtable size, write delays.

use std::sync::Arc;

use base::{Executor, invariant};
use compact::offload::Offload;
use tree::compaction::CompactionHost;

use crate::Resources;
use crate::pace::Pace;

/// Windows evict while less than this part of the memory for the metadata of tables is left: more than a few
/// flushes take.
const WINDOWS_EVICT_BELOW: u64 = 8;

/// The parts of the engine that one store's compactor uses.
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

    fn value_bytes_max(&self) -> usize {
        self.resources.value_bytes_max() as usize
    }

    fn are_range_deletes_pressing(&self) -> bool {
        let used = self.resources.range_deletes_account().used();
        used > self.resources.range_deletes_bytes_max() / 2
    }

    fn table_memory_excess(&self) -> u64 {
        let (tables, indexes) = (self.resources.tables_account(), self.resources.indexes_account());
        let most = self.resources.tables_bytes_max();
        let windows_evict = most - most / WINDOWS_EVICT_BELOW;
        invariant!(windows_evict <= most, "windows evict before writes are refused");
        (tables.used() + indexes.used()).saturating_sub(windows_evict)
    }

    fn debt_changed(&self, runs: f64, space: f64) {
        self.pace.set_trees(runs, space);
    }

    fn offload(&self) -> Option<&Arc<dyn Offload>> {
        self.resources.offload()
    }
}

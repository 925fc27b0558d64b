//! What compaction needs of the engine.

use std::fmt;
use std::sync::Arc;

use base::Executor;
use compact::offload::Offload;

/// The engine, as seen by compaction.
pub trait CompactionHost: Send + Sync + fmt::Debug {
    /// Where background work runs, and its clock.
    fn executor(&self) -> &dyn Executor;

    /// The size at which a memtable is sealed now, bytes: the unit in which runs are planned.
    fn memtable_bytes(&self) -> u64;

    /// The longest value that the memory limit allows, bytes.
    fn value_bytes_max(&self) -> usize;

    /// Whether the range deletes of tables take so much memory that merges should drop them first.
    fn are_range_deletes_pressing(&self) -> bool;

    /// Bytes by which the metadata of open tables exceeds the part of its limit from which windows evict.
    /// Above the limit itself writes are refused.
    fn table_memory_excess(&self) -> u64;

    /// The compaction debt changed. `runs` is the fullness of the fullest level of any tree, `space` the
    /// stored bytes over the most that is allowed; writers are delayed above 1.
    fn debt_changed(&self, runs: f64, space: f64);

    /// Takes jobs to workers in other processes; `None`: all jobs run here.
    fn offload(&self) -> Option<&Arc<dyn Offload>>;
}

//! Compaction of a store's trees: runs the jobs that the planner picks, verifies their outputs and installs
//! them.
//!
//! Background tasks ([`CompactTask`]) ask the [`Compactor`] for jobs. It makes a summary of a keyspace's
//! tables, calls [`compact::plan`], reserves the planned rectangle and returns a [`MergeJob`]. It makes
//! trivial moves and drops itself, with one manifest record each. A job runs in bounded steps
//! ([`compact::Run`]). Its outputs are verified. One manifest record then cuts the inputs and adds the
//! outputs, and the new version is installed. Files that no version contains are removed with their cached
//! pages.
//!
//! A job that is lost at any point leaves files that no manifest names (I9): the job removes them when it is
//! dropped, or else the next open does. Two large runs are merged by a series of jobs, one for each slice of
//! their keys; each installs its own outputs, so an interrupted series continues from the last slice. A
//! failing job never fails a write: it is tried again with growing pauses.

mod cached_outputs;
mod compactor;
mod compactor_state;
mod counters;
mod debt;
mod discarding;
mod host;
mod keyspace_state;
mod memory;
mod merge_end;
mod merge_job;
mod next_job;
mod offloading;
mod rate_limiter;
mod reader_share;
mod request;
mod summary;
mod task;
mod trivial_changes;
mod waiters;
mod warm_outputs;

use counters::Counters;

pub use compactor::Compactor;
pub use counters::{CompactionStatistics, DroppedEntries};
pub use host::CompactionHost;
pub use memory::{CompactionMemory, CompactionPool};
pub use merge_job::MergeJob;
pub use request::{Compaction, CompactionProgress};
pub use summary::{bytes_of, file_summary, weight_within};
pub use task::CompactTask;
pub use warm_outputs::{SURVEY_BYTES_MAX, WarmOutputs};

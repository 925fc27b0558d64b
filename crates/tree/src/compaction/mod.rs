//! Compaction in the engine: what the planner chose is run, verified and installed.
//!
//! Two tasks ([`CompactTask`]) ask the [`Compactor`] for work. It makes a summary of a keyspace's
//! tables, asks [`compact::plan`], reserves the rectangle the plan is about, and hands out a
//! [`MergeJob`]; moves and drops of whole tables it does itself, with a manifest record each. A job
//! runs in bounded steps ([`compact::Run`]); its outputs are verified; one manifest record cuts the
//! inputs and adds the outputs; then readers see the new version, and files that no version holds
//! go with their cached pages.
//!
//! A job that is lost at any point leaves files that no manifest names (I9): its own drop removes
//! them, or the next open. Work is installed slice by slice, so what is interrupted goes on from
//! there. A failing job never fails a write: it is tried again later, less and less often.

mod compactor;
mod compactor_state;
mod counters;
mod debt;
mod host;
mod keyspace_state;
mod memory;
mod merge_end;
mod merge_job;
mod next_job;
mod rate_limiter;
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

//! Compaction: which tables to merge, and the merging itself, here or in another process.
//!
//! Level 4 (docs/ARCHITECTURE.md). A pure planner chooses what to merge ([`plan`]). What a flush or
//! a merge may leave out is decided in one place ([`Retention`]), from the sequence numbers at which
//! anyone reads ([`Horizon`]), the keys that older tables may hold ([`OlderRanges`]), the time and the
//! keyspace's merge operator ([`MergeOperator`]). Nothing here knows the engine: inputs come by
//! value, outputs are files and a description of them.

mod builtin;
mod heat;
mod horizon;
pub mod job;
mod message;
mod older_ranges;
mod operands;
mod operator;
mod outcome;
pub mod plan;
mod range;
mod retained_version;
mod retention;
mod run;
mod value_separator;
mod verify;
mod version_counts;

pub use builtin::{Append, I64Add, U64Max, U64Min};
pub use heat::{HOT_BYTES_MAX, RunHeat, hot_ranges};
pub use horizon::Horizon;
pub use job::Job;
pub use older_ranges::OlderRanges;
pub use operator::{MergeOperator, OPERATOR_NAME_BYTES_MAX, Operators};
pub use outcome::Outcome;
pub use range::KeyRange;
pub use retained_version::RetainedVersion;
pub use retention::{Retention, RetentionRules};
pub use run::{Env, Run, run};
pub use value_separator::ValueSeparator;
pub use verify::{HotPage, Verification, verify};
pub use version_counts::VersionCounts;

//! Compaction: planning merges, running them, in this process or another, and verifying their outputs.
//!
//! Level 4 (docs/ARCHITECTURE.md). A pure planner chooses the next merge, move or drop ([`plan`]).
//! [`Retention`] alone decides which versions a flush or a merge may drop. It looks at the sequence numbers
//! of open reads ([`Horizon`]), the key ranges of older tables ([`OlderRanges`]), the time, and the
//! keyspace's merge operator ([`MergeOperator`]). A merge is described by value ([`Job`]), run in bounded
//! steps ([`Run`]) and verified ([`Verification`]) before the manifest names its outputs. This crate does not
//! know the engine: its inputs are plain values and files, its results are files and a description of them
//! ([`Outcome`]).

mod builtin;
mod entry_sums;
mod heat;
mod horizon;
pub mod job;
mod message;
pub mod offload;
mod older_ranges;
mod operands;
mod operator;
mod operators;
mod outcome;
pub mod plan;
mod retained_version;
mod retention;
mod run;
mod saturating_add;
mod selection;
mod value_separator;
mod verify;
mod version_counts;
mod window_priority;

pub use base::KeyRange;
pub use builtin::{Append, I64Add, U64Max, U64Min};
pub use entry_sums::EntrySums;
pub use heat::{HOT_BYTES_MAX, RunHeat, hot_ranges};
pub use horizon::Horizon;
pub use job::Job;
pub use older_ranges::OlderRanges;
pub use operator::MergeOperator;
pub use operators::Operators;
pub use outcome::Outcome;
pub use retained_version::RetainedVersion;
pub use retention::{Retention, RetentionRules};
pub use run::{Env, OpenInput, Run, run};
pub use saturating_add::I64AddSaturating;
pub use selection::{PriorityFn, Selection};
pub use value_separator::ValueSeparator;
pub use verify::{OutputPage, Verification, verify};
pub use version_counts::VersionCounts;
pub use window_priority::{FirstByte, WindowPriority};

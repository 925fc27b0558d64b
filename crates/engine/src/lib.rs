//! The engine: opening and recovering a store, commits, write buffers and backpressure, the memory limit,
//! transactions, ingests, and background tasks.
//!
//! Level 6 (docs/ARCHITECTURE.md). The facade `terracedb` has the public handles and reports; the tools that
//! read or copy a whole store are in `terrace-tools`.

mod background;
mod batch;
mod buffers;
mod cold;
mod commit;
mod compaction_host;
mod entry_options;
mod event_watch;
mod expiry;
mod ingest;
mod keyspace_options;
mod log_media;
mod lost_records;
mod memory;
mod memory_limit;
mod memory_plan;
mod open;
mod pace;
mod read_only;
mod recovery;
mod resources;
mod scm;
mod settings;
mod store;
mod transaction;
mod waiters;
mod watchdog;

pub use background::{Background, BackgroundCounters, IndexCheckpointStatus};
pub use batch::{BatchPart, EncodedBatch};
pub use buffers::Buffers;
pub use cold::{ColdConfig, ColdStatistics, ColdStatus};
pub use commit::Committer;
pub use entry_options::{EntryOptions, entry_put};
pub use expiry::Expiry;
pub use ingest::{Ingest, Ingested};
pub use keyspace_options::{KeyspaceOptions, keyspace_options};
pub use log_media::{JoinedLog, LogConfig, OpenLog, ScmDevices, join_log, open_log, prepare_log};
pub use lost_records::{LogPlace, LostRecords, lost_records};
pub use memory::Memory;
pub use open::{IndexCheck, IndexFact, StoreMedia, check_indexes, inspect_index, open};
pub use pace::{Delays, Pace};
pub use read_only::read_only_files;
pub use recovery::Recovery;
pub use resources::{Components, OffloadsMerges, Resources, ResourcesBuilder};
pub use scm::{Scm, ScmCalibration, ScmStatus};
pub use settings::{LiveSettings, Settings};
pub use store::Store;
pub use transaction::{
    KeySet, KeySpan, Pending, ReadSet, TransactionIter, Transactions, WriteSet, successor,
};
pub use watchdog::Watchdog;

//! The LSM tree of a keyspace: memtables and a version of its tables, the reads and merging iterators over
//! them, flushes, and compaction.
//!
//! Level 5 (docs/ARCHITECTURE.md). The engine above owns the log, commits and the background tasks; a tree
//! knows neither of a store nor of other keyspaces.

pub mod compaction;
mod context;
mod dead_spans;
mod deleted_ranges;
pub mod events;
mod flush;
mod hot_pages;
mod hot_rows;
mod keyspace_counters;
mod memtable;
mod obsolete_files;
mod options;
mod purge_task;
mod quarantine;
mod read_clock;
mod read_context;
pub mod reads;
mod resident;
mod row_compression;
mod row_refresh;
mod snapshot_list;
mod table_file;
mod timekeeper;
mod training;
mod tree;
mod trees;
mod trim_tables;
mod value_file;
mod version;
mod version_filters;
mod write_through;

pub use context::TreeContext;
pub use dead_spans::DeadSpans;
pub use deleted_ranges::DeletedRanges;
pub use flush::FlushJob;
pub use hot_pages::{HotPageReader, hot_pages};
pub use hot_rows::{HotRowReader, add_hot_rows};
pub use keyspace_counters::{LookupCounters, WalkCounters, WriteCounters};
pub use memtable::Memtable;
pub use obsolete_files::{ObsoleteFile, ObsoleteFiles};
pub use options::{OptionSource, TreeOptions};
pub use purge_task::PurgeTask;
pub use quarantine::Quarantine;
pub use read_context::ReadContext;
pub use resident::checkpoint;
pub use resident::{
    LeftOver, LogSegment, LogSegments, Moved, Moves, Places, Resident, ResidentEntries,
    ResidentEntry, ResidentSizes, ResidentVersion,
};
pub use row_compression::RowCompression;
pub use row_refresh::RowRefresh;
pub use snapshot_list::SnapshotList;
pub use table_file::TableFile;
pub use timekeeper::{ClockStatistics, ClockTask, Timekeeper, days};
pub use tree::{EvictionCounters, Tree, VersionEditGuard, View, metadata_bytes};
pub use trees::Trees;
pub use value_file::{ValueFile, ValueFiles};
pub use version::{Change, Piece, Rectangle, Run, Version};

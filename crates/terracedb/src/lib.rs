//! TerraceDB: an embedded key-value store for machines with little DRAM.
//!
//! A [`Db`] holds named [`Keyspace`]s. A write is one operation or a [`WriteBatch`], which is atomic
//! across keyspaces; every write goes through one write-ahead log. A read is a get, a multi-get, a
//! cursor or an iterator, and sees the latest state or a [`Snapshot`]. A [`Transaction`] reads and
//! writes, and is validated at commit. One number, [`Builder::memory`], bounds the memory of a store.
//!
//! ```
//! use terracedb::{Db, WriteBatch};
//!
//! # fn main() -> terracedb::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Db::builder(dir.path()).memory(128 << 20).open()?;
//! let (users, emails) = (db.create_keyspace("users")?, db.create_keyspace("emails")?);
//!
//! let mut batch = WriteBatch::new();
//! batch.put(&users, "ada", "Ada Lovelace")?;
//! batch.put(&emails, "ada@example.org", "ada")?;
//! db.write(&batch)?;
//!
//! let snapshot = db.snapshot();
//! users.delete("ada")?;
//! assert_eq!(users.get("ada")?, None);
//! assert!(snapshot.get(&users, "ada")?.is_some());
//! for entry in emails.prefix("ada")? {
//!     let (email, user) = entry?;
//!     assert_eq!((&email[..], &user[..]), (&b"ada@example.org"[..], &b"ada"[..]));
//! }
//! # Ok(()) }
//! ```
//!
//! The API is synchronous, and every handle may be used from any thread. [`Keyspace::multi_get`] and
//! [`ReadQueue`] keep many device reads in flight from one thread.
//!
//! Features: `tools` (check, repair, scrub, checkpoints and backups; on by default), `zstd` (tables
//! compressed with Zstandard, the only C in the build; on by default), `remote` (cold tables in an object
//! store), and `testing` (hooks of tests and measurements, which change without notice). A build without
//! `zstd` refuses a store with such tables.
//!
//! This crate is the facade: it turns calls into operations of the crates `engine` (write path and
//! recovery), `tree` (lookups, iterators, compaction) and `tools` (check, repair, scrub, backup).

#[cfg(feature = "tools")]
mod backup;
mod batch;
mod builder;
#[cfg(feature = "tools")]
mod checkpoint;
mod db;
mod entries;
mod extract;
mod get;
mod keyspace;
mod log_collection;
mod multi_get;
mod opening;
mod options_of;
mod pop;
mod read_options;
#[cfg(feature = "remote")]
pub mod remote;
mod snapshot;
mod statistics;
#[cfg(test)]
mod tests;
mod transaction;
mod write_options;

pub use base::{Codec, Durability, Error, ErrorKind, Result, Retry};
pub use batch::WriteBatch;
pub use builder::Builder;
pub use bytes::Bytes;
pub use db::Db;
pub use engine::{
    EntryOptions, Expiry, Ingest, KeyspaceOptions, Resources, ResourcesBuilder, Settings,
};
pub use keyspace::Keyspace;
pub use read_options::ReadOptions;
pub use snapshot::Snapshot;
pub use transaction::Transaction;
pub use tree::reads::{Cursor, Entry, Iter, ReadQueue};
pub use write_options::{PutOptions, WriteOptions};

/// Types of iterators that are seldom named: over a transaction, and those that delete what they pass.
pub mod iter {
    pub use engine::TransactionIter;
    pub use tree::reads::KeyEntry;

    pub use crate::extract::{ExtractIf, TransactionExtractIf};
}

/// Compactions by hand: their progress and their end. And merges in worker processes: the workers of a store
/// ([`Builder::workers`]), and a worker.
pub mod compaction {
    pub use ::offload::{
        Address, BLUEFIELD_2, Credentials, EmulatedEngine, EngineProfile, EngineStatistics,
        OpenMedium, PlacementMode, Root, Timing, Worker, WorkerOptions, Workers,
    };
    #[cfg(feature = "tls")]
    pub use ::offload::{HostTls, WorkerTls};
    pub use compact::Operators;
    pub use compact::offload::{
        BlockEngine, BlockStream, Decision, JobShape, Placement, SoftPool, Verify,
    };
    pub use tree::compaction::{Compaction, CompactionProgress};

    /// Offers the merges of every store that shares these resources to workers in other processes, as
    /// [`Builder::workers`](crate::Builder::workers) does for one store.
    #[must_use]
    pub fn with_workers(
        resources: crate::ResourcesBuilder,
        workers: std::sync::Arc<Workers>,
    ) -> crate::ResourcesBuilder {
        engine::OffloadsMerges::offload(resources, workers)
    }
}

/// The environment of a store, for callers that replace a part of it: the storage device
/// ([`Db::on_medium`]), and the threads and the clock ([`ResourcesBuilder::executor`]).
pub mod env {
    pub use base::{
        Clock, Executor, ManualClock, Progress, Stepper, SystemClock, Task, TaskHandle, Threads,
    };
    pub use media::{
        Access, Buf, Capabilities, Completion, File, FileMedium, FileOptions, Listing, Medium,
        MemoryMedium, Op, Purpose, Queue, Refused, Request, Space, Staging,
    };
    pub use wal::OpenDevices;
}

/// Events, for listeners ([`Builder::listener`]).
pub mod events {
    pub use base::TableId;
    pub use tree::events::{Event, Listener, Task};
}

/// Hashed keyspaces ([`KeyspaceOptions::hashed`]): their policy, and all their entries.
pub mod hashed {
    pub use crate::entries::Entries;
    pub use base::{Discard, HashedPolicy};
    pub use compact::{FirstByte, WindowPriority};
}

/// Memory of a program that is charged to the memory limit of its store, such as a server's buffers.
pub mod memory {
    pub use base::{Account, Charge};

    /// The account called `name` of `resources`, made if there is none.
    #[must_use]
    pub fn account(resources: &crate::Resources, name: &'static str) -> Account {
        engine::Components::account(resources, name)
    }
}

/// Results of calls that do not block: reads of a [`ReadQueue`], writes of [`Db::try_write`].
pub mod polling {
    pub use crate::read_options::TryGet;
    pub use crate::write_options::TryWrite;
    pub use read::Completed;
}

/// Merge operators: the trait, and those that every store knows by their `NAME`.
pub mod operators {
    pub use compact::{Append, I64Add, I64AddSaturating, MergeOperator, U64Max, U64Min};
}

/// The report of the recovery that opened a store ([`Db::recovery`]), and of damage.
pub mod recovery {
    pub use base::Problem;
    pub use engine::{LogPlace, LostRecords, Recovery};
}

/// A second cache tier on storage-class memory ([`Builder::scm`]).
pub mod scm {
    pub use cache::Placement;
    pub use engine::{Scm, ScmCalibration};
}

/// Counters and sizes of an open store ([`Db::statistics`]), and sizes as text.
pub mod stats {
    pub use crate::log_collection::{GenerationStatistics, LogCollection};
    pub use crate::statistics::{
        Hits, KeyspaceStatistics, LevelStatistics, LookupStatistics, Statistics, WalkStatistics,
    };
    pub use base::{AccountUsage, format_bytes, format_count, parse_bytes};
    pub use cache::curve::{MissCurve, Point as MissPoint};
    pub use cache::{
        CacheStatistics, KindStatistics, Refusals, RowRefusals, RowSetStatistics, RowStatistics,
        ScmStatistics,
    };
    pub use compact::offload::WorkerStatistics;
    pub use engine::{ColdStatistics, Delays, Ingested, Memory, ScmStatus};
    pub use media::{ColdReads, Counts, Purpose, Usage};
    #[cfg(feature = "tools")]
    pub use tools::ScrubStatistics;
    pub use tree::ClockStatistics;
    pub use tree::compaction::{CompactionStatistics, DroppedEntries};
    pub use wal::{LaneStatistics, Statistics as LogStatistics};
}

/// Check, repair, scrub, checkpoints and backups of stores. Part of the feature `tools`, which is on by
/// default.
#[cfg(feature = "tools")]
pub mod tools {
    pub use crate::backup::Backup;
    pub use ::tools::{
        BackupInfo, BackupList, BackupReport, CheckReport, CheckpointOptions, CheckpointReport,
        DeleteReport, DumpItem, DumpReader, DumpWriter, DumpedKeyspace, LogMoveReport, Lost,
        LostKeys, LostLog, LostRange, PruneOptions, RepairOptions, RepairReport, RepairedFile,
        RestoreReport, ScrubReport, check, check_with, move_log, repair, repair_with,
    };
    pub use base::{Cancel, LineageId, StoreId};
    pub use engine::{IndexFact, LogConfig, inspect_index};

    /// The files of a store as they are now, for a check of a store that another process has open. `medium`
    /// and the devices of `log` may be opened for reading only; no lock is taken. Files that the writer
    /// removes later stay readable through the result.
    ///
    /// # Errors
    /// As [`Builder::open`](crate::Builder::open) with [`read_only`](crate::Builder::read_only).
    pub fn read_only_files(
        medium: &std::sync::Arc<dyn crate::env::Medium>,
        log: &LogConfig,
    ) -> crate::Result<(std::sync::Arc<dyn crate::env::Medium>, LogConfig)> {
        engine::read_only_files(medium, log, &base::Account::unlimited("read-only files"))
    }
    pub use manifest::{ManifestRecord, inspect as inspect_manifest};
}

//! TerraceDB: an embedded key-value store for machines with little DRAM.
//!
//! A [`Db`] holds named [`Keyspace`]s. Writes go through one commit log, singly or as a
//! [`WriteBatch`] that is atomic across keyspaces; reads are gets, many gets at once, cursors and
//! iterators, as of now or as of a [`Snapshot`]; a [`Transaction`] is both, checked at commit. One
//! number bounds the memory of all of it.
//!
//! ```
//! use terracedb::{Db, WriteBatch};
//!
//! # fn main() -> terracedb::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Db::builder(dir.path()).memory(128 << 20).open()?;
//! let (users, emails) = (db.keyspace("users")?, db.keyspace("emails")?);
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
//! The API is synchronous. [`Keyspace::multi_get`] and [`ReadQueue`] keep many device reads in
//! flight from one thread.

mod batch;
mod builder;
mod checkpoint;
mod db;
mod keyspace;
mod multi_get;
mod snapshot;
mod statistics;
#[cfg(test)]
mod tests;
mod transaction;

pub use base::{
    AccountUsage, Codec, Durability, Error, ErrorKind, Problem, Result, format_bytes, format_count,
    parse_bytes,
};
pub use batch::WriteBatch;
pub use builder::Builder;
pub use bytes::Bytes;
pub use cache::curve::{MissCurve, Point as MissPoint};
pub use cache::{Placement, Refusals, RowSetStatistics, ScmStatistics};
pub use compact::MergeOperator;
pub use db::Db;
pub use engine::Delays;
pub use engine::Expiry;
pub use engine::KeyspaceOptions;
pub use engine::Memory;
pub use engine::Recovery;
pub use engine::Settings;
pub use engine::TransactionIter;
pub use engine::{Ingest, Ingested};
pub use engine::{LogPlace, LostRecords};
pub use engine::{Resources, ResourcesBuilder};
pub use engine::{Scm, ScmCalibration, ScmStatus};
pub use keyspace::Keyspace;
pub use manifest::{ManifestRecord, inspect as inspect_manifest};
pub use read::Completed;
pub use snapshot::Snapshot;
pub use statistics::{Hits, KeyspaceStatistics, LevelStatistics, Statistics};
pub use tools::{Backup, BackupInfo, BackupList, BackupReport, DeleteReport, RestoreReport};
pub use tools::{CheckReport, check};
pub use tools::{CheckpointOptions, CheckpointReport};
pub use tools::{Lost, LostLog, LostRange, RepairOptions, RepairReport, RepairedFile, repair};
pub use tools::{ScrubReport, ScrubStatistics};
pub use transaction::Transaction;
pub use tree::ClockStatistics;
pub use tree::compaction::{Compaction, CompactionProgress, CompactionStatistics, DroppedEntries};
pub use tree::events::{Event, Listener, Task};
pub use tree::reads::Cursor;
pub use tree::reads::ReadQueue;
pub use tree::reads::{Entry, Iter};

/// Merge operators that every store knows by their `NAME`.
pub mod operators {
    pub use compact::{Append, I64Add, U64Max, U64Min};
}

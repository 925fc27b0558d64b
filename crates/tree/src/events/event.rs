//! What happens in a store, as data.

use std::fmt;
use std::time::Duration;

use base::{Error, TableId, format_bytes, format_count};

use crate::timekeeper::days;
use base::Problem;

/// Background work that can fail, and recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// Memtables are written to tables.
    Flush,
    /// Tables are merged.
    Compaction,
    /// The log or the manifest: writes are refused until the store is opened again.
    Writing,
    /// The tier of storage-class memory: reads go on without it, until it is opened again.
    Scm,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::Writing => "writing",
            Self::Scm => "the SCM tier",
        })
    }
}

/// What happened in a store. `Display` shows one line. Match fields with `..`: versions to come add some.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A memtable of so many bytes begins to be written to a table.
    FlushBegan {
        /// The keyspace.
        keyspace: String,
        /// Its memory, bytes.
        bytes: u64,
    },
    /// It ended.
    FlushEnded {
        /// The keyspace.
        keyspace: String,
        /// The length of the table, bytes; 0 where nothing in the memtable was worth one, or it
        /// failed.
        bytes: u64,
        /// How long it took.
        took: Duration,
        /// Why it failed; it is tried again.
        error: Option<Error>,
    },
    /// A merge begins.
    CompactionBegan {
        /// The keyspace.
        keyspace: String,
        /// Why it is merged.
        reason: &'static str,
        /// The tables that are read, or parts of them.
        inputs: Vec<TableId>,
        /// About the bytes of those.
        bytes: u64,
    },
    /// It ended.
    CompactionEnded {
        /// The keyspace.
        keyspace: String,
        /// Why it was merged.
        reason: &'static str,
        /// The tables that were read, or parts of them.
        inputs: Vec<TableId>,
        /// The tables that were written; none where it failed.
        outputs: Vec<TableId>,
        /// Bytes of inputs that were read.
        bytes_read: u64,
        /// Bytes of outputs.
        bytes_written: u64,
        /// How long it took.
        took: Duration,
        /// Why it failed; it is tried again, without what is damaged.
        error: Option<Error>,
    },
    /// Writes are delayed from now on, so that background work keeps up.
    DelayBegan {
        /// What does not keep up.
        reason: &'static str,
    },
    /// Writes are no longer delayed.
    DelayEnded,
    /// Nothing has moved for seconds for somebody who waits: a writer, or who asked for a flush, or whoever
    /// waits for the device.
    BlockBegan {
        /// Who waits for what, for how long, and why, as far as that is known.
        what: String,
    },
    /// Nobody waits any more, or it moves again.
    BlockEnded {
        /// How long nothing moved.
        took: Duration,
    },
    /// Damage was met; only the keys on it cannot be read.
    DamageFound {
        /// File, pages and keys.
        problem: Problem,
    },
    /// A damaged table is kept out of merges from now on. It is still read, and never deleted.
    TableQuarantined {
        /// The keyspace.
        keyspace: String,
        /// The table.
        table: TableId,
    },
    /// Every table and value file was read and verified.
    ScrubEnded {
        /// Tables read.
        tables: u64,
        /// Value files read.
        value_files: u64,
        /// Bytes read.
        bytes: u64,
        /// Damages found.
        damages: u64,
        /// How long it took, since the store was opened.
        took: Duration,
    },
    /// A checkpoint was made.
    CheckpointEnded {
        /// Its files.
        files: u64,
        /// Bytes that had to be copied.
        bytes_copied: u64,
    },
    /// A backup was made.
    BackupEnded {
        /// Its number in the repository.
        id: u64,
        /// Bytes that had to be copied.
        bytes_copied: u64,
    },
    /// Background work fails.
    TaskFailed {
        /// Which.
        task: Task,
        /// Why, in words.
        error: String,
    },
    /// Background work that failed goes on.
    TaskRecovered {
        /// Which.
        task: Task,
    },
    /// The tier of storage-class memory is slower than flash, and reads go past it; or it serves again.
    ScmSlow {
        /// Whether it is slower now.
        slow: bool,
        /// What a page from it took lately, nanoseconds.
        hit_nanos: u32,
        /// What one from flash took, nanoseconds.
        flash_nanos: u32,
    },
    /// What tables keep in memory no longer fits half of the memory number, or fits it again.
    MemoryPressure {
        /// Whether it is too much now.
        high: bool,
        /// Filters and separators of all tables, bytes.
        metadata: u64,
        /// The memory number, bytes.
        memory: u64,
    },
    /// The wall clock leapt more than a year ahead, or is no longer doubted for it: it was set right, or
    /// the store was open for a day since. While it is doubted values expire by it, and none is dropped.
    ClockDoubted {
        /// Whether it is doubted now.
        doubted: bool,
        /// How far it leapt; 0 where it is no longer doubted.
        leapt: Duration,
    },
    /// The wall clock is behind the latest time told, by more than clocks are set by, or has caught up.
    /// Expiries are held against the latest time told, which stands still until then.
    ClockBehind {
        /// Whether it is behind now.
        behind: bool,
        /// How far.
        by: Duration,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FlushBegan { keyspace, bytes } => {
                write!(f, "flush of `{keyspace}` begins, {} of memtable", format_bytes(*bytes))
            }
            Self::FlushEnded { keyspace, took, error: Some(error), .. } => {
                write!(f, "flush of `{keyspace}` failed after {took:.1?}: {error}")
            }
            Self::FlushEnded { keyspace, bytes, took, error: None } => {
                write!(f, "flush of `{keyspace}` wrote {} in {took:.1?}", format_bytes(*bytes))
            }
            Self::CompactionBegan { keyspace, reason, inputs, bytes } => write!(
                f,
                "merge of {} of `{keyspace}` begins for {reason}, {}",
                format_count(inputs.len(), "table"),
                format_bytes(*bytes)
            ),
            Self::CompactionEnded { keyspace, took, error: Some(error), .. } => {
                write!(f, "merge in `{keyspace}` failed after {took:.1?}: {error}")
            }
            Self::CompactionEnded {
                keyspace,
                reason,
                inputs,
                outputs,
                bytes_read,
                bytes_written,
                took,
                error: None,
            } => write!(
                f,
                "merge of {} of `{keyspace}` into {} for {reason}: read {}, wrote {} in {took:.1?}",
                format_count(inputs.len(), "table"),
                outputs.len(),
                format_bytes(*bytes_read),
                format_bytes(*bytes_written)
            ),
            Self::DelayBegan { reason } => write!(f, "writes are delayed: {reason}"),
            Self::DelayEnded => f.write_str("writes are no longer delayed"),
            Self::BlockBegan { what } => write!(f, "blocked: {what}"),
            Self::BlockEnded { took } => write!(f, "no longer blocked, after {took:.1?}"),
            Self::DamageFound { problem } => write!(f, "damage: {problem}"),
            Self::TableQuarantined { keyspace, table } => {
                write!(f, "table {table} of `{keyspace}` is damaged and kept out of merges")
            }
            Self::ScrubEnded { tables, value_files, bytes, damages, took } => write!(
                f,
                "scrub of {} and {}, {}, found {} in {took:.1?}",
                format_count(*tables, "table"),
                format_count(*value_files, "value file"),
                format_bytes(*bytes),
                format_count(*damages, "damage")
            ),
            Self::CheckpointEnded { files, bytes_copied } => {
                let (files, copied) = (format_count(*files, "file"), format_bytes(*bytes_copied));
                write!(f, "checkpoint of {files}, {copied} copied")
            }
            Self::BackupEnded { id, bytes_copied } => {
                write!(f, "backup {id}, {} copied", format_bytes(*bytes_copied))
            }
            Self::TaskFailed { task, error } => write!(f, "{task} fails: {error}"),
            Self::TaskRecovered { task } => write!(f, "{task} goes on"),
            Self::ScmSlow { slow, hit_nanos, flash_nanos } => {
                let [hit, flash] = [hit_nanos, flash_nanos].map(|nanos| nanos / 1000);
                let what = if *slow { "is slower than flash" } else { "serves again" };
                write!(f, "the SCM tier {what}: {hit} us a page, flash {flash} us")
            }
            Self::MemoryPressure { high: true, metadata, memory } => write!(
                f,
                "tables need {} of metadata, over half of the {} of memory",
                format_bytes(*metadata),
                format_bytes(*memory)
            ),
            Self::MemoryPressure { high: false, .. } => {
                f.write_str("metadata of tables fits half of the memory again")
            }
            Self::ClockDoubted { doubted: true, leapt } => {
                write!(f, "the wall clock leapt {} ahead and is doubted", days(*leapt))
            }
            Self::ClockDoubted { doubted: false, .. } => {
                f.write_str("the wall clock is no longer doubted")
            }
            Self::ClockBehind { behind: true, by } => {
                write!(f, "the wall clock is {} behind the latest time told", days(*by))
            }
            Self::ClockBehind { behind: false, .. } => {
                f.write_str("the wall clock is no longer behind the latest time told")
            }
        }
    }
}

//! Events of a store, as data.

use std::fmt;
use std::time::Duration;

use base::{Error, Problem, TableId, format_bytes, format_count};

use crate::timekeeper::days;

/// Background work that can fail and recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// Memtables are written to tables.
    Flush,
    /// Tables are merged.
    Compaction,
    /// The log or the manifest. Writes are refused until the store is opened again.
    Writing,
    /// The SCM tier. Reads bypass it until the store is opened again.
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

/// An event of a store. `Display` shows one line. Match fields with `..`: later versions may add some.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The flush of a memtable begins.
    FlushBegan {
        /// The keyspace.
        keyspace: String,
        /// The memtable's memory, bytes.
        bytes: u64,
    },
    /// A flush ended.
    FlushEnded {
        /// The keyspace.
        keyspace: String,
        /// The length of the table, bytes; 0 if no version was worth keeping, or if the flush failed.
        bytes: u64,
        /// How long it took.
        took: Duration,
        /// Why it failed; it will be tried again.
        error: Option<Error>,
    },
    /// A merge begins.
    CompactionBegan {
        /// The keyspace.
        keyspace: String,
        /// The planner's reason.
        reason: &'static str,
        /// The tables that are read, at least in part.
        inputs: Vec<TableId>,
        /// Estimate of the bytes of the inputs.
        bytes: u64,
    },
    /// A merge ended.
    CompactionEnded {
        /// The keyspace.
        keyspace: String,
        /// The planner's reason.
        reason: &'static str,
        /// The tables that were read, at least in part.
        inputs: Vec<TableId>,
        /// The tables that were written; none if the merge failed.
        outputs: Vec<TableId>,
        /// Bytes of inputs that were read.
        bytes_read: u64,
        /// Bytes of outputs.
        bytes_written: u64,
        /// How long it took.
        took: Duration,
        /// Why it failed; it will be tried again, without damaged tables.
        error: Option<Error>,
    },
    /// A window evicted its oldest runs.
    Evicted {
        /// The keyspace.
        keyspace: String,
        /// The tables that were dropped.
        tables: Vec<TableId>,
        /// Versions in them.
        entries: u64,
        /// Their bytes, separated values included.
        bytes: u64,
    },
    /// A worker failed to run a merge. The merge is tried once more with a worker, then in this process.
    OffloadFailed {
        /// The keyspace.
        keyspace: String,
        /// Why it failed.
        error: Error,
    },
    /// Writes are delayed from now on, so that background work catches up.
    DelayBegan {
        /// The background work that does not keep up.
        reason: &'static str,
    },
    /// Writes are no longer delayed.
    DelayEnded,
    /// A caller waits and nothing has moved for seconds: a writer, a caller that asked for a flush, or a
    /// caller that waits for the device.
    BlockBegan {
        /// The waiting thread, its cause and its duration, as far as they are known.
        what: String,
    },
    /// No caller waits any more, or the work makes progress again.
    BlockEnded {
        /// How long nothing moved.
        took: Duration,
    },
    /// Damage was found. Only the keys on it cannot be read.
    DamageFound {
        /// File, pages and keys.
        problem: Problem,
    },
    /// A damaged table is left out of merges from now on. It is still read, and not deleted.
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
        /// The work.
        task: Task,
        /// Why, as text.
        error: String,
    },
    /// Background work that failed works again.
    TaskRecovered {
        /// The work.
        task: Task,
    },
    /// The SCM tier has become slower than flash, so that reads bypass it; or it is used again.
    ScmSlow {
        /// Whether it is slower than flash now.
        slow: bool,
        /// Recent latency of a page in SCM, nanoseconds.
        hit_nanos: u32,
        /// Recent latency of a page on flash, nanoseconds.
        flash_nanos: u32,
    },
    /// The metadata of the tables exceeds half of the memory limit, or fits it again.
    MemoryPressure {
        /// Whether it exceeds half of the limit now.
        high: bool,
        /// Filters and separators of all tables, bytes.
        metadata: u64,
        /// The memory limit, bytes.
        memory: u64,
    },
    /// The wall clock leapt more than a year ahead, or is no longer doubted: it was corrected, or the store
    /// has been open for a day since. While it is doubted, values expire by it, but none is dropped.
    ClockDoubted {
        /// Whether it is doubted now.
        doubted: bool,
        /// How far it leapt; 0 if it is no longer doubted.
        leapt: Duration,
    },
    /// The wall clock is behind the latest time seen, by more than clocks are usually set by, or has caught
    /// up. Expiries are compared with the latest time seen, which stands still until then.
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
            Self::Evicted { keyspace, tables, entries, bytes } => write!(
                f,
                "window `{keyspace}` evicted {} with {}, {}",
                format_count(tables.len(), "table"),
                format_count(*entries, "entry"),
                format_bytes(*bytes)
            ),
            Self::OffloadFailed { keyspace, error } => {
                write!(f, "a worker failed to merge tables of `{keyspace}`: {error}")
            }
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
                write!(f, "the wall clock is {} behind the latest time seen", days(*by))
            }
            Self::ClockBehind { behind: false, .. } => {
                f.write_str("the wall clock is no longer behind the latest time seen")
            }
        }
    }
}

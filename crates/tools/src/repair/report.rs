//! The report of a repair.

use std::fmt;

use base::{Error, StoreId};

use engine::LostRecords;

/// Result of [`repair()`](crate::repair()).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// The store.
    pub store: Option<StoreId>,
    /// Nothing was changed: the report lists the changes that a repair would make.
    pub dry_run: bool,
    /// Tables read.
    pub tables: u64,
    /// Tables in an object store, which are not read.
    pub cold_tables: u64,
    /// Value files read.
    pub value_files: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Why the manifest could not be used as it was; it was rebuilt from the tables and the log.
    pub manifest: Option<Error>,
    /// Keyspaces of a rebuilt manifest in which deleted or overwritten entries may reappear: their tables had
    /// been merged, or only log records name them.
    pub uncertain: Vec<String>,
    /// Keyspaces of a rebuilt manifest that have merge operands, and lost their merge operator, its name
    /// too: reads of these keys fail until the keyspace is opened with the operator that it had.
    pub operators: Vec<String>,
    /// Tables, value files and files of keyspaces that were damaged.
    pub repaired: Vec<RepairedFile>,
    /// Dictionaries that cannot be read.
    pub dictionaries: Vec<String>,
    /// Damage of the log, and the writes that it lost.
    pub log: Option<LostLog>,
    /// Keys that may be lost, or be in a state before some of their writes.
    pub lost: Vec<LostRange>,
    /// Damaged files that were kept, under their new names.
    pub kept: Vec<String>,
}

impl RepairReport {
    /// True if there was nothing to repair.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.manifest.is_none()
            && self.repaired.is_empty()
            && self.dictionaries.is_empty()
            && self.log.is_none()
            && self.lost.is_empty()
    }
}

/// A table, a value file or the file of a keyspace that was damaged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RepairedFile {
    /// The file's name.
    pub file: String,
    /// The keyspace, if it is known.
    pub keyspace: Option<String>,
    /// The first damage.
    pub error: Error,
    /// The file with everything that could be read; `None` if that is nothing. The file of a keyspace is
    /// written anew under its name.
    pub new_file: Option<String>,
    /// Number of entries, or values, that could be read.
    pub versions: u64,
}

/// A range of keys of which some versions may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// The file.
    pub file: String,
    /// Its damaged pages, if some of the file is left: the first, and their number.
    pub pages: Option<(u32, u32)>,
    /// The keyspace, if it is known.
    pub keyspace: Option<String>,
    /// The first and the last key of the range; `None` if they are not known. Reads of these keys find
    /// the versions in older tables.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// The kind of loss.
    pub what: Lost,
}

/// The kind of loss in a range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// Versions of keys.
    Versions,
    /// Range deletes: the entries that they deleted may reappear.
    RangeDeletes,
}

/// The loss in a damaged log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LostLog {
    /// The first damage.
    pub error: Error,
    /// Records lost by that damage and by any behind it. Records between them were read.
    pub lost: Vec<LostRecords>,
    /// If the log ends before the newest write in a table: the first sequence number after its end. Writes
    /// from it on are lost if they are in no table.
    pub ends: Option<u64>,
}

impl LostLog {
    /// Whether writes are lost, and not only the log's own records.
    #[must_use]
    pub fn costs_writes(&self) -> bool {
        self.ends.is_some() || self.lost.iter().any(LostRecords::costs_writes)
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.what {
            Lost::Versions => "lost: ",
            Lost::RangeDeletes => "lost range deletes: ",
        })?;
        match &self.keyspace {
            Some(keyspace) => write!(f, "keyspace `{}`", keyspace.escape_debug())?,
            None => f.write_str("keyspace unknown")?,
        }
        match &self.keys {
            Some((from, to)) => {
                write!(f, ", keys `{}` to `{}`", from.escape_ascii(), to.escape_ascii())?;
            }
            None => f.write_str(", keys unknown")?,
        }
        write!(f, " ({}", self.file)?;
        match self.pages {
            Some((page, 1)) => write!(f, ", page {page})"),
            Some((first, count)) => write!(f, ", pages {first}..={})", first + count.max(1) - 1),
            None => f.write_str(")"),
        }
    }
}

impl fmt::Display for LostLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log: {}", self.error)?;
        for lost in &self.lost {
            write!(f, "\nlog: {lost}")?;
        }
        match self.ends {
            Some(from) => write!(f, "\nlog: it ends before sequence number {from}"),
            None => Ok(()),
        }
    }
}

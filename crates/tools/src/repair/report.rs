//! What a repair did, or would do.

use std::fmt;

use base::{Error, StoreId};

use engine::LostRecords;

/// What [`repair()`](crate::repair()) found and did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// The store.
    pub store: Option<StoreId>,
    /// Whether nothing was changed: the rest says what would be.
    pub dry_run: bool,
    /// Tables read.
    pub tables: u64,
    /// Value files read.
    pub value_files: u64,
    /// The bytes of both.
    pub bytes: u64,
    /// Why the manifest could not be used: it was made anew from what the tables say of themselves.
    pub manifest: Option<Error>,
    /// Keyspaces whose manifest is lost and whose tables had been merged: what was deleted or
    /// superseded in them may be back.
    pub uncertain: Vec<String>,
    /// Tables and value files that were damaged.
    pub repaired: Vec<RepairedFile>,
    /// Dictionaries that cannot be read.
    pub dictionaries: Vec<String>,
    /// Damage of the log, and what it costs.
    pub log: Option<LostLog>,
    /// Keys that may be lost, or be as they were before some of their writes.
    pub lost: Vec<LostRange>,
    /// Damaged files that were kept, under their new names.
    pub kept: Vec<String>,
}

impl RepairReport {
    /// True where there was nothing to repair.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.manifest.is_none()
            && self.repaired.is_empty()
            && self.dictionaries.is_empty()
            && self.log.is_none()
            && self.lost.is_empty()
    }
}

/// A table or a value file that was damaged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RepairedFile {
    /// Its file.
    pub file: String,
    /// The keyspace, where that is known.
    pub keyspace: Option<String>,
    /// What is wrong, the first of it.
    pub error: Error,
    /// The file that holds what could be read; none where that is nothing.
    pub new_file: Option<String>,
    /// Versions of keys that could be read, or values.
    pub versions: u64,
}

/// A range of keys some versions of which may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// The file.
    pub file: String,
    /// Its damaged pages: the first and how many, where some of the file is left.
    pub pages: Option<(u32, u32)>,
    /// The keyspace, where that is known.
    pub keyspace: Option<String>,
    /// From the first key up to the second, both included; none where they are not known. What
    /// older tables hold of these keys is read again.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// What was lost.
    pub what: Lost,
}

/// What was lost in a range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// Versions of keys.
    Versions,
    /// Range deletes: what they deleted may be back.
    RangeDeletes,
}

/// What a damaged log costs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LostLog {
    /// The first damage.
    pub error: Error,
    /// What that damage, and any behind it, costs. What lies between was read.
    pub lost: Vec<LostRecords>,
    /// The log ends before what tables hold: from this sequence number on, what is in no table is lost.
    pub ends: Option<u64>,
}

impl LostLog {
    /// False where only notes of the log's own are lost.
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

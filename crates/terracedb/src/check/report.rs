//! What a check came to.

use std::fmt;

use base::{Error, StoreId};

/// Problems listed; further ones are counted.
const LISTED_MAX: usize = 10_000;

/// What [`crate::check()`] found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// The store; `None` where its manifest is lost.
    pub store: Option<StoreId>,
    /// Keyspaces there are.
    pub keyspaces: usize,
    /// Files read: manifests, dictionaries, tables, value files, log segments.
    pub files: usize,
    /// Their lengths together, bytes.
    pub bytes: u64,
    /// Dictionaries among them.
    pub dictionaries: usize,
    /// Tables among them.
    pub tables: usize,
    /// Pages of tables and value files.
    pub pages: u64,
    /// Versions of keys in tables.
    pub entries: u64,
    /// Long values, which lie apart from their keys in value files.
    pub values: u64,
    /// Log segments.
    pub log_segments: usize,
    /// Write batches in the log.
    pub log_records: u64,
    /// Where the log's tail ends before its last byte, as after a power cut: writes that were
    /// never acknowledged as synced. No damage.
    pub log_torn: Option<String>,
    /// Damaged copies of manifest records whose twin is good: opening the store repairs them.
    pub manifest_repairs: usize,
    /// Files that nothing names: leftovers, which opening removes, or not the store's. No damage.
    pub unowned: Vec<String>,
    /// How many problems there are.
    pub damages: u64,
    /// The problems, the first ten thousand.
    pub problems: Vec<Problem>,
}

impl CheckReport {
    /// True where nothing is damaged or missing.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.damages == 0
    }

    pub(crate) fn note(&mut self, problem: Problem) {
        self.damages += 1;
        if self.problems.len() < LISTED_MAX {
            self.problems.push(problem);
        }
    }
}

/// One thing that is damaged, missing or contradicts another.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The first page concerned and how many are, in a table or value file.
    pub pages: Option<(u32, u32)>,
    /// The keyspace whose keys lie there.
    pub keyspace: Option<String>,
    /// The keys that lie there: from the first up to the second.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// What is wrong.
    pub error: Error,
}

impl Problem {
    pub(crate) fn of(file: &str, error: Error) -> Self {
        let error = error.without_place(file);
        Self { file: file.to_owned(), pages: None, keyspace: None, keys: None, error }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, pages, keyspace, keys, error } = self;
        write!(f, "{file}")?;
        match pages {
            Some((page, 1)) => write!(f, ", page {page}")?,
            Some((first, count)) => write!(f, ", pages {first}..={}", first + count.max(&1) - 1)?,
            None => {}
        }
        if let Some(keyspace) = keyspace {
            write!(f, ", keyspace `{}`", keyspace.escape_debug())?;
        }
        if let Some((from, to)) = keys {
            write!(f, ", keys `{}` to `{}`", from.escape_ascii(), to.escape_ascii())?;
        }
        write!(f, ": {error}")
    }
}

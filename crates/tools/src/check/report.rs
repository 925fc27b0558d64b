//! The report of a check.

use base::{Problem, StoreId};

use super::LostKeys;

/// Most problems that are listed; further ones are only counted.
const LISTED_MAX: usize = 10_000;

/// Result of [`check()`](crate::check()).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// The store; `None` if its manifest is lost.
    pub store: Option<StoreId>,
    /// Number of keyspaces.
    pub keyspaces: usize,
    /// Files read: manifests, dictionaries, tables, value files and log segments.
    pub files: usize,
    /// Sum of their lengths, bytes.
    pub bytes: u64,
    /// Dictionaries among them.
    pub dictionaries: usize,
    /// Tables among them.
    pub tables: usize,
    /// Tables that an object store has. They are not read.
    pub cold_tables: usize,
    /// Pages of tables and value files.
    pub pages: u64,
    /// Entries in tables.
    pub entries: u64,
    /// Separated values in value files.
    pub values: u64,
    /// Log segments.
    pub log_segments: usize,
    /// Write batches in the log.
    pub log_records: u64,
    /// The newest whole checkpoint of the indexes of resident keyspaces.
    pub index_checkpoint: Option<String>,
    /// Entries of resident keyspaces that it points to and that are intact.
    pub resident_entries: u64,
    /// Position of a torn tail of the log, as after a power cut: the writes behind it were never acknowledged
    /// as synced. Not damage.
    pub log_torn: Option<String>,
    /// Damaged copies of manifest records with an intact twin. Opening the store repairs them.
    pub manifest_repairs: usize,
    /// Files that nothing names: orphans, which opening removes, or files that are not the store's. Not
    /// damage.
    pub unowned: Vec<String>,
    /// Number of problems.
    pub damages: u64,
    /// The first ten thousand problems.
    pub problems: Vec<Problem>,
    /// The keys that the problems cost.
    pub lost: LostKeys,
}

impl CheckReport {
    /// Nothing found yet.
    pub(super) fn new() -> Self {
        Self {
            store: None,
            keyspaces: 0,
            files: 0,
            bytes: 0,
            dictionaries: 0,
            tables: 0,
            cold_tables: 0,
            pages: 0,
            entries: 0,
            values: 0,
            log_segments: 0,
            log_records: 0,
            index_checkpoint: None,
            resident_entries: 0,
            log_torn: None,
            manifest_repairs: 0,
            unowned: Vec::new(),
            damages: 0,
            problems: Vec::new(),
            lost: LostKeys::none(),
        }
    }

    /// True if nothing is damaged or missing.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.damages == 0
    }

    /// Adds a problem.
    pub(crate) fn note(&mut self, problem: Problem) {
        self.damages += 1;
        if self.problems.len() < LISTED_MAX {
            self.problems.push(problem);
        }
    }
}

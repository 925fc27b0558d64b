//! The report of a check.

use base::{Problem, StoreId};

/// Most problems that are listed; further ones are only counted.
const LISTED_MAX: usize = 10_000;

/// Result of [`check()`](crate::check()).
#[derive(Clone, Debug, Default)]
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
    /// Position of a torn tail of the log, as after a power cut: the writes behind it were never acknowledged
    /// as synced. Not damage.
    pub log_torn: Option<String>,
    /// Damaged copies of manifest records whose twin is intact. Opening the store repairs them.
    pub manifest_repairs: usize,
    /// Files that nothing names: orphans, which opening removes, or files that are not the store's. Not
    /// damage.
    pub unowned: Vec<String>,
    /// Number of problems.
    pub damages: u64,
    /// The first ten thousand problems.
    pub problems: Vec<Problem>,
}

impl CheckReport {
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

//! A table file of an open store, shared by every version, snapshot and job that uses it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Error, Result};
use cache::LiveFile;
use compact::plan::FileSummary;
use table::{Pointer, Table, ValueRead};

use crate::ValueFile;
use crate::obsolete_files::{ObsoleteFile, ObsoleteFiles};
use manifest::TableEntry;

/// A table, if it could be opened, and what the manifest says of it. The last owner of an obsolete
/// one gives the file up.
pub struct TableFile {
    table: Result<Arc<Table>>,
    entry: Arc<TableEntry>,
    /// The value files it points into, by id.
    values: Vec<Arc<ValueFile>>,
    obsolete_files: Arc<ObsoleteFiles>,
    obsolete: AtomicBool,
    damaged: AtomicBool,
    summary: OnceLock<Arc<FileSummary>>,
    _live: Option<LiveFile>,
}

impl TableFile {
    pub fn new(
        table: Result<Arc<Table>>,
        entry: Arc<TableEntry>,
        mut values: Vec<Arc<ValueFile>>,
        obsolete_files: Arc<ObsoleteFiles>,
    ) -> Arc<Self> {
        values.sort_unstable_by_key(|file| file.id());
        let damaged = AtomicBool::new(table.is_err());
        let obsolete = AtomicBool::new(false);
        let summary = OnceLock::new();
        let _live =
            table.as_ref().ok().map(|table| obsolete_files.register_live(table.footer().digest));
        Arc::new(Self { table, entry, values, obsolete_files, obsolete, damaged, summary, _live })
    }

    /// The table.
    ///
    /// # Errors
    /// Why it could not be opened: reads of its key range cannot be answered.
    pub fn table(&self) -> Result<&Arc<Table>> {
        self.table.as_ref().map_err(Clone::clone)
    }

    pub fn entry(&self) -> &Arc<TableEntry> {
        &self.entry
    }

    /// The value files it points into, by id.
    pub fn values(&self) -> &[Arc<ValueFile>] {
        &self.values
    }

    /// A read of the value that an entry of it points at.
    ///
    /// # Errors
    /// `Corrupt` where that cannot be: the file is missing or damaged, or is none of the table's.
    pub fn read_value(&self, pointer: Pointer) -> Result<ValueRead> {
        let file = self.values.binary_search_by_key(&pointer.file, |file| file.id());
        let file = file.ok().and_then(|at| self.values.get(at)).ok_or_else(|| {
            Error::corrupt("pointer to a value")
                .at(format_args!("table {}", self.entry.id))
                .expected("a value file of the table")
                .got(pointer.file)
        })?;
        ValueRead::new(Arc::clone(file.values()?), pointer)
    }

    /// What planners are told of it.
    pub fn summary(&self) -> &Arc<FileSummary> {
        self.summary.get_or_init(|| Arc::new(crate::compaction::file_summary(self)))
    }

    /// No manifest names the table any more: its file goes when its last reader does.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// No manifest names the table any more.
    pub fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Acquire)
    }

    /// Damage was met in it: kept out of merges, never deleted for that.
    /// Whether it was not marked before.
    pub fn mark_damaged(&self) -> bool {
        !self.damaged.swap(true, Ordering::Relaxed)
    }

    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.is_obsolete() {
            let table = self.table.as_ref().ok();
            self.obsolete_files.add(ObsoleteFile {
                name: table::file_name(self.entry.id),
                cached: table.map(|table| (table.footer().digest, table.footer().pages)),
                open: table.map(|table| Arc::clone(table) as _),
            });
        }
    }
}

impl fmt::Debug for TableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableFile({})", self.entry.id)
    }
}

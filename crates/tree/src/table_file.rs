//! A table file of an open store, shared by every version, snapshot and job that uses it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Account, Charge, Error, Result, invariant};
use bytes::Bytes;
use cache::LiveFile;
use compact::plan::FileSummary;
use manifest::TableEntry;
use media::Purpose;
use table::{Pointer, Table, ValueRead};

use crate::ValueFile;
use crate::compaction::file_summary;
use crate::obsolete_files::{ObsoleteFile, ObsoleteFiles};

/// Fewer split keys do not tell how long a piece is.
const SPLITS_FEW: usize = 16;

/// A table, or the error of opening it, and the manifest's entry for it. When the last owner of an obsolete
/// table drops it, the file is handed to [`ObsoleteFiles`].
pub struct TableFile {
    table: Result<Arc<Table>>,
    entry: Arc<TableEntry>,
    /// The value files that the table points into, in order of ids.
    values: Vec<Arc<ValueFile>>,
    obsolete_files: Arc<ObsoleteFiles>,
    obsolete: AtomicBool,
    damaged: AtomicBool,
    /// With the charge for its keys, which may be long.
    summary: OnceLock<(Arc<FileSummary>, Result<Charge>)>,
    /// The summary with more split keys, once a merge cuts the table.
    cut_summary: OnceLock<(Arc<FileSummary>, Result<Charge>)>,
    /// Lends the memory of the summary: planning frees more.
    account: Account,
    /// The keys of the manifest's entry.
    _charge: Result<Charge>,
    /// Keeps the page cache from treating the file as dead.
    _live: Option<LiveFile>,
}

impl TableFile {
    /// The shared file of `table`, with the value files of `entry` in any order. The keys that it holds are
    /// charged to `account`, if need be above the limit.
    pub fn new(
        table: Result<Arc<Table>>,
        entry: Arc<TableEntry>,
        mut values: Vec<Arc<ValueFile>>,
        obsolete_files: Arc<ObsoleteFiles>,
        account: &Account,
    ) -> Arc<Self> {
        values.sort_unstable_by_key(|file| file.id());
        invariant!(
            table.as_ref().ok().is_none_or(|table| table.id() == entry.id),
            "a table file is that of its entry"
        );
        invariant!(
            values.len() == entry.values.len(),
            "a table file has every value file that its entry names"
        );
        let damaged = AtomicBool::new(table.is_err());
        let obsolete = AtomicBool::new(false);
        let (summary, cut_summary) = (OnceLock::new(), OnceLock::new());
        let account = account.lending();
        let _charge = account.charge(entry.range.key_bytes() as u64);
        let _live =
            table.as_ref().ok().map(|table| obsolete_files.register_live(table.footer().digest));
        Arc::new(Self {
            table,
            entry,
            values,
            obsolete_files,
            obsolete,
            damaged,
            summary,
            cut_summary,
            account,
            _charge,
            _live,
        })
    }

    /// The table.
    ///
    /// # Errors
    /// The error of opening it: then reads of its key range fail.
    pub fn table(&self) -> Result<&Arc<Table>> {
        self.table.as_ref().map_err(Clone::clone)
    }

    /// The manifest's entry for the table.
    pub fn entry(&self) -> &Arc<TableEntry> {
        &self.entry
    }

    /// The value files that the table points into, in order of ids.
    pub fn values(&self) -> &[Arc<ValueFile>] {
        &self.values
    }

    /// A read of the value that an entry of the table points at.
    ///
    /// # Errors
    /// `Corrupt` if the value file is missing or damaged, or if the table does not point into it.
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

    /// The planner's summary of the file. Computed on first use.
    pub fn summary(&self) -> &Arc<FileSummary> {
        let coarse = || self.summary.get_or_init(|| self.charged(file_summary(self)));
        let (summary, _) = self.cut_summary.get().unwrap_or_else(coarse);
        summary
    }

    /// Prepares for pieces of the table: if its summary has few split keys, they could not tell how long the
    /// pieces are. Then reads more of them. Without them, if the read fails, a piece counts as longer than it
    /// is.
    pub fn prepare_cuts(&self) {
        if self.cut_summary.get().is_some() || self.summary().splits.len() >= SPLITS_FEW {
            return;
        }
        let Ok(table) = self.table() else { return };
        if let Ok(splits) = table.block_splits(Purpose::Compaction) {
            let splits = splits.into_iter().map(|(key, bytes)| (Bytes::from(key), bytes)).collect();
            let summary = FileSummary { splits, ..FileSummary::clone(self.summary()) };
            self.cut_summary.get_or_init(|| self.charged(summary));
        }
    }

    fn charged(&self, summary: FileSummary) -> (Arc<FileSummary>, Result<Charge>) {
        let charge = self.account.charge(summary.memory_bytes() as u64);
        (Arc::new(summary), charge)
    }

    /// Marks the table as obsolete: no manifest names it any more. Its file is removed after the last reader
    /// dropped it.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Whether no manifest names the table any more.
    pub fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Acquire)
    }

    /// Marks the table as damaged: merges leave it out, and it is not deleted for that. Returns whether it
    /// was not marked before.
    pub fn mark_damaged(&self) -> bool {
        !self.damaged.swap(true, Ordering::Relaxed)
    }

    /// Whether the table is damaged, or could not be opened.
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

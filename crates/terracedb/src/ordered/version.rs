//! The tables of an ordered keyspace at one moment: immutable, shared, arranged for lookup.
//!
//! Tables are arranged in runs: within a run no two tables overlap in keys, so that one binary
//! search finds the only candidate, and where two tables overlap the newer sits in the higher run
//! (I4). Data written in key order makes one run, whatever the number of tables.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Result;
use cache::PageCache;
use media::Medium;
use table::Table;

use crate::manifest::TableEntry;

/// A table, if it could be opened, and what the manifest says of it. The last owner of an obsolete
/// one removes the file and its cached pages.
pub(crate) struct TableHandle {
    table: Result<Arc<Table>>,
    entry: TableEntry,
    medium: Arc<dyn Medium>,
    cache: Arc<PageCache>,
    space: u32,
    obsolete: AtomicBool,
}

impl TableHandle {
    pub(crate) fn new(
        table: Result<Arc<Table>>,
        entry: TableEntry,
        medium: Arc<dyn Medium>,
        cache: Arc<PageCache>,
        space: u32,
    ) -> Arc<Self> {
        Arc::new(Self { table, entry, medium, cache, space, obsolete: AtomicBool::new(false) })
    }

    /// The table.
    ///
    /// # Errors
    /// Why it could not be opened: reads of its key range cannot be answered.
    pub(crate) fn table(&self) -> Result<&Arc<Table>> {
        self.table.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn entry(&self) -> &TableEntry {
        &self.entry
    }

    /// No manifest names the table any more: its file goes when its last reader does.
    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.cache.remove_table(self.space, self.entry.id);
            // A file that stays is found as an orphan and removed at the next open.
            let _ = self.medium.remove(&table::file_name(self.entry.id));
        }
    }
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableHandle({})", self.entry.id)
    }
}

/// Tables that do not overlap, by first key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run(Vec<Arc<TableHandle>>);

impl Run {
    /// The only table of the run that may hold `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Arc<TableHandle>> {
        let table = self.0.get(self.at_or_after(key))?;
        (table.entry.first_key.as_slice() <= key).then_some(table)
    }

    /// The position of the first table whose last key is `key` or later.
    pub(crate) fn at_or_after(&self, key: &[u8]) -> usize {
        self.0.partition_point(|table| table.entry.last_key.as_slice() < key)
    }

    pub(crate) fn tables(&self) -> &[Arc<TableHandle>] {
        &self.0
    }
}

/// The tables of a keyspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    /// Newest run first.
    runs: Vec<Arc<Run>>,
}

impl Version {
    /// The runs, newest first: for one key, an earlier run holds newer data (I4).
    pub(crate) fn runs(&self) -> &[Arc<Run>] {
        &self.runs
    }

    /// Every table, in no particular order.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.runs.iter().flat_map(|run| &run.0)
    }

    /// This version with `table`, which is newer than all of it, added.
    ///
    /// It joins the oldest run it can: every run it overlaps must stay below.
    pub(crate) fn with_newest(&self, table: Arc<TableHandle>) -> Self {
        let blocked = self.runs.iter().position(|run| overlaps(run, &table.entry));
        let mut runs = self.runs.clone();
        // Runs are newest first: the run just above the newest one it overlaps, or the oldest.
        let slot = match blocked {
            Some(0) => None,
            Some(above) => Some(above - 1),
            None => runs.len().checked_sub(1),
        };
        match slot.and_then(|slot| runs.get_mut(slot)) {
            Some(run) => {
                let mut tables = run.0.clone();
                let at = run.at_or_after(&table.entry.first_key);
                tables.insert(at, table);
                *run = Arc::new(Run(tables));
            }
            None => runs.insert(0, Arc::new(Run(vec![table]))),
        }
        Self { runs }
    }
}

fn overlaps(run: &Run, entry: &TableEntry) -> bool {
    run.0
        .get(run.at_or_after(&entry.first_key))
        .is_some_and(|table| table.entry.first_key <= entry.last_key)
}

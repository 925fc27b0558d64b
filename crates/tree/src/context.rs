//! The components of a store that flushes, compactions and scrubs of its trees share: medium, manifest,
//! caches and memory accounts.

use std::sync::Arc;

use arena::PublishRing;
use base::{Account, KeyRange, Result, RunId, StoreId, TableId};
use cache::PageCache;
use manifest::{Edit, LivePiece, Manifest, TableEntry};
use media::Medium;
use table::{Accounts, StoreDictionaries, Table};
use wal::Log;

use crate::events::Events;
use crate::options::OptionSource;
use crate::{
    LogSegments, ObsoleteFiles, Piece, Quarantine, RowRefresh, SnapshotList, TableFile, Timekeeper,
    Tree, ValueFiles,
};

/// The components of a store that flushes, compactions and scrubs of its trees share.
pub struct TreeContext {
    /// The store's id, part of every page's checksum.
    pub store: StoreId,
    /// The device with the store's files.
    pub medium: Arc<dyn Medium>,
    /// The store's manifest.
    pub manifest: Arc<Manifest>,
    /// The page cache.
    pub cache: Arc<PageCache>,
    /// Refreshes cached rows during flushes.
    pub row_refresh: Arc<RowRefresh>,
    /// The store's compression dictionaries.
    pub dictionaries: Arc<StoreDictionaries>,
    /// The store's open value files.
    pub values: Arc<ValueFiles>,
    /// The segments of the log that hold entries of resident keyspaces.
    pub segments: Arc<LogSegments>,
    /// Files to remove.
    pub obsolete: Arc<ObsoleteFiles>,
    /// The live snapshots.
    pub snapshots: Arc<SnapshotList>,
    /// Publishes batches; knows the newest visible seqno.
    pub ring: Arc<PublishRing>,
    /// The write-ahead log; `None` while it is replayed.
    pub log: Option<Arc<Log>>,
    /// Charged for tables' pinned metadata, also of a table that is being written, and for long values in
    /// flight.
    pub accounts: Accounts,
    /// Charged for the buffers of table writers.
    pub writer_account: Account,
    /// The clock that expiries are compared with.
    pub timekeeper: Arc<Timekeeper>,
    /// The store's event listeners.
    pub events: Arc<Events>,
    /// Damaged tables.
    pub quarantine: Arc<Quarantine>,
    /// Whether the tables that are written sum the hashes of their entries, so that merges of workers can be
    /// checked.
    pub sums_entries: bool,
    /// The options of flushes and merges.
    pub options: Arc<dyn OptionSource>,
}

impl TreeContext {
    /// As `accounts`, for the tables that a flush or merge writes. Their metadata takes less memory than the
    /// memtable or the tables that they replace, which is given back right after.
    pub fn output_accounts(&self) -> Accounts {
        let Accounts { pinned, range_deletes, values, filters } = &self.accounts;
        Accounts {
            pinned: pinned.lending(),
            range_deletes: range_deletes.lending(),
            values: values.clone(),
            filters: filters.clone(),
        }
    }

    /// The shared file of a table of this store, given the opened table or the error of opening it.
    pub fn table_file(&self, table: Result<Arc<Table>>, entry: Arc<TableEntry>) -> Arc<TableFile> {
        let values = entry.values.iter().map(|(id, _)| self.values.get(*id)).collect();
        TableFile::new(table, entry, values, Arc::clone(&self.obsolete), &self.accounts.pinned)
    }

    /// Appends a record to the manifest. If the record contains the clock's time, the timekeeper learns that
    /// it is stored.
    ///
    /// # Errors
    /// The manifest's error: `Poisoned` if it failed before, or an error of the device.
    pub fn append(&self, edits: Vec<Edit>) -> Result<()> {
        let time = edits.iter().find(|edit| matches!(edit, Edit::ClockReached { .. })).cloned();
        self.manifest.append(edits)?;
        if let Some(time) = time {
            self.timekeeper.mark_persisted(&time);
        }
        Ok(())
    }

    /// Whether `tree` has exactly the tables that the manifest names, with the same pieces in the same runs.
    /// Asked under the version edit guard; walks all tables, so only debug builds ask.
    pub fn is_as_recorded(&self, tree: &Tree) -> bool {
        let state = self.manifest.state();
        let Some(entry) = state.keyspaces.get(&tree.id()).filter(|_| !tree.is_dropped()) else {
            return true;
        };
        let recorded = entry.tables.values().flat_map(|table| {
            let of = |piece: &LivePiece| (piece.run, piece.range.clone(), table.entry.id);
            table.pieces.iter().map(of)
        });
        let version = Arc::clone(&tree.view().version);
        let installed = version.runs().iter().flat_map(|run| {
            let of = |piece: &Arc<Piece>| (run.id(), piece.range().clone(), piece.entry().id);
            run.pieces().iter().map(of)
        });
        let sorted = |mut pieces: Vec<(RunId, KeyRange, TableId)>| {
            pieces.sort_by(|a, b| (a.0, &a.1.first, a.2).cmp(&(b.0, &b.1.first, b.2)));
            pieces
        };
        sorted(recorded.collect()) == sorted(installed.collect())
    }
}

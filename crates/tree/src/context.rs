//! What flushes, merges and scrubs of a store's trees share: its medium, manifest, caches and accounts.

use std::sync::Arc;

use arena::PublishRing;
use base::{Account, Result, StoreId};
use cache::PageCache;
use manifest::{Edit, Manifest, TableEntry};
use media::Medium;
use table::{Accounts, Table};
use wal::Log;

use crate::events::Events;
use crate::options::LiveOptions;
use crate::{
    ObsoleteFiles, Quarantine, RowRefresh, SnapshotList, StoreDictionaries, TableFile, Timekeeper,
    ValueFiles,
};

/// What flushes, merges and scrubs of a store's trees share.
pub struct TreeContext {
    pub store: StoreId,
    pub medium: Arc<dyn Medium>,
    pub manifest: Arc<Manifest>,
    pub cache: Arc<PageCache>,
    pub row_refresh: Arc<RowRefresh>,
    pub dictionaries: Arc<StoreDictionaries>,
    pub values: Arc<ValueFiles>,
    pub obsolete: Arc<ObsoleteFiles>,
    pub snapshots: Arc<SnapshotList>,
    pub ring: Arc<PublishRing>,
    /// None while it is replayed.
    pub log: Option<Arc<Log>>,
    /// Charged for tables' pinned metadata, that of one being written too, and for long values in flight.
    pub accounts: Accounts,
    /// Charged for the writer's buffers.
    pub writer_account: Account,
    pub timekeeper: Arc<Timekeeper>,
    pub events: Arc<Events>,
    pub quarantine: Arc<Quarantine>,
    pub options: Arc<LiveOptions>,
}

impl TreeContext {
    /// An open table of this store, or why it could not be opened.
    pub fn table_file(&self, table: Result<Arc<Table>>, entry: Arc<TableEntry>) -> Arc<TableFile> {
        let values = entry.values.iter().map(|(id, _)| self.values.get(*id)).collect();
        TableFile::new(table, entry, values, Arc::clone(&self.obsolete))
    }

    /// Appends a record to the manifest; with the time, where an edit says it.
    pub fn append(&self, edits: Vec<Edit>) -> Result<()> {
        let time = edits.iter().find(|edit| matches!(edit, Edit::ClockReached { .. })).cloned();
        self.manifest.append(edits)?;
        if let Some(time) = time {
            self.timekeeper.mark_persisted(&time);
        }
        Ok(())
    }
}

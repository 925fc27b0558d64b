//! Tables of an ingest that are written and not yet part of a keyspace.

use std::sync::Arc;

use base::{KeyRange, Result, broken_invariant, invariant};
use media::Medium;
use table::{Summary, Table, ValuesSummary, file_name, values_file_name};

/// Written tables that no manifest names yet. Dropping them removes their files.
pub(super) struct Built {
    medium: Arc<dyn Medium>,
    summaries: Vec<Summary>,
    tables: Vec<Arc<Table>>,
    /// The file of the tables' long values.
    values: Option<ValuesSummary>,
}

impl Built {
    pub(super) fn new(medium: Arc<dyn Medium>) -> Self {
        let (summaries, tables, values) = Default::default();
        Self { medium, summaries, tables, values }
    }

    /// Adds a finished table, to be opened next.
    pub(super) fn add(&mut self, summary: Summary) {
        let last = self.summaries.last();
        invariant!(
            last.is_none_or(|last| last.properties.last_key < summary.properties.first_key),
            "tables of an ingest are in key order"
        );
        self.summaries.push(summary);
    }

    /// Adds the opened table of the last summary.
    pub(super) fn opened(&mut self, table: Arc<Table>) {
        self.tables.push(table);
        invariant!(self.tables.len() == self.summaries.len(), "every table is opened once");
    }

    /// Adds the finished file of long values.
    pub(super) fn set_values(&mut self, values: Option<ValuesSummary>) {
        self.values = values;
    }

    pub(super) fn values(&self) -> Option<ValuesSummary> {
        self.values
    }

    pub(super) fn len(&self) -> usize {
        self.summaries.len()
    }

    pub(super) fn summaries(&self) -> &[Summary] {
        &self.summaries
    }

    pub(super) fn file_bytes(&self) -> u64 {
        let tables: u64 = self.summaries.iter().map(|summary| summary.file_bytes).sum();
        tables + self.values.map_or(0, |values| values.file_bytes)
    }

    /// Makes the names of the files durable (I3).
    pub(super) fn sync_names(&self) -> Result<()> {
        let names: Vec<String> = self.names().collect();
        self.medium.sync_names(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let tables = self.summaries.iter().map(|it| file_name(it.table));
        tables.chain(self.values.map(|values| values_file_name(values.file)))
    }

    /// The range from the first key to the last.
    ///
    /// # Errors
    /// Only if an invariant is broken: an ingest with a key has a table.
    pub(super) fn range(&self) -> Result<KeyRange> {
        let ranges = self.summaries.iter().map(|it| manifest::range_of(&it.properties));
        ranges
            .reduce(|all, next| all.hull(&next))
            .ok_or_else(|| broken_invariant!("an ingest that is committed has a table"))
    }

    /// Takes the opened tables, to install them.
    pub(super) fn take_tables(&mut self) -> Vec<Arc<Table>> {
        std::mem::take(&mut self.tables)
    }

    /// Keeps the files when this is dropped: the manifest names them.
    pub(super) fn keep_files(&mut self) {
        self.summaries.clear();
        self.tables.clear();
        self.values = None;
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        for name in self.names() {
            // A file that cannot be removed is an orphan, which the next open removes.
            let _ = self.medium.remove(&name);
        }
    }
}

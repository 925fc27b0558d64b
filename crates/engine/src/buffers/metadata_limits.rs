//! Admits writes only while open tables keep little enough in memory.
//!
//! The metadata of tables cannot be evicted, and background work needs memory beside it. So the writes that
//! add to it are refused before it takes too much (`crate::memory_plan`): entries while the tables are at
//! their limit, which only more memory or less data changes, and range deletes while those of tables are at
//! theirs, which merges change. Memtables that were admitted before may pass both limits when they are
//! flushed: by less than the memory that they give back.
//!
//! Cost: one relaxed load for a write.

use base::{Account, Error, Result, WriteSize, format_bytes};
use tree::Tree;

use super::flush_waits::SHORTAGES_MAX;
use crate::Resources;

/// A writer waits for at most this many merges or flushes.
const CHANGES_MAX: usize = 256;

/// The limits of the memory of open tables.
#[derive(Debug)]
pub(super) struct MetadataLimits {
    resources: Resources,
    tables: Account,
    range_deletes: Account,
    /// The indexes of resident keyspaces, which share the limit of the tables.
    indexes: Account,
}

impl MetadataLimits {
    pub(super) fn new(resources: Resources) -> Self {
        let (tables, range_deletes) =
            (resources.tables_account(), resources.range_deletes_account());
        let indexes = resources.indexes_account();
        Self { resources, tables, range_deletes, indexes }
    }

    /// Admits a write of `size` to `tree`. A range delete waits for merges by `pause`, as long as their
    /// memory changes.
    ///
    /// # Errors
    /// `Invalid` for entries, `Retry` for range deletes, each with the limit.
    pub(super) fn check(&self, tree: &Tree, size: WriteSize, pause: impl Fn()) -> Result<()> {
        if size.entries > 0 && !tree.kind().is_resident() {
            self.check_tables()?;
        }
        if size.ranges > 0 {
            self.check_range_deletes(pause)?;
        }
        Ok(())
    }

    /// As [`MetadataLimits::check`], without waiting.
    pub(super) fn check_now(&self, tree: &Tree, size: WriteSize) -> Result<()> {
        if size.entries > 0 && !tree.kind().is_resident() {
            self.check_tables()?;
        }
        if size.ranges > 0 && self.are_range_deletes_full() {
            return Err(self.refuse_range_deletes());
        }
        Ok(())
    }

    pub(super) fn check_tables(&self) -> Result<()> {
        let most = self.resources.tables_bytes_max();
        let used = self.tables.used() + self.indexes.used();
        if used <= most {
            return Ok(());
        }
        Err(Error::invalid("write while tables need too much memory for their metadata")
            .expected(format_args!("at most {}, a share of the memory limit", format_bytes(most)))
            .got(format_bytes(used)))
    }

    /// The most that the indexes of resident keyspaces may take, beside the tables that are open.
    pub(super) fn index_bytes_max(&self) -> u64 {
        self.resources.tables_bytes_max().saturating_sub(self.tables.used())
    }

    fn are_range_deletes_full(&self) -> bool {
        self.range_deletes.used() > self.resources.range_deletes_bytes_max()
    }

    fn check_range_deletes(&self, pause: impl Fn()) -> Result<()> {
        let (mut pauses, mut before) = (0..SHORTAGES_MAX, 0);
        let mut changes = 0..CHANGES_MAX;
        while self.are_range_deletes_full() {
            let used = self.range_deletes.used();
            if used != before && changes.next().is_some() {
                (pauses, before) = (0..SHORTAGES_MAX, used);
            }
            if pauses.next().is_none() {
                return Err(self.refuse_range_deletes());
            }
            pause();
        }
        Ok(())
    }

    fn refuse_range_deletes(&self) -> Error {
        let most = format_bytes(self.resources.range_deletes_bytes_max());
        Error::retry("memory for range deletes")
            .expected(format_args!(
                "at most {most} for those of tables, a share of the memory limit, until merges drop some"
            ))
            .got(format_bytes(self.range_deletes.used()))
    }
}

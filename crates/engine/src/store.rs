//! An open store: its components, and the operations that need several of them.
//!
//! Only public handles and tools hold a [`Store`]; no component does, so that no cycle keeps it open.

mod keyspaces;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arena::PublishRing;
use base::{Durability, Error, ErrorKind, KeyRange, Owner, Result, StoreId, Write};
use compact::Operators;
use manifest::Manifest;
use media::{Holding, Medium, Metered};
use parking_lot::Mutex;
use table::StoreDictionaries;
use tree::compaction::Compactor;
use tree::events::Events;
use tree::reads::{QueuePool, Reader};
use tree::{LogSegments, Quarantine, SnapshotList, Timekeeper, Tree, Trees};
use wal::Log;

use crate::background::{Background, HotPageList, LogLimits};
use crate::buffers::Buffers;
use crate::cold::{ColdConfig, ColdStatus};
use crate::commit::Committer;
use crate::pace::Pace;
use crate::recovery::Recovery;
use crate::resources::StoreGuard;
use crate::settings::LiveSettings;
use crate::transaction::Transactions;
use crate::watchdog::Watchdog;
use crate::{EncodedBatch, Resources};

/// The components of an open store.
///
/// Fields drop in order: background work first, the directory lock last.
pub struct Store {
    /// The process that opened the store, the only one that may use it.
    pub owner: Owner,
    /// The background tasks.
    pub background: Background,
    /// The store's id.
    pub id: StoreId,
    /// The settings in force.
    pub settings: Arc<LiveSettings>,
    /// The listeners.
    pub events: Arc<Events>,
    /// The damaged tables.
    pub quarantine: Arc<Quarantine>,
    /// The report of the open.
    pub recovery: Recovery,
    /// Commits writes.
    pub committer: Committer,
    /// Commits transactions.
    pub transactions: Transactions,
    /// Answers reads.
    pub reader: Arc<Reader>,
    /// Read queues between uses.
    pub queues: QueuePool,
    /// The open snapshots.
    pub snapshots: Arc<SnapshotList>,
    /// The visible seqno.
    pub ring: Arc<PublishRing>,
    /// The segments of the log that hold entries of resident keyspaces.
    pub segments: Arc<LogSegments>,
    /// The trees of all keyspaces.
    pub trees: Arc<Trees>,
    /// The memtables' memory, and the writers that wait for it.
    pub buffers: Arc<Buffers>,
    /// Merges.
    pub compactor: Arc<Compactor>,
    /// Write delays.
    pub pace: Arc<Pace>,
    /// The write-ahead log.
    pub log: Arc<Log>,
    /// The manifest.
    pub manifest: Arc<Manifest>,
    /// The dictionaries of all keyspaces.
    pub dictionaries: Arc<StoreDictionaries>,
    /// The clock of expiry.
    pub timekeeper: Arc<Timekeeper>,
    /// The known merge operators.
    pub operators: Arc<Operators>,
    /// The directory.
    pub medium: Arc<dyn Medium>,
    /// The same medium, to keep files while they are copied.
    pub holding: Arc<Holding>,
    /// The same medium, for its I/O counters.
    pub metered: Arc<Metered>,
    /// The cold tables; none without an object store.
    pub cold: Option<ColdStatus>,
    /// The object store.
    pub(crate) object_store: Option<ColdConfig>,
    /// Finds blocked calls.
    pub watchdog: Arc<Watchdog>,
    /// Held while a keyspace is created or dropped.
    pub keyspaces: Mutex<()>,
    /// Counts the store among the open ones.
    pub(crate) _entered: StoreGuard,
    /// Memory, caches and executors.
    pub resources: Resources,
    /// The lock of the directory.
    pub(crate) _lock: Box<dyn Any + Send + Sync>,
}

impl Store {
    /// Refuses a value that is too long for the memory limit, an operand without a merge operator, and one
    /// that the operator refuses.
    ///
    /// # Errors
    /// `Invalid`, naming the limit, the missing operator, or the expected form of an operand.
    pub fn check_write(&self, tree: &Tree, write: Write<'_>) -> Result<()> {
        self.owner.check()?;
        if let Write::Merge(operand) = write {
            let view = tree.view();
            let place = |error: Error| error.at(format_args!("`{}`", tree.name()));
            let operator = view.read_context.operator().map_err(place)?;
            operator.validate(operand).map_err(|expected| {
                place(Error::invalid("merge operand"))
                    .expected(format_args!("{expected}, for `{}`", operator.name()))
                    .got(format_args!("{} bytes", operand.len()))
            })?;
        }
        let (len, max) = (write.stored_bytes(), self.resources.value_bytes_max());
        if len as u64 > max {
            return Err(Error::invalid("value length, bytes")
                .expected(format_args!("at most {max}"))
                .got(len));
        }
        Ok(())
    }

    /// Commits a batch of this store's keyspaces.
    ///
    /// # Errors
    /// `Invalid` for a keyspace of another store; those of [`Committer::write_batch`].
    pub fn write_batch(&self, batch: &EncodedBatch, durability: Durability) -> Result<()> {
        self.check_batch_trees(batch)?;
        self.committer.write_batch(batch, durability)
    }

    /// Commits a batch of this store's keyspaces without waiting; returns the time after which to try again
    /// if it would have to wait.
    ///
    /// # Errors
    /// As [`Store::write_batch`] and [`Committer::try_write_batch`].
    pub fn try_write_batch(
        &self,
        batch: &EncodedBatch,
        durability: Durability,
    ) -> Result<Option<Duration>> {
        self.check_batch_trees(batch)?;
        self.committer.try_write_batch(batch, durability)
    }

    /// Refuses a batch of another store's keyspaces.
    fn check_batch_trees(&self, batch: &EncodedBatch) -> Result<()> {
        self.owner.check()?;
        for tree in batch.parts().iter().map(|part| &part.tree) {
            let own = self.trees.get(tree.id()).is_some_and(|own| Arc::ptr_eq(&own, tree));
            if !own && !tree.is_dropped() {
                return Err(Error::invalid("write batch")
                    .expected("keyspaces of this store")
                    .got(format_args!("keyspace `{}` of another store", tree.name())));
            }
        }
        Ok(())
    }

    /// Flushes the memtables of `trees` and waits.
    ///
    /// # Errors
    /// The flush's.
    pub fn flush(&self, trees: &[Arc<Tree>]) -> Result<()> {
        self.owner.check()?;
        self.buffers.check_open()?;
        for tree in trees {
            self.buffers.seal(tree)?;
        }
        self.buffers.wait_until_flushed(trees)
    }

    /// Flushes the memtables that hold unlogged writes, so that nothing acknowledged is only in memory.
    ///
    /// # Errors
    /// The flush's.
    pub fn flush_unlogged(&self) -> Result<()> {
        let has_unlogged = |tree: &Arc<Tree>| {
            let view = tree.view();
            !tree.is_dropped() && view.memtables().any(|memtable| memtable.has_unlogged())
        };
        let trees: Vec<_> = self.trees.all().into_iter().filter(has_unlogged).collect();
        for tree in &trees {
            self.buffers.seal(tree)?;
        }
        self.buffers.wait_until_flushed(&trees)
    }

    /// Flushes `trees` and requests a compaction of `range` in each. Returns the compactor's requests, to
    /// wait for.
    ///
    /// # Errors
    /// The flush's.
    pub fn compact(&self, trees: &[Arc<Tree>], range: &KeyRange) -> Result<Vec<u64>> {
        self.owner.check()?;
        self.flush(trees)?;
        Ok(trees.iter().map(|tree| self.compactor.request(tree, range)).collect())
    }

    /// Waits until there is nothing to flush and nothing to merge. Range deletes are flushed, so that the
    /// space of the keys that they cover is free afterwards.
    ///
    /// # Errors
    /// The error of a flush or merge that fails.
    pub fn wait_until_settled(&self) -> Result<()> {
        self.owner.check()?;
        self.buffers.check_open()?;
        let trees = self.trees.all();
        for tree in trees.iter().filter(|tree| tree.has_waiting_range_deletes()) {
            self.buffers.seal(tree)?;
        }
        self.buffers.wait_until_flushed(&trees)?;
        self.compactor.wait_until_settled()
    }

    /// Flushes everything and removes the log segments that held it, so that a checkpoint copies no log.
    ///
    /// # Errors
    /// Those of the flush, the log and the manifest.
    pub fn flush_for_copy(&self) -> Result<()> {
        self.owner.check()?;
        self.flush(&self.trees.all())?;
        self.log.rotate()?;
        self.log.free(&|start| self.manifest.begin_log(start)).map(drop)
    }

    fn hot_page_list(&self) -> HotPageList {
        HotPageList {
            id: self.id,
            medium: Arc::clone(&self.medium),
            trees: Arc::clone(&self.trees),
            manifest: Arc::clone(&self.manifest),
            reader: Arc::clone(&self.reader),
            ring: Arc::clone(&self.ring),
            resources: self.resources.clone(),
        }
    }

    /// Drops the store in a forked child: no thread is joined, nothing is written, and no lock is taken,
    /// because a thread of the parent may have held it at the fork. The components stay in memory, which is a
    /// copy of the parent's; their files were closed at the fork.
    fn leave_to_parent(&mut self) {
        let tasks = std::mem::take(self.background.tasks.get_mut());
        let parts = (
            Arc::clone(&self.trees),
            Arc::clone(&self.buffers),
            Arc::clone(&self.compactor),
            Arc::clone(&self.log),
            Arc::clone(&self.manifest),
            Arc::clone(&self.reader),
            Arc::clone(&self.holding),
            Arc::clone(&self.dictionaries),
        );
        Box::leak(Box::new((tasks, parts)));
    }

    /// Makes every acknowledged write durable, except unlogged ones.
    ///
    /// # Errors
    /// `Poisoned` if the log is or becomes so.
    pub fn sync(&self) -> Result<()> {
        self.owner.check()?;
        self.log.sync(self.log.last())
    }

    fn stop_background(&self) {
        // A request to the object store may wait for a minute.
        self.object_store.iter().for_each(|config| config.cancel.cancel());
        self.background.stop(self.resources.executor());
    }

    /// Closes the store for writes: flushes unlogged writes, ends the background work, stores the time, and
    /// syncs the log. May be called again; [`Drop`] does.
    ///
    /// # Errors
    /// Those of the log's sync, of the manifest and of a flush of unlogged writes, of a poisoned store its
    /// first error. The store is closed for writes even then.
    pub fn close(&self) -> Result<()> {
        self.owner.check()?;
        if self.settings.load().read_only {
            self.buffers.close();
            self.compactor.close();
            self.background.stop(self.resources.executor());
            return Ok(());
        }
        // A clean end loses no unlogged write that was acknowledged before it.
        let is_first = self.buffers.refuse_writes();
        let flushed = if is_first { self.flush_unlogged() } else { Ok(()) };
        self.buffers.close();
        self.compactor.close();
        self.stop_background();
        if is_first && self.settings.load().hot_pages {
            self.hot_page_list().store();
        }
        // Segments made ahead hold nothing. One that cannot be removed costs its space until the next open.
        if LogLimits::of(&self.resources, self.log.statistics().lanes).is_growing() {
            let _ = self.log.give_back(0);
        }
        // The machine's clock may be set back before the next open. An error loses a minute at most.
        let persisted = self.timekeeper.persist(&self.manifest);
        // Acknowledged writes survive the end of the process anyway. After this sync they also survive a
        // power cut.
        self.sync()?;
        // A check after a clean end misses no record of the log.
        let reached = self.log.reached().map(|reached| self.manifest.reach_log(reached, true));
        persisted?;
        flushed?;
        // A full device has no space for a new manifest, and nothing is lost without this.
        if let Some(Err(error)) = reached
            && error.kind() != ErrorKind::NoSpace
        {
            return Err(error);
        }
        match self.manifest.poisoned() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            return self.leave_to_parent();
        }
        // There is no caller left to report an error to; `close` reports it.
        let _ = self.close();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.id)
    }
}

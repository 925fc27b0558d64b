//! An open store: its components, put together. Only the public handles hold it; no component
//! does.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arena::PublishRing;
use base::limits::{KEYSPACE_NAME_BYTES_MAX, KEYSPACES_MAX};
use base::{Durability, Error, ErrorKind, KeyspaceId, Result, Seqno, StoreId, Write};
use compact::Operators;
use media::{Holding, Medium, Metered};
use parking_lot::Mutex;
use wal::Log;

use crate::background::Background;
use crate::buffers::Buffers;
use crate::commit::Committer;
use crate::open::{Recovery, read_context};
use crate::pace::Pace;
use crate::resources::StoreGuard;
use crate::settings::LiveSettings;
use crate::transaction::Transactions;
use crate::watchdog::Watchdog;
use crate::{EncodedBatch, KeyspaceOptions, Resources};
use base::KeyRange;
use manifest::{Edit, KeyspaceKind, Manifest};
use tree::Quarantine;
use tree::SnapshotList;
use tree::StoreDictionaries;
use tree::Timekeeper;
use tree::Trees;
use tree::compaction::Compactor;
use tree::events::Events;
use tree::reads::{QueuePool, Reader};
use tree::{Memtable, Tree, Version};

/// The components of an open store.
///
/// Fields drop in order: background work first, the directory lock last.
pub struct Store {
    pub background: Background,
    pub id: StoreId,
    pub settings: Arc<LiveSettings>,
    pub events: Arc<Events>,
    pub quarantine: Arc<Quarantine>,
    pub recovery: Recovery,
    pub committer: Committer,
    pub transactions: Transactions,
    pub reader: Arc<Reader>,
    pub queues: QueuePool,
    pub snapshots: Arc<SnapshotList>,
    pub ring: Arc<PublishRing>,
    pub trees: Arc<Trees>,
    pub buffers: Arc<Buffers>,
    pub compactor: Arc<Compactor>,
    pub pace: Arc<Pace>,
    pub log: Arc<Log>,
    pub manifest: Arc<Manifest>,
    pub dictionaries: Arc<StoreDictionaries>,
    pub timekeeper: Arc<Timekeeper>,
    pub operators: Arc<Operators>,
    pub medium: Arc<dyn Medium>,
    /// The medium again, to keep files while they are copied.
    pub holding: Arc<Holding>,
    pub metered: Arc<Metered>,
    pub watchdog: Arc<Watchdog>,
    /// Held while a keyspace is created or dropped.
    pub keyspaces: Mutex<()>,
    pub _entered: StoreGuard,
    pub resources: Resources,
    pub _lock: Box<dyn Any + Send + Sync>,
}

impl Store {
    /// The keyspace called `name`, created if there is none, with these options.
    pub fn keyspace(&self, name: &str, options: &KeyspaceOptions) -> Result<Arc<Tree>> {
        let has = |tree: &Tree| match &options.merge_operator {
            Some(wanted) => tree.view().read_context.operator_name() == Some(wanted),
            None => true,
        };
        if let Some(tree) = self.trees.by_name(name).filter(|tree| has(tree)) {
            return Ok(tree);
        }
        if let Some(operator) = &options.merge_operator
            && self.operators.get(operator).is_none()
        {
            return Err(unknown_operator(operator));
        }
        let _keyspaces = self.keyspaces.lock();
        match self.trees.by_name(name) {
            Some(tree) => self.take_on(&tree, options).map(|()| tree),
            None => self.create_keyspace(name, options),
        }
    }

    /// Gives a keyspace the options it does not have yet.
    fn take_on(&self, tree: &Tree, options: &KeyspaceOptions) -> Result<()> {
        let Some(wanted) = &options.merge_operator else { return Ok(()) };
        let read_context = Arc::clone(&tree.view().read_context);
        match read_context.operator_name() {
            Some(known) if known == wanted => Ok(()),
            Some(known) => Err(Error::invalid("merge operator of a keyspace")
                .at(format_args!("`{}`", tree.name()))
                .expected(format_args!("`{known}`"))
                .got(format_args!("`{wanted}`"))),
            None => {
                let (keyspace, name) = (tree.id(), wanted.clone());
                self.manifest.append(vec![Edit::KeyspaceOperator { keyspace, name }])?;
                read_context.set_operator(wanted.clone(), self.operators.get(wanted).cloned());
                Ok(())
            }
        }
    }

    fn create_keyspace(&self, name: &str, options: &KeyspaceOptions) -> Result<Arc<Tree>> {
        if name.is_empty() || name.len() > KEYSPACE_NAME_BYTES_MAX || name.contains('\0') {
            return Err(Error::invalid("keyspace name")
                .expected(format_args!("1..={KEYSPACE_NAME_BYTES_MAX} bytes, none of them zero"))
                .got(format_args!("`{}`", name.escape_debug())));
        }
        let state = self.manifest.state();
        if state.keyspaces.len() >= KEYSPACES_MAX {
            return Err(Error::invalid("number of keyspaces")
                .expected(format_args!("at most {KEYSPACES_MAX}"))
                .got(state.keyspaces.len() + 1));
        }
        if self.log.statistics().segments_live == 0 {
            // A store with keyspaces has a log, so that a missing one is damage.
            self.log.prepare(1)?;
        }
        let keyspace = state.keyspaces_below.max(KeyspaceId(1));
        let account = self.buffers.account();
        let read_context = read_context(&self.resources, &self.timekeeper);
        let kind = KeyspaceKind::Ordered;
        let mut edits = vec![Edit::KeyspaceCreated { keyspace, kind, name: name.to_owned() }];
        if let Some(operator) = &options.merge_operator {
            edits.push(Edit::KeyspaceOperator { keyspace, name: operator.clone() });
            read_context.set_operator(operator.clone(), self.operators.get(operator).cloned());
        }
        let version = Version::default();
        let tree =
            Tree::new(keyspace, name.to_owned(), version, read_context, account, Seqno::ZERO)?;
        self.manifest.append(edits)?;
        self.trees.insert(Arc::clone(&tree));
        Ok(tree)
    }

    /// Drops the keyspace called `name`, with all its data; whether there was one.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        let _keyspaces = self.keyspaces.lock();
        let Some(tree) = self.trees.by_name(name) else { return Ok(false) };
        // First, so that a flush that finds the keyspace gone from the manifest knows why.
        tree.mark_dropped(true);
        let mut edits = vec![Edit::KeyspaceDropped { keyspace: tree.id() }];
        let start = self.log.start_once_flushed(tree.id(), Seqno::MAX);
        edits.extend(Edit::log_begins(&start));
        if let Err(error) = self.manifest.append(edits) {
            // A manifest that failed at this may say that it is gone: what is written until the next opening
            // tells would be lost. One that failed before was not written to.
            let is_in_doubt = error.kind() != ErrorKind::Poisoned;
            tree.mark_dropped(is_in_doubt && self.manifest.poisoned().is_some());
            return Err(error);
        }
        tree.discard(Memtable::new(self.buffers.account(), Seqno::ZERO).ok());
        self.trees.remove(tree.id());
        self.log.forget(tree.id());
        let state = self.manifest.state();
        self.dictionaries.keep(|id| state.has_dictionary(id));
        self.buffers.wake_flusher();
        Ok(true)
    }

    /// Refuses a value over the limit or over the memory's part, and operands that no operator merges.
    ///
    /// # Errors
    /// `Invalid`, naming the limit or the missing operator.
    pub fn check_write(&self, tree: &Tree, write: Write<'_>) -> Result<()> {
        if let Write::Merge(_) = write {
            let view = tree.view();
            view.read_context.operator().map_err(|e| e.at(format_args!("`{}`", tree.name())))?;
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
    pub fn write_batch(&self, batch: &EncodedBatch, durability: Durability) -> Result<()> {
        for tree in batch.parts().iter().map(|part| &part.tree) {
            let own = self.trees.get(tree.id()).is_some_and(|own| Arc::ptr_eq(&own, tree));
            if !own && !tree.is_dropped() {
                return Err(Error::invalid("write batch")
                    .expected("keyspaces of this store")
                    .got(format_args!("`{}` of another", tree.name())));
            }
        }
        self.committer.write_batch(batch, durability)
    }

    /// Writes what is in `trees`' memtables now to tables, and waits.
    pub fn flush(&self, trees: &[Arc<Tree>]) -> Result<()> {
        for tree in trees {
            self.buffers.seal(tree)?;
        }
        self.buffers.wait_until_flushed(trees)
    }

    /// Asks for `range` of `trees` to be merged, memtables included; what to wait for.
    pub fn compact(&self, trees: &[Arc<Tree>], range: &KeyRange) -> Result<Vec<u64>> {
        self.flush(trees)?;
        Ok(trees.iter().map(|tree| self.compactor.request(tree, range)).collect())
    }

    /// Waits until nothing is left to flush and to merge.
    pub fn wait_until_settled(&self) -> Result<()> {
        self.buffers.wait_until_flushed(&self.trees.all())?;
        self.compactor.wait_until_settled()
    }

    /// Flushes everything, and frees the log that held it: what a copy of the store need not take.
    pub fn flush_for_copy(&self) -> Result<()> {
        self.flush(&self.trees.all())?;
        self.log.rotate()?;
        self.log.free(&|start| self.manifest.begin_log(start)).map(drop)
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        self.log.sync(self.log.last())
    }
}

fn unknown_operator(name: &str) -> Error {
    Error::invalid("merge operator")
        .expected("one given to the builder, or built in")
        .got(format_args!("`{}`", name.escape_debug()))
}

impl Drop for Store {
    fn drop(&mut self) {
        self.buffers.close();
        self.compactor.close();
        self.background.stop(self.resources.executor());
        // The clock may be set back before the next open. Where it fails, a minute at most is lost.
        let _ = self.timekeeper.persist(&self.manifest);
        // What the process acknowledged survives it either way; a power cut right after a clean
        // close should lose nothing too. There is nobody left to tell of a failure.
        let _ = self.sync();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.id)
    }
}

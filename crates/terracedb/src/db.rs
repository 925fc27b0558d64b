//! The handle of an open store.

use std::path::Path;
use std::sync::Arc;

use base::{Durability, KeyRange, Result};
use engine::{Recovery, Settings, Store};
use media::Medium;
use tools::{ScrubReport, Scrubber};
use tree::compaction::Compaction;
use tree::reads::ReadQueue;

use crate::builder::{Builder, StoreLocation};
use crate::statistics::Statistics;
use crate::transaction::transact;
use crate::{Keyspace, KeyspaceOptions, Resources, Snapshot, Transaction, WriteBatch};

/// An open store. Cheap to clone; safe to share; closed when the last handle is gone.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = terracedb::Db::builder(dir.path()).open()?;
/// let fruit = db.keyspace("fruit")?;
/// fruit.put("apple", "red")?;
/// assert_eq!(fruit.get("apple")?.as_deref(), Some(&b"red"[..]));
/// for entry in fruit.iter()? {
///     let (key, value) = entry?;
///     println!("{key:?} = {value:?}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Db {
    store: Arc<Store>,
    scrubber: Arc<Scrubber>,
}

impl Db {
    pub(crate) const fn new(store: Arc<Store>, scrubber: Arc<Scrubber>) -> Self {
        Self { store, scrubber }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Starts opening the store in the directory `path`.
    #[must_use]
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(StoreLocation::Path(path.as_ref().to_owned()))
    }

    /// Starts opening the store on a storage device of the caller's.
    #[must_use]
    pub fn on_medium(medium: Arc<dyn Medium>) -> Builder {
        Builder::new(StoreLocation::Medium(medium))
    }

    /// The keyspace called `name`, created if there is none.
    ///
    /// # Errors
    /// `Invalid` where the name is empty, over 255 bytes or holds a zero byte, or there are 1,024
    /// keyspaces already.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.keyspace_with(name, &KeyspaceOptions::new())
    }

    /// As [`Db::keyspace`] with options; one that exists takes on those it does not have yet.
    ///
    /// # Errors
    /// As [`Db::keyspace`]; `Invalid` where the process does not know the merge operator, or the
    /// keyspace has another.
    pub fn keyspace_with(&self, name: &str, options: &KeyspaceOptions) -> Result<Keyspace> {
        let tree = self.store.keyspace(name, options)?;
        Ok(Keyspace::new(Arc::clone(&self.store), tree))
    }

    /// The keyspace called `name`, if there is one.
    #[must_use]
    pub fn existing_keyspace(&self, name: &str) -> Option<Keyspace> {
        let tree = self.store.trees.by_name(name)?;
        Some(Keyspace::new(Arc::clone(&self.store), tree))
    }

    /// Every keyspace, oldest first.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<Keyspace> {
        let keyspace = |tree| Keyspace::new(Arc::clone(&self.store), tree);
        self.store.trees.all().into_iter().map(keyspace).collect()
    }

    /// Drops the keyspace called `name` with all its data; whether there was one. Handles to it
    /// answer `Closed` from then on; iterators and snapshots being read go on until they end.
    ///
    /// # Errors
    /// The manifest's. Where that is not poisoned by it (`Statistics::poisoned`), the keyspace still exists.
    /// Otherwise it is known at the next opening whether it does, and until then its handles answer
    /// `Closed`.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.store.drop_keyspace(name)
    }

    /// Commits `batch` with the store's default durability: all of it becomes visible at once,
    /// and after a crash all of it is there or none.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Invalid` where the batch needs more memory than the write buffers
    /// have, about a quarter of the memory number, or range deletes of one keyspace in it more than 16 MiB.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.write_with(batch, self.store.settings.load().durability)
    }

    /// As [`Db::write`] with a durability of its own.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn write_with(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.store.write_batch(batch.encoded(), durability)
    }

    /// The whole store as of now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.store))
    }

    /// A transaction over any keyspaces, as of now.
    #[must_use]
    pub fn transaction(&self) -> Transaction {
        Transaction::new(Arc::clone(&self.store))
    }

    /// Runs `work` in a transaction and commits it with the store's default durability; what `work`
    /// returned. Where another write came between, all of it is run again, 100 times at most, with
    /// growing pauses. Where `work` fails, nothing is written.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// let counters = db.keyspace("counters")?;
    /// let visits = db.transact(|transaction| {
    ///     let old = transaction.get(&counters, "visits")?.unwrap_or_default();
    ///     let new = old.len() + 1;
    ///     transaction.put(&counters, "visits", vec![b'|'; new])?;
    ///     Ok(new)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Conflict` where others always came between; `work`'s; as [`Transaction::commit`].
    pub fn transact<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        transact(&self.store, work)
    }

    /// A queue to keep up to `depth` gets in flight from one thread; see [`Keyspace::submit`].
    ///
    /// # Errors
    /// `Invalid` where `depth` is not 1 to 1,024, `Retry` where the system gives no queue.
    pub fn read_queue(&self, depth: usize) -> Result<ReadQueue> {
        ReadQueue::new(Arc::clone(&self.store.reader), &*self.store.medium, depth)
    }

    /// Writes every memtable to tables and waits for it.
    ///
    /// # Errors
    /// The flush's: `NoSpace` where the device is full.
    pub fn flush(&self) -> Result<()> {
        self.store.flush(&self.store.trees.all())
    }

    /// Merges every keyspace into as few tables as hold it, and waits for it.
    ///
    /// # Errors
    /// As [`Compaction::wait`].
    pub fn compact(&self) -> Result<()> {
        self.start_compaction()?.wait()
    }

    /// Starts what [`Db::compact`] does.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn start_compaction(&self) -> Result<Compaction> {
        let requests = self.store.compact(&self.store.trees.all(), &KeyRange::all())?;
        Ok(Compaction::new(
            Arc::clone(&self.store.compactor),
            requests,
            Arc::clone(&self.store) as _,
        ))
    }

    /// Waits until nothing is left to flush, nothing to merge as if nobody wrote, and the space of files
    /// that nobody reads any more is given back.
    ///
    /// # Errors
    /// Why merges fail.
    pub fn wait_until_settled(&self) -> Result<()> {
        self.store.wait_until_settled()
    }

    /// Makes every write acknowledged so far durable.
    ///
    /// # Errors
    /// `Poisoned` where a sync failed: what was not durable then may be lost.
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let memory = self.store.resources.memory();
        let mut settings = Settings::clone(&self.store.settings.load());
        settings.memory = memory;
        settings
    }

    /// Changes settings while the store is open: all of what `change` does, or nothing. They are in
    /// force for the next write, flush, merge or scrubbed page; the settings then. Other changes
    /// wait meanwhile, so `change` must not make one.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// db.change_settings(|settings| {
    ///     settings.durability = terracedb::Durability::Sync;
    ///     settings.scrub_rate = 1 << 20;
    /// })?;
    /// assert_eq!(db.settings().scrub_rate, 1 << 20);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid` where a setting is out of range or cannot be changed, naming it.
    pub fn change_settings(&self, change: impl FnOnce(&mut Settings)) -> Result<Settings> {
        let resources = &self.store.resources;
        let set_memory = |bytes| resources.set_memory(bytes).map(drop);
        let new = self.store.settings.change(resources.memory(), change, set_memory)?;
        // Intervals that became shorter are not slept through.
        self.store.background.wake();
        Ok(new)
    }

    /// Reads every table and value file and verifies each page, now and as fast as the device gives,
    /// which the store otherwise does in the background. What is damaged is kept out of merges and
    /// collections from then on.
    ///
    /// # Errors
    /// `Retry` where memory is short. Damage is no error: the report has it.
    pub fn scrub(&self) -> Result<ScrubReport> {
        self.scrubber.scrub_now()
    }

    /// What the store did and holds.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.store, &self.scrubber)
    }

    /// What opening the store found.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.store.recovery
    }

    /// The memory, cache and threads it works with.
    #[must_use]
    pub fn resources(&self) -> &Resources {
        &self.store.resources
    }
}

#[doc(hidden)]
impl AsRef<Store> for Db {
    fn as_ref(&self) -> &Store {
        &self.store
    }
}

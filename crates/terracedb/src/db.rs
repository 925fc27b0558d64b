//! The database handle and how it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{Codec, Durability, Result, StoreId};
use compact::{MergeOperator, Operators};
use media::{FileMedium, FileOptions, Medium};

use crate::statistics::Statistics;
use crate::transaction::transact;
use crate::{
    Keyspace, KeyspaceOptions, Resources, ResourcesBuilder, Snapshot, Transaction, WriteBatch,
};
use base::KeyRange;
use engine::Settings;
use engine::Store;
use engine::{Recovery, open};
use tools::{ScrubReport, Scrubber};
use tree::compaction::Compaction;
use tree::events::{Events, Listener};
use tree::reads::ReadQueue;

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

/// Opens a [`Db`].
#[derive(Debug)]
pub struct Builder {
    place: StoreLocation,
    create: bool,
    /// What a store that is created is to be; drawn where it is not said.
    identity: Option<StoreId>,
    /// Where no resources are given.
    own: ResourcesBuilder,
    resources: Option<Resources>,
    settings: Settings,
    merge_operators: Vec<Arc<dyn MergeOperator>>,
    listeners: Vec<Arc<dyn Listener>>,
}

#[derive(Debug)]
enum StoreLocation {
    Path(PathBuf),
    Medium(Arc<dyn Medium>),
}

impl Builder {
    fn new(place: StoreLocation) -> Self {
        let settings = Settings::default();
        let (own, resources, merge_operators, listeners) = Default::default();
        let identity = None;
        Self { place, create: true, identity, own, resources, settings, merge_operators, listeners }
    }

    /// Whether to create a store where there is none; so by default.
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// What a store that is created is to be, for simulations: which page lies where in a tier below DRAM
    /// follows from it. No two stores may have the same.
    #[doc(hidden)]
    #[must_use]
    pub fn identity(mut self, id: StoreId) -> Self {
        self.identity = Some(id);
        self
    }

    /// Memory of its own, bytes; as [`crate::ResourcesBuilder::memory`]. Ignored where
    /// [`Builder::resources`] is given.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.own = self.own.memory(bytes);
        self
    }

    /// Threads of its own for background work; as [`crate::ResourcesBuilder::background_threads`].
    /// Ignored where [`Builder::resources`] is given.
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.own = self.own.background_threads(threads);
        self
    }

    /// A second cache tier of its own, on storage-class memory; as [`crate::ResourcesBuilder::scm`].
    /// Ignored where [`Builder::resources`] is given.
    #[must_use]
    pub fn scm(mut self, scm: crate::Scm) -> Self {
        self.own = self.own.scm(scm);
        self
    }

    /// Keeps no single rows in DRAM, for measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn without_rows(mut self) -> Self {
        self.own = self.own.without_rows();
        self
    }

    /// Shares memory, cache and threads with other stores of the process.
    #[must_use]
    pub fn resources(mut self, resources: &Resources) -> Self {
        self.resources = Some(resources.clone());
        self
    }

    /// When writes are acknowledged unless they say otherwise; [`Durability::None`] by default:
    /// acknowledged writes survive the process, the last ones may not survive a power cut.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }

    /// The longest time an `Interval` write stays at the mercy of a power cut; 100 ms by default.
    #[must_use]
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.settings.sync_interval = interval;
        self
    }

    /// How new tables are compressed; LZ4 by default.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.settings.codec = codec;
        self
    }

    /// The Zstandard level, -7 to 22; 3 by default.
    #[must_use]
    pub fn zstd_level(mut self, level: i32) -> Self {
        self.settings.zstd_level = level;
        self
    }

    /// How fast merges may read and write, all together, bytes a second; 0 by default, for no limit.
    #[must_use]
    pub fn compaction_rate(mut self, bytes_per_second: u64) -> Self {
        self.settings.compaction_rate = bytes_per_second;
        self
    }

    /// How fast tables are read again in the background and verified, bytes a second; 4 MiB by
    /// default, 0 for never.
    #[must_use]
    pub fn scrub_rate(mut self, bytes_per_second: u64) -> Self {
        self.settings.scrub_rate = bytes_per_second;
        self
    }

    /// How often all tables are; every seven days by default.
    #[must_use]
    pub fn scrub_interval(mut self, interval: Duration) -> Self {
        self.settings.scrub_interval = interval;
        self
    }

    /// Calls `listener` on what happens in the store.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use terracedb::{Db, Event, Listener};
    ///
    /// #[derive(Debug, Default)]
    /// struct Log(Mutex<Vec<String>>);
    ///
    /// impl Listener for Log {
    ///     fn event(&self, event: &Event) {
    ///         self.0.lock().unwrap().push(event.to_string());
    ///     }
    /// }
    ///
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let log = Arc::new(Log::default());
    /// let db = Db::builder(dir.path()).listener(log.clone()).open()?;
    /// db.keyspace("fruit")?.put("apple", "red")?;
    /// db.flush()?;
    /// drop(db);
    /// assert!(log.0.lock().unwrap().iter().any(|event| event.contains("flush of `fruit`")));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.listeners.push(listener);
        self
    }

    /// The shape that merges give the tree, for tests and measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn compaction_options(mut self, options: compact::plan::Options) -> Self {
        self.settings.compaction = options;
        self
    }

    /// Opens even where the log is damaged: what can be read before and behind the damage is replayed, and
    /// flushed, for which there must be space. [`Db::recovery`] says what is lost.
    #[must_use]
    pub fn recover_damaged_log(mut self, recover: bool) -> Self {
        self.settings.recover_damaged_log = recover;
        self
    }

    /// Makes `operator` known by its name, for the keyspaces that use it
    /// ([`KeyspaceOptions::merge_operator`]). A store opens without the operators it once used: then
    /// only what they should merge cannot be read.
    #[must_use]
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Self {
        self.merge_operators.push(operator);
        self
    }

    /// Opens the store, recovering it from whatever state it was left in.
    ///
    /// # Errors
    /// `Invalid` where a setting is out of range, two merge operators have one name, another process
    /// has the store open, a newer version wrote it, or there is none and none is to be created.
    /// `Corrupt` where the manifest or what must be in the log is damaged.
    pub fn open(self) -> Result<Db> {
        self.settings.validate()?;
        let resources = self.resources.map_or_else(|| self.own.build(), Ok)?;
        let medium: Arc<dyn Medium> = match self.place {
            StoreLocation::Path(path) => {
                let options = FileOptions { create: self.create, ..FileOptions::default() };
                Arc::new(FileMedium::open(&path, options)?)
            }
            StoreLocation::Medium(medium) => medium,
        };
        let mut operators = Operators::builtin();
        for operator in self.merge_operators {
            operators.add(operator)?;
        }
        let events = Arc::new(Events::new(self.listeners));
        let create = match (self.create, self.identity) {
            (false, _) => None,
            (true, Some(id)) => Some(id),
            (true, None) => Some(StoreId::random()?),
        };
        let store = Arc::new(open(medium, resources, self.settings, operators, events, create)?);
        let scrubber = Scrubber::start(&store);
        Ok(Db { store, scrubber })
    }
}

impl Db {
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

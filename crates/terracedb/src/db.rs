//! [`Db`], the handle of an open store: keyspaces, batches, snapshots, maintenance, settings, statistics.

use std::path::Path;
use std::sync::Arc;

use base::{Error, KeyRange, Result};
use engine::{Recovery, Settings, Store};
use media::Medium;
#[cfg(feature = "tools")]
use tools::{ScrubReport, Scrubber};
use tree::Tree;
use tree::compaction::Compaction;
use tree::reads::{ReadQueue, open_queue};

use crate::builder::{Builder, StoreLocation};
use crate::opening::Opening;
use crate::polling::TryWrite;
use crate::statistics::Statistics;
use crate::transaction::transact;
use crate::{
    Keyspace, KeyspaceOptions, Resources, Snapshot, Transaction, WriteBatch, WriteOptions,
};

/// An open store.
///
/// A handle is cheap to clone and may be used from any thread. The store closes when its last handle
/// is dropped: `Db`, [`Keyspace`], [`Snapshot`] and [`Transaction`] are handles.
///
/// A store belongs to the process that opened it. In a process forked from that one every call that can fail
/// answers [`ErrorKind::Closed`](crate::ErrorKind::Closed), and dropping a handle has no effect on the store.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = terracedb::Db::builder(dir.path()).open()?;
/// let fruit = db.create_keyspace("fruit")?;
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
    // Dropped first: it refers to parts of the store, which gives up the directory lock last.
    #[cfg(feature = "tools")]
    scrubber: Arc<Scrubber>,
    store: Arc<Store>,
    /// For [`Db::refresh`]: set if the store is open for reading only.
    opening: Option<Arc<Opening>>,
}

impl Db {
    /// The handle of an opened store. Its background scrub begins now.
    pub(crate) fn new(store: Arc<Store>, opening: Option<Arc<Opening>>) -> Self {
        Self {
            #[cfg(feature = "tools")]
            scrubber: Scrubber::start(&store),
            store,
            opening,
        }
    }

    #[cfg(any(test, feature = "tools"))]
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// A builder that opens the store in the directory `path`.
    #[must_use]
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(StoreLocation::Path(path.as_ref().to_owned()))
    }

    /// A builder that opens the store on `medium`, a storage device that the caller implements.
    #[must_use]
    pub fn on_medium(medium: Arc<dyn Medium>) -> Builder {
        Builder::new(StoreLocation::Medium(medium))
    }

    /// Opens the keyspace `name`, which must exist: a wrong name creates nothing.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// use terracedb::ErrorKind;
    /// db.create_keyspace("users")?;
    /// assert_eq!(db.keyspace("users")?.name(), "users");
    /// assert_eq!(db.keyspace("usres").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.store.keyspace(name).map(|tree| self.handle(tree))
    }

    /// Creates the keyspace `name`, which must not exist.
    ///
    /// # Errors
    /// `AlreadyExists` if it exists. `Invalid` if the name is empty, longer than 255 bytes or contains a
    /// zero byte, or if the store has 1,024 keyspaces already.
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.create_keyspace_opt(name, &KeyspaceOptions::new())
    }

    /// As [`Db::create_keyspace`], with options.
    ///
    /// # Errors
    /// As [`Db::create_keyspace`]; `Invalid` if the merge operator is not registered
    /// ([`Builder::merge_operator`]).
    pub fn create_keyspace_opt(&self, name: &str, options: &KeyspaceOptions) -> Result<Keyspace> {
        self.store.create_keyspace(name, options).map(|tree| self.handle(tree))
    }

    /// Opens the keyspace `name`, and creates it if it does not exist.
    ///
    /// # Errors
    /// As [`Db::create_keyspace`], without `AlreadyExists`.
    pub fn open_or_create_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.open_or_create_keyspace_opt(name, &KeyspaceOptions::new())
    }

    /// As [`Db::open_or_create_keyspace`], with options. An existing keyspace adopts the options that it
    /// lacks.
    ///
    /// # Errors
    /// As [`Db::create_keyspace_opt`], without `AlreadyExists`; `Invalid` if the keyspace has another merge
    /// operator.
    pub fn open_or_create_keyspace_opt(
        &self,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<Keyspace> {
        self.store.open_or_create_keyspace(name, options).map(|tree| self.handle(tree))
    }

    fn handle(&self, tree: Arc<Tree>) -> Keyspace {
        Keyspace::new(Arc::clone(&self.store), tree)
    }

    /// Every keyspace, in order of creation.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<Keyspace> {
        self.store.trees.all().into_iter().map(|tree| self.handle(tree)).collect()
    }

    /// Drops the keyspace `name` with all its data, and returns true; false if it does not exist.
    ///
    /// Calls on its handles fail with `Closed` afterwards. Iterators and cursors that are open read on
    /// until they are dropped.
    ///
    /// # Errors
    /// An error of the manifest's write. If the manifest is still usable ([`Statistics::poisoned`] is
    /// `None`), the keyspace still exists. If the error poisoned the manifest, the next opening shows
    /// whether the keyspace exists, and until then its handles answer `Closed`.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.store.drop_keyspace(name)
    }

    /// Commits `batch` with the store's default durability. Its operations become visible together, and
    /// a crash leaves all of them or none.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Invalid` if the batch needs more memory than the write buffers have (about
    /// a quarter of the memory limit), or if its range deletes of one keyspace need more than 16 MiB.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.write_opt(batch, &WriteOptions::new())
    }

    /// As [`Db::write`], with options.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn write_opt(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        self.store.write_batch(batch.encoded(), options.durability_in(&self.store))
    }

    /// Commits `batch` without waiting, for programs that must not block a thread: an event loop, an async
    /// runtime. Returns [`TryWrite::Done`], or [`TryWrite::Wait`] with the time after which to try again, if
    /// flushes or merges are behind and [`Db::write`] would wait for them. Nothing was written then.
    ///
    /// The call encodes the batch into the log and the memtables, and makes the system calls of an append:
    /// now and then the preparation of a log segment. It does not sync: with
    /// [`Durability::Interval`](crate::Durability::Interval), the background does. A program that must know
    /// that its writes are durable calls [`Db::sync`] on a thread that may wait, once for all writes before
    /// it. The example `event_loop` does both.
    ///
    /// # Errors
    /// As [`Db::write`]; `Invalid` if the durability of `options`, or the store's default, is
    /// [`Durability::Sync`](crate::Durability::Sync).
    pub fn try_write(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<TryWrite> {
        let durability = options.durability_in(&self.store);
        let wait = self.store.try_write_batch(batch.encoded(), durability)?;
        Ok(wait.map_or(TryWrite::Done, TryWrite::Wait))
    }

    /// A snapshot of the whole store: it reads every write that is visible now, and no later one.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.store))
    }

    /// Begins a transaction over any keyspaces. It reads a snapshot that is taken now.
    #[must_use]
    pub fn transaction(&self) -> Transaction {
        Transaction::new(Arc::clone(&self.store))
    }

    /// Runs `work` in a transaction, commits it with the store's default durability, and returns the
    /// result of `work`.
    ///
    /// If the commit conflicts with another write, `work` runs again in a new transaction, at most 100
    /// times in all, with growing random pauses of up to about 10 ms. If `work` fails, nothing is
    /// written and its error is returned.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// let counters = db.create_keyspace("counters")?;
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
    /// `Conflict` if every run conflicted; the error of `work`; as [`Transaction::commit`].
    pub fn transact<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_opt(&WriteOptions::new(), work)
    }

    /// As [`Db::transact`]; the commit has `options`.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn transact_opt<T>(
        &self,
        options: &WriteOptions,
        work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        transact(&self.store, options, work, Error::is_conflict)
    }

    /// As [`Db::transact_opt`], for work with an error type of its own, which the errors of the store turn
    /// into. Conflicts of the commit run `work` again; every error of `work` ends it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open().unwrap();
    /// # let accounts = db.create_keyspace("accounts").unwrap();
    /// #[derive(Debug)]
    /// enum Refused {
    ///     NoMoney,
    ///     Store(terracedb::Error),
    /// }
    ///
    /// impl From<terracedb::Error> for Refused {
    ///     fn from(error: terracedb::Error) -> Self {
    ///         Self::Store(error)
    ///     }
    /// }
    ///
    /// let options = terracedb::WriteOptions::new();
    /// let paid = db.transact_with(&options, |transaction| {
    ///     if transaction.get(&accounts, "ada")?.is_none() {
    ///         return Err(Refused::NoMoney);
    ///     }
    ///     transaction.delete(&accounts, "ada")?;
    ///     Ok(())
    /// });
    /// assert!(matches!(paid, Err(Refused::NoMoney)));
    /// ```
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn transact_with<T, E: From<Error>>(
        &self,
        options: &WriteOptions,
        work: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        transact(&self.store, options, work, |_| false)
    }

    /// A queue that keeps up to `depth` gets in flight from one thread; see [`Keyspace::submit`].
    ///
    /// # Errors
    /// `Invalid` if `depth` is not 1 to 1,024; `Retry` if the operating system refuses a queue.
    pub fn read_queue(&self, depth: usize) -> Result<ReadQueue> {
        self.store.owner.check()?;
        open_queue(Arc::clone(&self.store.reader), &*self.store.medium, depth)
    }

    /// Flushes every memtable to tables, and returns when they are durable.
    ///
    /// # Errors
    /// The error of the flush: `NoSpace` if the device is full.
    pub fn flush(&self) -> Result<()> {
        self.store.flush(&self.store.trees.all())
    }

    /// Compacts every keyspace into as few tables as hold it, and waits until that is done.
    ///
    /// # Errors
    /// As [`Compaction::wait`].
    pub fn compact(&self) -> Result<()> {
        self.start_compaction()?.wait()
    }

    /// Starts the compaction of [`Db::compact`] without waiting: flushes, then merges in the background.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn start_compaction(&self) -> Result<Compaction> {
        let requests = self.store.compact(&self.store.trees.all(), &KeyRange::all())?;
        Ok(self.store.compactor.handle(requests, Arc::clone(&self.store) as _))
    }

    /// Waits until no flush is due, the compaction debt of an idle store is worked off, and obsolete
    /// files that no reader uses are removed.
    ///
    /// # Errors
    /// The error of the last merge, if merges fail.
    pub fn wait_until_settled(&self) -> Result<()> {
        self.store.wait_until_settled()
    }

    /// Syncs the log: every write acknowledged before the call is durable when it returns.
    ///
    /// # Errors
    /// `Poisoned` if a sync failed, now or earlier: writes that were not durable then may be lost.
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// Closes the store: ends its background work and syncs the log, and reports an error of that, which a
    /// dropped handle cannot. After success every write that was acknowledged before the call is durable.
    ///
    /// From then on, writes, flushes, compactions and changes of keyspaces fail with `Closed`; reads of
    /// handles that are left work on. The directory stays locked until the last handle is dropped. Closing
    /// again is allowed. A listener must not call it, since it waits for background work.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// let users = db.create_keyspace("users")?;
    /// users.put("ada", "London")?;
    /// db.close()?;
    /// assert_eq!(users.put("ada", "Paris").unwrap_err().kind(), terracedb::ErrorKind::Closed);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Poisoned` if a write or sync of the log or the manifest failed, now or earlier: writes that were not
    /// durable then may be lost.
    pub fn close(&self) -> Result<()> {
        self.store.close()
    }

    /// The present state of a store that is open for reading only, opened anew with the same resources and
    /// caches. This handle and those from it go on with the state that they have.
    ///
    /// # Errors
    /// `Invalid` if the store is not open for reading only, since it sees every write; as
    /// [`Builder::open`].
    pub fn refresh(&self) -> Result<Self> {
        self.store.owner.check()?;
        let Some(opening) = &self.opening else {
            return Err(Error::invalid("refresh").expected("a store that is open for reading only"));
        };
        let store = Arc::new(opening.open(None)?);
        Ok(Self::new(store, Some(Arc::clone(opening))))
    }

    /// Whether the store is open for reading only ([`Builder::read_only`]).
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.opening.is_some()
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let memory = self.store.resources.memory();
        let mut settings = Settings::clone(&self.store.settings.load());
        settings.memory = memory;
        settings
    }

    /// Changes settings of the open store, and returns the settings that result.
    ///
    /// Either all changes that `change` makes take effect or none. They apply from the next write,
    /// flush, merge or scrubbed page on. A lock is held while `change` runs, so `change` must not call
    /// `change_settings`.
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
    /// `Invalid` if a setting is out of range or cannot change while the store is open; it names the setting.
    pub fn change_settings(&self, change: impl FnOnce(&mut Settings)) -> Result<Settings> {
        self.store.owner.check()?;
        let resources = &self.store.resources;
        let set_memory = |bytes| resources.set_memory(bytes).map(drop);
        let new = self.store.settings.change(resources.memory(), change, set_memory)?;
        // Background threads may sleep for an old, longer interval: wake them.
        self.store.background.wake();
        Ok(new)
    }

    /// Reads every table and value file and verifies every page, at the full speed of the device.
    ///
    /// The background scrub does the same at [`Settings::scrub_rate`]. A damaged file is quarantined:
    /// merges and value collections leave it out from then on.
    ///
    /// # Errors
    /// `Retry` if memory is short. Damage is not an error: the report lists it.
    #[cfg(feature = "tools")]
    pub fn scrub(&self) -> Result<ScrubReport> {
        self.store.owner.check()?;
        self.scrubber.scrub_now()
    }

    /// A copy of the store's counters and sizes.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let statistics = Statistics::of(&self.store);
        #[cfg(feature = "tools")]
        let statistics = Statistics { scrub: self.scrubber.statistics(), ..statistics };
        statistics
    }

    /// The report of the recovery that opened the store.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.store.recovery
    }

    /// The memory, caches and threads that the store uses, possibly shared with other stores.
    #[must_use]
    pub fn resources(&self) -> &Resources {
        &self.store.resources
    }
}

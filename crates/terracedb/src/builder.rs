//! [`Builder`]: the location, settings, resources, listeners, merge operators and window priorities of a
//! store, and its opening.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{Codec, Durability, Result, StoreId};
use compact::{MergeOperator, WindowPriority};
use engine::{ColdConfig, LogConfig, Settings};
use media::{FileMedium, FileOptions, Medium};
use tree::events::Listener;

use crate::opening::Opening;
use crate::{Db, Resources, ResourcesBuilder};

/// Options for opening a [`Db`]; [`Builder::open`] opens it.
#[derive(Debug)]
pub struct Builder {
    location: StoreLocation,
    create: bool,
    /// The id of a store that is created; `None` draws a random one.
    identity: Option<StoreId>,
    /// Resources for this store alone; used if `resources` is `None`.
    own: ResourcesBuilder,
    /// Resources that are shared with other stores.
    resources: Option<Resources>,
    settings: Settings,
    log: LogConfig,
    object_store: Option<Box<dyn OpenObjectStore>>,
    merge_operators: Vec<Arc<dyn MergeOperator>>,
    window_priorities: Vec<Arc<dyn WindowPriority>>,
    listeners: Vec<Arc<dyn Listener>>,
}

/// Opens the object store of cold tables.
pub(crate) trait OpenObjectStore: std::fmt::Debug + Send + Sync {
    fn open(&self, resources: &Resources, read_only: bool) -> Result<ColdConfig>;
}

#[cfg(feature = "testing")]
impl OpenObjectStore for (Arc<dyn Medium>, Duration) {
    fn open(&self, _resources: &Resources, _read_only: bool) -> Result<ColdConfig> {
        let (medium, after) = (Arc::clone(&self.0), self.1);
        Ok(ColdConfig { medium, after, read_only: false, cancel: base::Cancel::new() })
    }
}

#[derive(Debug)]
pub(crate) enum StoreLocation {
    Path(PathBuf),
    Medium(Arc<dyn Medium>),
}

impl Builder {
    pub(crate) fn new(location: StoreLocation) -> Self {
        let settings = Settings::default();
        let (own, resources, merge_operators, window_priorities) = Default::default();
        let listeners = Vec::new();
        let identity = None;
        Self {
            location,
            create: true,
            identity,
            own,
            resources,
            settings,
            log: LogConfig::default(),
            object_store: None,
            merge_operators,
            window_priorities,
            listeners,
        }
    }

    /// Whether to create a store if there is none; true by default.
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// The id of a store that is created, for simulations: the positions of pages in an SCM tier depend
    /// on it. No two stores may have the same id.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn identity(mut self, id: StoreId) -> Self {
        self.identity = Some(id);
        self
    }

    /// The memory of this store, bytes; as [`crate::ResourcesBuilder::memory`]. Ignored if
    /// [`Builder::resources`] is given.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.own = self.own.memory(bytes);
        self
    }

    /// Threads for the background work of this store; as
    /// [`crate::ResourcesBuilder::background_threads`]. Ignored if [`Builder::resources`] is given.
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.own = self.own.background_threads(threads);
        self
    }

    /// A second cache tier for this store, on storage-class memory (SCM); as
    /// [`crate::ResourcesBuilder::scm`]. Ignored if [`Builder::resources`] is given.
    #[must_use]
    pub fn scm(mut self, scm: crate::scm::Scm) -> Self {
        self.own = self.own.scm(scm);
        self
    }

    /// Offers merges to workers in other processes; merges that no worker takes or ends run here. Ignored if
    /// [`Builder::resources`] is given: see [`crate::compaction::with_workers`].
    #[must_use]
    pub fn workers(mut self, workers: Arc<crate::compaction::Workers>) -> Self {
        self.own = crate::compaction::with_workers(self.own, workers);
        self
    }

    /// Turns the row cache off, for measurements.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn without_rows(mut self) -> Self {
        self.own = self.own.without_rows();
        self
    }

    /// Shares memory, caches and threads with other stores of the process.
    #[must_use]
    pub fn resources(mut self, resources: &Resources) -> Self {
        self.resources = Some(resources.clone());
        self
    }

    /// The durability of writes that do not state one; [`Durability::Interval`] by default, here and in the
    /// configuration of the command `terrace`.
    ///
    /// An acknowledged write survives the death of the process at any setting. By default a power cut may
    /// undo writes of the last [`Builder::sync_interval`] and no older ones, which costs one sync per
    /// interval, whatever the number of writes. [`Durability::Sync`] lets a write return once it is durable;
    /// it waits for the device, alone or in a group with others. [`Durability::None`] never syncs for a
    /// write, so that a power cut may undo all that was not flushed.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }

    /// The longest time after which a [`Durability::Interval`] write is durable; 100 ms by default.
    #[must_use]
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.settings.sync_interval = interval;
        self
    }

    /// The codec that compresses new tables; LZ4 by default.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.settings.codec = codec;
        self
    }

    /// The level of [`Codec::Zstd`], -7 to 22; 3 by default.
    #[must_use]
    pub fn zstd_level(mut self, level: i32) -> Self {
        self.settings.zstd_level = level;
        self
    }

    /// The level of [`Codec::Deflate`], 1 to 9; 6 by default.
    #[must_use]
    pub fn deflate_level(mut self, level: i32) -> Self {
        self.settings.deflate_level = level;
        self
    }

    /// The limit on reads and writes of all merges together, bytes per second; 0, the default, is no limit.
    #[must_use]
    pub fn compaction_rate(mut self, bytes_per_second: u64) -> Self {
        self.settings.compaction_rate = bytes_per_second;
        self
    }

    /// Whether flushes and merges put the pages that they write into the page cache while it is not full, so
    /// that data that fits into memory is never read from the device; true by default. A merge also caches
    /// the outputs that take the place of cached inputs.
    #[must_use]
    pub fn write_through(mut self, is_on: bool) -> Self {
        self.settings.write_through = is_on;
        self
    }

    /// Whether the store keeps a list of up to 1 GiB of pages that are hot in the page cache, and of rows
    /// with up to 16 MiB of keys, and reads them ahead in the background when it is opened, as far as the
    /// caches have free memory; true by default. The list is stored when the store closes and every 5
    /// minutes.
    #[must_use]
    pub fn hot_pages(mut self, is_on: bool) -> Self {
        self.settings.hot_pages = is_on;
        self
    }

    /// The rate of the background scrub, which reads and verifies tables, bytes per second; 4 MiB by
    /// default, 0 turns it off.
    #[cfg(feature = "tools")]
    #[must_use]
    pub fn scrub_rate(mut self, bytes_per_second: u64) -> Self {
        self.settings.scrub_rate = bytes_per_second;
        self
    }

    /// The interval in which the background scrub visits every table; seven days by default.
    #[cfg(feature = "tools")]
    #[must_use]
    pub fn scrub_interval(mut self, interval: Duration) -> Self {
        self.settings.scrub_interval = interval;
        self
    }

    /// Calls `listener` for every event of the store: flushes, merges, stalls, damage.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use terracedb::Db;
    /// use terracedb::events::{Event, Listener};
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
    /// db.create_keyspace("fruit")?.put("apple", "red")?;
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

    /// Options of the compaction planner, for tests and measurements.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn compaction_options(mut self, options: compact::plan::Options) -> Self {
        self.settings.compaction = options;
        self
    }

    /// Places the log on devices of storage-class memory (SCM): directories on DAX or in memory
    /// (`/dev/shm/log`), one for each device. A synced write then waits for a fence of the processor, and for
    /// no device.
    ///
    /// A store that is created keeps its log there; an existing store finds its devices without this call,
    /// and needs it only if they are at other places than before. On DAX the writes survive a power cut as
    /// soon as they are acknowledged; in memory they survive the process, not a restart of the machine.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let (dir, log) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    /// use terracedb::{Db, Durability};
    /// let builder = Db::builder(dir.path()).log_path([log.path().display().to_string()]);
    /// let db = builder.durability(Durability::Sync).open()?;
    /// db.create_keyspace("fruit")?.put("apple", "red")?;
    /// assert_eq!(db.statistics().log.syncs, 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn log_path(mut self, places: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.log.places = places.into_iter().map(Into::into).collect();
        self
    }

    /// The number of lanes of each device of a new log on storage-class memory, 1 to 16: as many threads
    /// write to a device at once. By default as many as the device's calibration says, or 2 to 8.
    #[must_use]
    pub fn log_lanes(mut self, lanes: u16) -> Self {
        self.log.lanes = Some(lanes);
        self
    }

    /// Opens the places of the log's devices by other means, for tests and simulations.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn log_devices(mut self, devices: Arc<dyn wal::OpenDevices>) -> Self {
        self.log.devices = devices;
        self
    }

    /// Keeps the oldest tables in an object store: [`crate::remote::ObjectStore`].
    #[cfg(feature = "remote")]
    #[must_use]
    pub fn object_store(mut self, store: crate::remote::ObjectStore) -> Self {
        self.object_store = Some(Box::new(store));
        self
    }

    /// Keeps tables in `medium` once nothing older lay below them for `after`, for tests.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn object_store_medium(mut self, medium: Arc<dyn Medium>, after: Duration) -> Self {
        self.object_store = Some(Box::new((medium, after)));
        self
    }

    /// Whether to open a store with a damaged log; false by default. If true, opening replays the log
    /// records before and behind the damage and flushes them, which needs free space on the device.
    /// [`Db::recovery`] reports the losses.
    #[must_use]
    pub fn recover_damaged_log(mut self, recover: bool) -> Self {
        self.settings.recover_damaged_log = recover;
        self
    }

    /// Opens the store for reading only, as it is now; false by default. Another process may have it open and
    /// write to it: no lock is taken, nothing is written, and no right to write is needed. So several
    /// processes read one store, or a checkpoint of it.
    ///
    /// The store shows every write that was acknowledged before the opening, and none that follows:
    /// [`Db::refresh`] shows later ones. Files that the writer removes meanwhile stay readable. The part of
    /// the log that is not in tables is kept in memory, so this store needs about as much memory for it as
    /// the writer's write buffers have. There is no background work; writes, flushes and compactions answer
    /// `Invalid`.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use terracedb::Db;
    /// let writer = Db::builder(dir.path()).open()?;
    /// let fruit = writer.create_keyspace("fruit")?;
    /// fruit.put("apple", "red")?;
    ///
    /// let reader = Db::builder(dir.path()).read_only(true).open()?; // in any process
    /// fruit.put("apple", "green")?;
    /// assert_eq!(reader.keyspace("fruit")?.get("apple")?.as_deref(), Some(&b"red"[..]));
    /// let reader = reader.refresh()?;
    /// assert_eq!(reader.keyspace("fruit")?.get("apple")?.as_deref(), Some(&b"green"[..]));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.settings.read_only = read_only;
        self
    }

    /// Registers `operator` by its name, for the keyspaces that use it
    /// ([`KeyspaceOptions::merge_operator`](crate::KeyspaceOptions::merge_operator)). A store also opens
    /// without an operator that it used before: then reads of keys with its operands fail.
    #[must_use]
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Self {
        self.merge_operators.push(operator);
        self
    }

    /// Registers `priority` by its name, for the windows that use it
    /// ([`Discard::Priority`](crate::hashed::Discard)). A store with such a window opens only in a program
    /// that registers its priority.
    #[must_use]
    pub fn window_priority(mut self, priority: Arc<dyn WindowPriority>) -> Self {
        self.window_priorities.push(priority);
        self
    }

    /// Opens the store, and recovers it after a crash: reads the manifest and replays the log.
    ///
    /// # Errors
    /// `Invalid` if a setting is out of range, two merge operators or priorities have the same name, the
    /// priority of a window is not registered, a newer version of the format wrote it, or it does not exist
    /// and [`Builder::create_if_missing`] is false. `Locked` if another process has the store open, unless
    /// this opening is [`Builder::read_only`]. `PermissionDenied` without the right to write, or to read.
    /// `Corrupt` if the manifest or a log record that must exist is damaged. `Retry` for a memory limit that
    /// is too low, and for a store that is read while its manifest changes all the time.
    pub fn open(self) -> Result<Db> {
        self.settings.validate()?;
        let read_only = self.settings.read_only;
        let resources = self.resources.map_or_else(|| self.own.build(), Ok)?;
        let medium: Arc<dyn Medium> = match self.location {
            StoreLocation::Path(path) => {
                let create = self.create && !read_only;
                let options = FileOptions { create, read_only, ..FileOptions::default() };
                media::raise_open_files_limit();
                Arc::new(FileMedium::open(&path, options)?)
            }
            StoreLocation::Medium(medium) => medium,
        };
        let create = match (self.create, self.identity) {
            (false, _) => None,
            (true, Some(id)) => Some(id),
            (true, None) => Some(StoreId::random()?),
        };
        let object_store = self.object_store.as_ref();
        let object_store = object_store.map(|it| it.open(&resources, read_only)).transpose()?;
        let opening = Opening {
            medium,
            object_store,
            resources,
            settings: self.settings,
            log: self.log,
            merge_operators: self.merge_operators,
            window_priorities: self.window_priorities,
            listeners: self.listeners,
        };
        let store = Arc::new(opening.open(create)?);
        Ok(Db::new(store, read_only.then(|| Arc::new(opening))))
    }
}

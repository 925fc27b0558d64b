//! How a store is opened: its location, settings, listeners and merge operators.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{Codec, Durability, Result, StoreId};
use compact::{MergeOperator, Operators};
use engine::{Settings, open};
use media::{FileMedium, FileOptions, Medium};
use tools::Scrubber;
use tree::events::{Events, Listener};

use crate::{Db, Resources, ResourcesBuilder};

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
pub(crate) enum StoreLocation {
    Path(PathBuf),
    Medium(Arc<dyn Medium>),
}

impl Builder {
    pub(crate) fn new(place: StoreLocation) -> Self {
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
    /// ([`KeyspaceOptions::merge_operator`](crate::KeyspaceOptions::merge_operator)). A store opens without
    /// the operators it once used: then only what they should merge cannot be read.
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
        Ok(Db::new(store, scrubber))
    }
}

//! The scrubber: reads every table and value file again and again and verifies each page (I8), so
//! that damage is found while a backup still has what was lost.
//!
//! Pages are read past the cache, in the device's last class, at no more than the rate that is
//! set. A pass goes through the files by id up to the last that was there when it began; the
//! manifest remembers where it is at the beginning, every [`SAVED_EVERY`] bytes and at the end, so
//! that a store that is opened often is scrubbed all the same. What fails is read again before it
//! is called damage; then a table is put in quarantine, and a value file is not collected.
//!
//! Memory is one buffer of 64 pages, charged (I10).

mod pass;
mod target;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Account, Result, TableId};
use parking_lot::Mutex;

use base::Problem;
use engine::LiveSettings;
use manifest::{Edit, ScrubPosition};
use tree::Trees;
use tree::events::Event;
use tree::{Tree, TreeContext};

use engine::{Resources, Store};

use pass::Pass;
use target::Target;
pub use task::ScrubTask;

/// Bytes after which the manifest is told how far a pass is.
const SAVED_EVERY: u64 = 1 << 30;

/// What scrubbing did since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubStatistics {
    /// Whether a pass is under way.
    pub running: bool,
    /// Passes that ended.
    pub passes: u64,
    /// Pages read.
    pub pages: u64,
    /// Of these, pages that lay in the tier below DRAM, too, and were verified there, and those of them that
    /// were damaged there, and dropped.
    pub pages_below: u64,
    /// See `pages_below`.
    pub damaged_below: u64,
    /// Reads that had to be repeated.
    pub retries: u64,
    /// When the last pass began, Unix milliseconds, by whatever process; 0: there was none.
    pub last_began_ms: u64,
}

/// What `Db::scrub` found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ScrubReport {
    /// Tables read.
    pub tables: u64,
    /// Value files read.
    pub value_files: u64,
    /// Their pages.
    pub pages: u64,
    /// Pages of these that lay in the tier below DRAM, too, and were verified there, and those of them that
    /// were damaged there: they are dropped, and cost nothing.
    pub pages_below: u64,
    /// See `pages_below`.
    pub damaged_below: u64,
    /// Bytes read.
    pub bytes: u64,
    /// How many damages were found.
    pub damages: u64,
    /// The damages, the first thousand.
    pub problems: Vec<Problem>,
    /// How long it took.
    pub took: Duration,
}

/// Reads and verifies tables and value files.
pub struct Scrubber {
    env: Arc<TreeContext>,
    trees: Arc<Trees>,
    resources: Resources,
    settings: Arc<LiveSettings>,
    account: Account,
    statistics: Mutex<ScrubStatistics>,
}

impl Scrubber {
    /// A scrubber of `store`, with its background task started.
    #[must_use]
    pub fn start(store: &Store) -> Arc<Self> {
        let scrubber = Arc::new(Self::new(
            Arc::clone(store.compactor.env()),
            Arc::clone(&store.trees),
            store.resources.clone(),
            Arc::clone(&store.settings),
        ));
        let task = ScrubTask::new(Arc::clone(&scrubber), Arc::clone(&store.background.stop));
        store.background.add(store.resources.executor().spawn("scrub", Box::new(task)));
        scrubber
    }

    pub fn new(
        env: Arc<TreeContext>,
        trees: Arc<Trees>,
        resources: Resources,
        settings: Arc<LiveSettings>,
    ) -> Self {
        let account = resources.account("scrub");
        let last_began_ms = env.manifest.state().scrub.began_ms;
        let statistics = Mutex::new(ScrubStatistics { last_began_ms, ..Default::default() });
        Self { env, trees, resources, settings, account, statistics }
    }

    /// Reads every table and value file there is now, at once and as fast as the device gives.
    ///
    /// # Errors
    /// `Retry` where memory is short. Damage is no error.
    pub fn scrub_now(&self) -> Result<ScrubReport> {
        let mut pass = Pass::begin(self, TableId(0), TableId(u64::MAX))?;
        while pass.step(self).is_some() {}
        Ok(self.ended(pass))
    }

    /// Counts a pass that ended, and tells of it.
    fn ended(&self, pass: Pass) -> ScrubReport {
        let report = pass.into_report(self.resources.clock().monotonic());
        self.statistics.lock().passes += 1;
        let ScrubReport { tables, value_files, bytes, damages, took, .. } = report;
        self.env.events.tell(|| Event::ScrubEnded { tables, value_files, bytes, damages, took });
        report
    }

    /// The first file of those from `next` on and before `end`, and whose it is.
    fn target_from(&self, next: TableId, end: TableId) -> Option<(Arc<Tree>, Target)> {
        let ids = next..end;
        let firsts = self.trees.all().into_iter().filter_map(|tree| {
            let version = Arc::clone(&tree.view().version);
            Target::first(&version, &ids).map(|target| (tree, target))
        });
        firsts.min_by_key(|(_, target)| target.id())
    }

    /// Has the manifest remember where a pass is.
    fn save(&self, position: ScrubPosition) -> Result<()> {
        self.env.manifest.append(vec![Edit::Scrubbed(position)])
    }

    pub fn statistics(&self) -> ScrubStatistics {
        self.statistics.lock().clone()
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} passes)", self.statistics.lock().passes)
    }
}

//! Scrub: re-reads every table and value file in the background and verifies each page (I8), so that damage
//! is found while a backup still has the lost data.
//!
//! Pages bypass the cache and are read at the device's lowest priority, at most at the configured rate. A
//! pass visits the files by id, up to the last id that existed when it began. The manifest records the
//! position at the start, every [`SAVED_EVERY`] bytes and at the end, so that a store that is reopened often
//! is scrubbed nevertheless. A page that fails is read again before it counts as damaged; then a table is
//! quarantined, and a value file is left out of garbage collection.
//!
//! Threads: the executor's for the task, and the caller's for `Scrubber::scrub_now`; both may run at once.
//! Memory: one buffer of 64 pages per pass, charged (I10).

mod pass;
mod target;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Account, Problem, Result, TableId};
use engine::{Components as _, LiveSettings, Resources, Store};
use manifest::{Edit, ScrubPosition};
use parking_lot::Mutex;
use tree::events::Event;
use tree::{Tree, TreeContext, Trees};

use pass::Pass;
use target::Target;
use task::ScrubTask;

/// Bytes read between two records of the position in the manifest.
const SAVED_EVERY: u64 = 1 << 30;

/// Counts of scrubs since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubStatistics {
    /// Whether a pass is in progress.
    pub running: bool,
    /// Completed passes.
    pub passes: u64,
    /// Pages read.
    pub pages: u64,
    /// Of these pages, those that the SCM tier held too; they were verified there.
    pub pages_below: u64,
    /// Of the pages in the SCM tier, those that were damaged and dropped there.
    pub damaged_below: u64,
    /// Reads that had to be repeated.
    pub retries: u64,
    /// When the last pass began, in any process, Unix milliseconds; 0 if there was none.
    pub last_began_ms: u64,
}

/// Result of `Db::scrub`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ScrubReport {
    /// Tables read.
    pub tables: u64,
    /// Value files read.
    pub value_files: u64,
    /// Pages read.
    pub pages: u64,
    /// Of these pages, those that the SCM tier held too; they were verified there.
    pub pages_below: u64,
    /// Of the pages in the SCM tier, those that were damaged: they were dropped there, and nothing is lost.
    pub damaged_below: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Number of damages found.
    pub damages: u64,
    /// The first thousand damages.
    pub problems: Vec<Problem>,
    /// Duration of the pass.
    pub took: Duration,
}

/// Verifies the tables and value files of an open store, on request and in the background.
pub struct Scrubber {
    env: Arc<TreeContext>,
    trees: Arc<Trees>,
    resources: Resources,
    settings: Arc<LiveSettings>,
    account: Account,
    statistics: Mutex<ScrubStatistics>,
}

impl Scrubber {
    /// Creates the scrubber of `store` and starts its background task, unless the store is open for reading
    /// only: the writer scrubs its tables.
    #[must_use]
    pub fn start(store: &Store) -> Arc<Self> {
        let scrubber = Arc::new(Self::new(store));
        if store.settings.load().read_only {
            return scrubber;
        }
        let task = ScrubTask::new(Arc::clone(&scrubber), Arc::clone(&store.background.stop));
        store.background.add(store.resources.executor().spawn("scrub", Box::new(task)));
        scrubber
    }

    /// The scrubber of `store`, without a background task.
    fn new(store: &Store) -> Self {
        let env = Arc::clone(store.compactor.env());
        let last_began_ms = env.manifest.state().scrub.began_ms;
        Self {
            env,
            trees: Arc::clone(&store.trees),
            resources: store.resources.clone(),
            settings: Arc::clone(&store.settings),
            account: store.resources.account("scrub"),
            statistics: Mutex::new(ScrubStatistics { last_began_ms, ..Default::default() }),
        }
    }

    /// Reads every table and value file that exists now, on this thread, without a rate limit.
    ///
    /// # Errors
    /// `Retry` if memory or the device's resources are short. Damage is not an error.
    pub fn scrub_now(&self) -> Result<ScrubReport> {
        let mut pass = self.begin(TableId(0), TableId(u64::MAX))?;
        while pass.step(self)?.is_some() {}
        Ok(self.ended(pass))
    }

    /// Begins a pass over the files with ids in `next..end`.
    fn begin(&self, next: TableId, end: TableId) -> Result<Pass> {
        Pass::begin(&self.account, self.resources.clock().monotonic(), next, end)
    }

    /// Counts a completed pass and reports its event.
    fn ended(&self, pass: Pass) -> ScrubReport {
        let report = pass.into_report(self.resources.clock().monotonic());
        self.statistics.lock().passes += 1;
        let ScrubReport { tables, value_files, bytes, damages, took, .. } = report;
        self.env.events.tell(|| Event::ScrubEnded { tables, value_files, bytes, damages, took });
        report
    }

    /// The file with the lowest id in `next..end`, and its tree.
    fn target_from(&self, next: TableId, end: TableId) -> Option<(Arc<Tree>, Target)> {
        let ids = next..end;
        let firsts = self.trees.all().into_iter().filter_map(|tree| {
            let version = Arc::clone(&tree.view().version);
            Target::first(&version, &ids).map(|target| (tree, target))
        });
        firsts.min_by_key(|(_, target)| target.id())
    }

    /// Records the position of a pass in the manifest.
    fn save(&self, position: ScrubPosition) -> Result<()> {
        self.env.manifest.append(vec![Edit::Scrubbed(position)])
    }

    /// Counts since the store was opened.
    pub fn statistics(&self) -> ScrubStatistics {
        self.statistics.lock().clone()
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} passes)", self.statistics.lock().passes)
    }
}

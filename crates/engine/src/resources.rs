//! Resources that the stores of a process share: the memory limit, the caches, the executors, the clock.
//!
//! Every store of the same [`Resources`] charges the same accounts. Write buffers are divided equally among
//! the open stores; caches and compaction memory are shared without division. All methods may be called
//! from any thread and are cheap, except [`Resources::set_memory`], which reclaims memory.

mod builder;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arena::RegionPool;
use base::{
    Account, Budget, Clock, Executor, Owner, Reclaim, ReclaimOrder, Result, Threads, invariant,
};
use cache::{Balance, PageCache, RowCache};
use compact::offload::Offload;
use parking_lot::Mutex;
use table::HeldFilters;
use tree::compaction::CompactionPool;
use tree::{ReadContext, Timekeeper};

use crate::memory::Memory;
use crate::memory_plan::MemoryPlan;
use crate::scm::{ScmCache, ScmStatus};
pub use builder::{OffloadsMerges, ResourcesBuilder};

/// Memory, caches and background threads that any number of stores share. Cheap to clone.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let resources = terracedb::Resources::builder().memory(256 << 20).build()?;
/// let users = terracedb::Db::builder(dir.path().join("users")).resources(&resources).open()?;
/// let items = terracedb::Db::builder(dir.path().join("items")).resources(&resources).open()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Resources(Arc<Inner>);

struct Inner {
    owner: Owner,
    /// The memory limit in force, bytes; a [`MemoryPlan`] accepts it. `Relaxed`: one load has all of a plan.
    memory: AtomicU64,
    budget: Budget,
    cache: Arc<PageCache>,
    rows: Arc<RowCache>,
    balance: Arc<Balance>,
    scm: Option<ScmCache>,
    has_rows: bool,
    /// The most that the page cache may take, whatever the memory limit, bytes.
    page_cache_max: u64,
    /// Memory of flushed memtables, kept for the next ones.
    regions: Arc<RegionPool>,
    /// Memory of flushes. It is set aside, because only flushes give other memory back.
    flush: Account,
    executor: Arc<dyn Executor>,
    background_threads: usize,
    /// Runs tasks that never wait and must not wait for others. A thread of its own, unless the user gave
    /// an executor.
    urgent: Arc<dyn Executor>,
    /// Runs the tasks that watch all others. A thread of its own, started with the first listener.
    watch: OnceLock<Arc<dyn Executor>>,
    /// Runs tasks that wait for an object store. A thread of its own, started with the first such task,
    /// unless the user gave an executor.
    network: OnceLock<Arc<dyn Executor>>,
    compaction: Arc<CompactionPool>,
    /// The filters that lookups probe without a page.
    filters: Arc<HeldFilters>,
    /// Workers that run merges; `None`: all merges run here.
    offload: Option<Arc<dyn Offload>>,
    /// Held while the memory limit changes.
    resizing: Mutex<()>,
    open_stores: AtomicUsize,
}

/// Accounts that a [`MemoryPlan`] caps.
const READS: &str = "reads";
const COMPACTION: &str = "compaction";
const FILTERS: &str = "filters";

/// Held filters take at most this part of the budget: a byte a key, so those of a store of entries of 64
/// bytes that fills the memory.
const FILTERS_PART: u64 = 64;

/// Memory kept for future memtables: enough for an active memtable and one being flushed.
fn kept_region_bytes(plan: &MemoryPlan) -> u64 {
    plan.write_buffers / 2
}

/// The parts of [`Resources`], for the crates of the store. A trait, because `Resources` is part of the
/// public API, and its parts are not.
pub trait Components {
    /// The account called `name`, made if there is none.
    fn account(&self, name: &'static str) -> Account;

    /// The memory that the compaction jobs of all stores share.
    fn compaction(&self) -> &Arc<CompactionPool>;

    /// The page cache.
    fn cache(&self) -> &Arc<PageCache>;

    /// The row cache.
    fn rows(&self) -> &Arc<RowCache>;

    /// The balance of memory between page cache and row cache.
    fn balance(&self) -> &Arc<Balance>;
}

impl Components for Resources {
    fn account(&self, name: &'static str) -> Account {
        self.0.budget.account(name)
    }

    fn compaction(&self) -> &Arc<CompactionPool> {
        &self.0.compaction
    }

    fn cache(&self) -> &Arc<PageCache> {
        &self.0.cache
    }

    fn rows(&self) -> &Arc<RowCache> {
        &self.0.rows
    }

    fn balance(&self) -> &Arc<Balance> {
        &self.0.balance
    }
}

/// Puts the plan's caps in force.
fn apply_caps(plan: &MemoryPlan, budget: &Budget) {
    budget.account(READS).set_cap(plan.reads);
    budget.account(COMPACTION).set_cap(plan.compaction_cap);
    budget.spare_account(FILTERS).set_cap(plan.budget / FILTERS_PART);
}

impl Resources {
    /// A builder with default values.
    #[must_use]
    pub fn builder() -> ResourcesBuilder {
        ResourcesBuilder::default()
    }

    /// # Errors
    /// `Closed` in a process forked from the one that made the resources: it has none of their threads.
    pub(crate) fn must_be_here(&self) -> Result<()> {
        self.0.owner.check()
    }

    /// The memory limit, bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.0.memory.load(Ordering::Relaxed)
    }

    /// The shares of the memory limit that is in force.
    fn plan(&self) -> MemoryPlan {
        MemoryPlan::of(self.memory())
    }

    /// Changes the memory limit while stores are open. A higher limit holds at once. For a lower limit, the
    /// page cache is shrunk at once and write buffers as they are flushed; the memory of iterators and
    /// values in flight comes back when they end. Returns the bytes that are still to come back; new charges
    /// are refused until they have.
    ///
    /// # Errors
    /// `Invalid` if `bytes` is below 64 MiB. Nothing is changed then.
    pub fn set_memory(&self, bytes: u64) -> Result<u64> {
        self.must_be_here()?;
        let plan = MemoryPlan::new(bytes)?;
        let _resizing = self.0.resizing.lock();
        self.0.memory.store(plan.memory, Ordering::Relaxed);
        self.0.compaction.set_limit(plan.compaction);
        apply_caps(&plan, &self.0.budget);
        let budget = &self.0.budget;
        if plan.budget > budget.limit() {
            // Before the cache grows: its index charges the new memory.
            budget.set_limit(plan.budget);
        }
        self.0.cache.set_capacity(plan.budget.min(self.0.page_cache_max));
        self.0.regions.set_bytes_max(kept_region_bytes(&plan));
        let owed = budget.set_limit(plan.budget);
        invariant!(budget.limit() == plan.budget, "the budget follows the memory limit");
        Ok(owed)
    }

    /// Memory charged now and at its peak, by component.
    #[must_use]
    pub fn memory_usage(&self) -> Memory {
        Memory::of(self.memory(), self.0.budget.usage())
    }

    /// Adds a component that is asked for memory when none is left, in the order of `order`.
    pub(crate) fn add_reclaimer(&self, order: ReclaimOrder, reclaimer: Weak<dyn Reclaim>) {
        self.0.budget.add_reclaimer(order, reclaimer);
    }

    /// The account of flushes. It never refuses the only running flush.
    pub(crate) fn flush_account(&self) -> Account {
        self.0.flush.clone()
    }

    /// The account of the metadata that open tables keep in memory.
    pub(crate) fn tables_account(&self) -> Account {
        self.account("tables")
    }

    /// The held filters of all tables.
    pub(crate) fn filters(&self) -> &Arc<HeldFilters> {
        &self.0.filters
    }

    /// The account of the range deletes of open tables.
    pub(crate) fn range_deletes_account(&self) -> Account {
        self.account("range deletes")
    }

    /// The account of the indexes of resident keyspaces.
    pub(crate) fn indexes_account(&self) -> Account {
        self.account("resident keyspaces")
    }

    /// Metadata of open tables above this, with the indexes of resident keyspaces, admits no puts and no
    /// deletes of single keys, bytes.
    pub(crate) fn tables_bytes_max(&self) -> u64 {
        self.plan().tables
    }

    /// Range deletes of open tables above this admit no further ones, bytes.
    pub(crate) fn range_deletes_bytes_max(&self) -> u64 {
        self.plan().range_deletes
    }

    /// The account of reads: iterators, queues, long values.
    pub(crate) fn reads_account(&self) -> Account {
        self.account(READS)
    }

    /// Takes merges to workers in other processes.
    pub(crate) fn offload(&self) -> Option<&Arc<dyn Offload>> {
        self.0.offload.as_ref()
    }

    /// Whether reads fill the row cache.
    #[must_use]
    pub fn has_rows(&self) -> bool {
        self.0.has_rows
    }

    /// State and counters of the SCM tier. `None` if none was set.
    #[must_use]
    pub fn scm(&self) -> Option<ScmStatus> {
        self.0.scm.as_ref().map(ScmCache::status)
    }

    /// The number of threads for background work, if no executor was set.
    #[must_use]
    pub fn background_threads(&self) -> usize {
        self.0.background_threads
    }

    /// Memory of flushed memtables, kept for the next ones.
    pub(crate) fn regions(&self) -> &Arc<RegionPool> {
        &self.0.regions
    }

    /// The executor of background work.
    #[must_use]
    pub fn executor(&self) -> &dyn Executor {
        &*self.0.executor
    }

    /// The executor of tasks that never wait.
    pub(crate) fn urgent(&self) -> &dyn Executor {
        &*self.0.urgent
    }

    /// The executor of tasks that watch all others. Starts its thread at the first call.
    pub(crate) fn watch(&self) -> &dyn Executor {
        let start = || match Threads::start(1, Arc::clone(self.clock())) {
            Ok(thread) => Arc::new(thread) as Arc<dyn Executor>,
            // Without a thread of its own it fails to report only a log device that hangs.
            Err(_) => Arc::clone(&self.0.urgent),
        };
        &**self.0.watch.get_or_init(start)
    }

    /// The executor of tasks that wait for an object store. Starts its thread at the first call.
    pub(crate) fn network(&self) -> &dyn Executor {
        let start = || match Threads::start(1, Arc::clone(self.clock())) {
            Ok(thread) => Arc::new(thread) as Arc<dyn Executor>,
            // Without a thread of its own it takes one of the background.
            Err(_) => Arc::clone(&self.0.executor),
        };
        &**self.0.network.get_or_init(start)
    }

    /// The clock of all stores.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.0.executor.clock()
    }

    /// The most that the caches take while no other component takes memory, bytes.
    pub(crate) fn cache_bytes_max(&self) -> u64 {
        self.plan().budget
    }

    /// The longest value, bytes.
    #[must_use]
    pub fn value_bytes_max(&self) -> u64 {
        self.plan().value_max
    }

    /// The most memory that one batch may take in memtables, bytes. Replay with the same memory limit has
    /// that much beside the record itself.
    #[must_use]
    pub fn batch_bytes_max(&self) -> u64 {
        self.plan().write_buffers
    }

    /// One store's share of the write buffers, bytes.
    pub(crate) fn write_buffer_bytes(&self) -> u64 {
        self.plan().write_buffers / self.open_stores()
    }

    /// The size at which a store seals a memtable, bytes.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.plan().memtable / self.open_stores()
    }

    /// The number of open stores, at least 1.
    pub(crate) fn open_stores(&self) -> u64 {
        self.0.open_stores.load(Ordering::Relaxed).max(1) as u64
    }

    /// Counts an open store until the guard is dropped.
    pub(crate) fn enter(&self) -> StoreGuard {
        self.0.open_stores.fetch_add(1, Ordering::Relaxed);
        StoreGuard(self.clone())
    }

    /// How versions of a keyspace are read: its clock, memory, longest merged value, and share of the row
    /// cache.
    pub(crate) fn read_context(&self, timekeeper: &Arc<Timekeeper>) -> Arc<ReadContext> {
        let (account, max) = (self.reads_account(), self.value_bytes_max());
        ReadContext::new(Arc::clone(timekeeper), account, max, self.rows().owner())
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        if !self.0.owner.is_here() {
            // The memory of a forked child is a copy, in which a lock may be held for ever: nothing in it is
            // given back, and the last handle never drops the content.
            Box::leak(Box::new(Arc::clone(&self.0)));
        }
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resources({:?})", self.0.budget)
    }
}

/// An open store's claim to a share of the write buffers.
pub(crate) struct StoreGuard(Resources);

impl Drop for StoreGuard {
    fn drop(&mut self) {
        let before = self.0.0.open_stores.fetch_sub(1, Ordering::Relaxed);
        invariant!(before > 0, "a store that closes was counted as open");
        if before == 1 {
            self.0.regions().release();
        }
    }
}

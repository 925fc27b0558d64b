//! What the stores of one process share: one memory number, one page cache, one executor, one
//! clock.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use arena::RegionPool;
use base::{
    Account, Budget, Charge, Clock, Error, Executor, Reclaim, ReclaimOrder, Result, SystemClock,
    Threads,
};
use cache::{Balance, PageCache, RowCache};
use parking_lot::Mutex;
use tree::compaction::CompactionPool;

use crate::memory::Memory;
use crate::memory_limit::default_memory;
use crate::memory_plan::{FLUSH_BYTES, MemoryPlan};
use crate::scm::{Scm, ScmCache, ScmStatus};

/// Memory, cache and background threads shared by any number of stores. Cheap to clone.
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
    /// In force; replaced whole when the memory number changes.
    plan: ArcSwap<MemoryPlan>,
    budget: Budget,
    cache: Arc<PageCache>,
    rows: Arc<RowCache>,
    balance: Arc<Balance>,
    scm: Option<ScmCache>,
    has_rows: bool,
    /// What the page cache may take, whatever the memory number, bytes.
    page_cache_max: u64,
    /// Memory of memtables that were flushed, for the next ones.
    regions: Arc<RegionPool>,
    /// What flushes work with: set aside, since a flush is what gives memory back.
    flush: Budget,
    _flush_charge: Charge,
    executor: Arc<dyn Executor>,
    background_threads: usize,
    /// Where tasks run that wait for nothing and must not wait for others: a thread of its own.
    urgent: Arc<dyn Executor>,
    /// Where it is watched that all others get on: a thread of its own, too, where somebody listens.
    watch: OnceLock<Arc<dyn Executor>>,
    compaction: Arc<CompactionPool>,
    /// Held while the memory number changes.
    resizing: Mutex<()>,
    open_stores: AtomicUsize,
}

/// Makes [`Resources`].
#[derive(Debug, Default)]
pub struct ResourcesBuilder {
    memory: Option<u64>,
    background_threads: Option<usize>,
    executor: Option<Arc<dyn Executor>>,
    scm: Option<Scm>,
    no_rows: bool,
    page_cache_max: Option<u64>,
}

impl ResourcesBuilder {
    /// The memory all stores together may use, bytes: memtables, cache, metadata, buffers. At
    /// least 64 MiB; a quarter of the cgroup's or the machine's memory where it is not set.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Threads for background work, where no executor is set; two by default. More are of use where
    /// merges are what writers wait for: as many merges as there are threads run at once. More than
    /// the machine has cores count as that many, but two always count.
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.background_threads = Some(threads);
        self
    }

    /// A second cache tier, on storage-class memory. Stores open and serve without it where it cannot
    /// be opened or fails; `terracedb::Statistics::scm` says so.
    #[must_use]
    pub fn scm(mut self, scm: Scm) -> Self {
        self.scm = Some(scm);
        self
    }

    /// Keeps no single rows in DRAM, for measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn without_rows(mut self) -> Self {
        self.no_rows = true;
        self
    }

    /// Keeps the page cache small whatever the memory number, for simulations: at most so many bytes.
    #[doc(hidden)]
    #[must_use]
    pub fn page_cache_max(mut self, bytes: u64) -> Self {
        self.page_cache_max = Some(bytes);
        self
    }

    /// Where background work runs, and the clock it follows; threads and the machine's clock where
    /// it is not set.
    #[must_use]
    pub fn executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Makes them.
    ///
    /// # Errors
    /// `Invalid` where `memory` is under 64 MiB or there are to be no threads, `Retry` where there is
    /// no thread to be had.
    pub fn build(self) -> Result<Resources> {
        let plan = MemoryPlan::new(self.memory.unwrap_or_else(default_memory))?;
        let budget = Budget::new(plan.budget);
        apply(&plan, &budget);
        let page_cache_max = self.page_cache_max.unwrap_or(u64::MAX);
        let account = budget.spare_account("page cache");
        let cache = PageCache::new(&account, plan.budget.min(page_cache_max))?;
        let cache = Arc::new(cache);
        let rows = budget.spare_account("row cache");
        let rows = Arc::new(RowCache::new(&rows, Balance::first_rows(plan.budget))?);
        let balance = Arc::new(Balance::new(&cache, &rows));
        let weak = Arc::downgrade(&balance);
        budget.add_reclaimer(ReclaimOrder::Cache, weak);
        let regions = RegionPool::new(budget.account(REGIONS), regions_kept(&plan));
        let weak = Arc::downgrade(&regions);
        budget.add_reclaimer(ReclaimOrder::Optional, weak);
        let flush = Budget::new(FLUSH_BYTES);
        let _flush_charge = budget.account("flushes").charge(FLUSH_BYTES)?;
        let background_threads = threads_of(self.background_threads)?;
        let is_lane_own = self.executor.is_none();
        let (executor, urgent, watch): (Arc<dyn Executor>, Arc<dyn Executor>, _) = match self
            .executor
        {
            Some(executor) => (Arc::clone(&executor), Arc::clone(&executor), executor.into()),
            None => {
                let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
                let behind = Threads::start_low_priority(background_threads, Arc::clone(&clock))?;
                (Arc::new(behind), Arc::new(Threads::start(1, clock)?), OnceLock::new())
            }
        };
        let account = budget.account("SCM map");
        let scm = match self.scm {
            None => None,
            Some(scm) => {
                // What it does is short, and what waits for it is bounded: behind merges and readers, most of
                // what is to be written below would be turned away.
                let lane: Arc<dyn Executor> = match is_lane_own {
                    true => Arc::new(Threads::start(1, Arc::clone(executor.clock()))?),
                    false => Arc::clone(&executor),
                };
                Some(ScmCache::start(scm, &account, (&cache, &rows), lane))
            }
        };
        let compaction = CompactionPool::new(budget.account(COMPACTION), plan.compaction);
        let open_stores = AtomicUsize::default();
        Ok(Resources(Arc::new(Inner {
            plan: ArcSwap::from_pointee(plan),
            budget,
            cache,
            rows,
            balance,
            scm,
            has_rows: !self.no_rows,
            page_cache_max,
            regions,
            flush,
            _flush_charge,
            executor,
            urgent,
            watch,
            background_threads,
            compaction,
            resizing: Mutex::new(()),
            open_stores,
        })))
    }
}

/// The accounts that [`MemoryPlan`] gives a cap.
const READS: &str = "reads";
const COMPACTION: &str = "compaction";

/// Memory kept for memtables to come.
const REGIONS: &str = "memtables to come";

/// As much as a memtable being filled and one being flushed.
fn regions_kept(plan: &MemoryPlan) -> u64 {
    plan.write_buffers / 2
}

/// Puts the plan's caps in force.
fn apply(plan: &MemoryPlan, budget: &Budget) {
    budget.account(READS).set_cap(plan.reads);
    budget.account(COMPACTION).set_cap(plan.compaction);
}

/// One for a flush, one so that a store's interval sync need not wait behind it.
const BACKGROUND_THREADS: usize = 2;

/// As many threads as were asked for and are of use.
fn threads_of(asked: Option<usize>) -> Result<usize> {
    if asked == Some(0) {
        return Err(Error::invalid("background threads").expected("at least 1").got(0));
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Ok(asked.unwrap_or(BACKGROUND_THREADS).min(cores.max(BACKGROUND_THREADS)))
}

impl Resources {
    /// Starts making resources.
    #[must_use]
    pub fn builder() -> ResourcesBuilder {
        ResourcesBuilder::default()
    }

    /// The memory number, bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.0.plan.load().memory
    }

    /// Changes the memory number while stores are open. More is there at once. Less is taken from
    /// the page cache at once and from write buffers as they are flushed; what iterators and values
    /// in flight hold comes back when they end. Returns how many bytes are still to come back: until
    /// they did, nothing new is granted.
    ///
    /// # Errors
    /// `Invalid` where `bytes` is under 64 MiB; nothing is changed.
    pub fn set_memory(&self, bytes: u64) -> Result<u64> {
        let plan = MemoryPlan::new(bytes)?;
        let _resizing = self.0.resizing.lock();
        self.0.plan.store(Arc::new(plan));
        self.0.compaction.set_limit(plan.compaction);
        apply(&plan, &self.0.budget);
        let budget = &self.0.budget;
        if plan.budget > budget.limit() {
            // First, so that there is some for what finds the pages to come.
            budget.set_limit(plan.budget);
        }
        self.0.cache.set_capacity(plan.budget.min(self.0.page_cache_max));
        self.0.regions.set_bytes_max(regions_kept(&plan));
        Ok(budget.set_limit(plan.budget))
    }

    /// What is charged now and was at most, by component.
    #[must_use]
    pub fn memory_usage(&self) -> Memory {
        Memory::of(self.memory(), self.0.budget.usage())
    }

    pub fn account(&self, name: &'static str) -> Account {
        self.0.budget.account(name)
    }

    /// Has `reclaimer` asked for memory when there is none left.
    pub fn add_reclaimer(&self, order: ReclaimOrder, reclaimer: Weak<dyn Reclaim>) {
        self.0.budget.add_reclaimer(order, reclaimer);
    }

    /// Charged by table writers: never refused to the only flush under way.
    pub fn flush_account(&self) -> Account {
        self.0.flush.account("table writer")
    }

    /// Charged by everything that reads: iterators, queues, long values.
    pub fn reads_account(&self) -> Account {
        self.account(READS)
    }

    /// The memory that compaction jobs of all stores share.
    pub fn compaction(&self) -> &Arc<CompactionPool> {
        &self.0.compaction
    }

    pub fn cache(&self) -> &Arc<PageCache> {
        &self.0.cache
    }

    /// Whether reads leave rows.
    pub fn has_rows(&self) -> bool {
        self.0.has_rows
    }

    pub fn rows(&self) -> &Arc<RowCache> {
        &self.0.rows
    }

    pub fn balance(&self) -> &Arc<Balance> {
        &self.0.balance
    }

    /// What the tier below DRAM is and did, where one was set.
    #[must_use]
    pub fn scm(&self) -> Option<ScmStatus> {
        self.0.scm.as_ref().map(ScmCache::status)
    }

    /// How many threads do background work, where no executor was given.
    #[must_use]
    pub fn background_threads(&self) -> usize {
        self.0.background_threads
    }

    pub fn regions(&self) -> &Arc<RegionPool> {
        &self.0.regions
    }

    pub fn executor(&self) -> &dyn Executor {
        &*self.0.executor
    }

    pub fn urgent(&self) -> &dyn Executor {
        &*self.0.urgent
    }

    pub fn watch(&self) -> &dyn Executor {
        let start = || match Threads::start(1, Arc::clone(self.clock())) {
            Ok(thread) => Arc::new(thread) as Arc<dyn Executor>,
            // As good as none where the log's device hangs, and else no worse.
            Err(_) => Arc::clone(&self.0.urgent),
        };
        &**self.0.watch.get_or_init(start)
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.0.executor.clock()
    }

    /// The most that caches take when nobody else takes anything, bytes.
    pub fn cache_bytes_max(&self) -> u64 {
        self.0.plan.load().budget
    }

    pub fn value_bytes_max(&self) -> u64 {
        self.0.plan.load().value_max
    }

    /// The most memory one batch may take in memtables, bytes: what is replayed at once beside a
    /// record of that size, with the same memory number.
    pub fn batch_bytes_max(&self) -> u64 {
        self.0.plan.load().write_buffers
    }

    /// One store's part of the write buffers, bytes.
    pub fn write_buffer_bytes(&self) -> u64 {
        self.0.plan.load().write_buffers / self.open_stores()
    }

    /// A store seals a memtable of this size, bytes.
    pub fn memtable_bytes(&self) -> u64 {
        self.0.plan.load().memtable / self.open_stores()
    }

    /// How many stores are open, at least one.
    pub fn open_stores(&self) -> u64 {
        self.0.open_stores.load(Ordering::Relaxed).max(1) as u64
    }

    /// Counts a store in until the guard is dropped.
    pub fn enter(&self) -> StoreGuard {
        self.0.open_stores.fetch_add(1, Ordering::Relaxed);
        StoreGuard(self.clone())
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resources({:?})", self.0.budget)
    }
}

/// An open store's claim on a part of the write buffers.
pub struct StoreGuard(Resources);

impl Drop for StoreGuard {
    fn drop(&mut self) {
        self.0.0.open_stores.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_two_or_as_asked_up_to_the_cores() {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        assert_eq!(threads_of(None).unwrap(), 2);
        assert_eq!(threads_of(Some(1)).unwrap(), 1);
        assert_eq!(threads_of(Some(100_000)).unwrap(), cores.max(2));
        assert!(threads_of(Some(0)).is_err());
        let builder = Resources::builder().memory(64 << 20).background_threads(1);
        assert_eq!(builder.build().unwrap().background_threads(), 1);
    }
}

//! The builder of [`Resources`].

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use arena::RegionPool;
use base::{
    Account, Budget, Clock, Error, Executor, Owner, ReclaimOrder, Result, SystemClock, Threads,
};
use cache::{Balance, PageCache, RowCache};
use compact::offload::Offload;
use parking_lot::Mutex;
use table::HeldFilters;
use tree::compaction::CompactionPool;

use super::{COMPACTION, FILTERS, Inner, Resources, apply_caps, kept_region_bytes};
use crate::memory_limit::default_memory;
use crate::memory_plan::{FLUSH_BYTES, MemoryPlan};
use crate::scm::{Scm, ScmCache};

/// Account of the memory kept for future memtables.
const REGIONS: &str = "memtables to come";

/// Default number of background threads: one for a flush, and one so that a store's interval sync need not
/// wait for it.
const BACKGROUND_THREADS: usize = 2;

/// Makes [`Resources`].
#[derive(Debug, Default)]
pub struct ResourcesBuilder {
    memory: Option<u64>,
    background_threads: Option<usize>,
    executor: Option<Arc<dyn Executor>>,
    scm: Option<Scm>,
    no_rows: bool,
    page_cache_max: Option<u64>,
    offload: Option<Arc<dyn Offload>>,
}

/// Merges in other processes, for the facade: users name the workers, not this trait.
pub trait OffloadsMerges {
    /// Offers merges to `offload`. Merges that no worker takes or ends run here.
    #[must_use]
    fn offload(self, offload: Arc<dyn Offload>) -> Self;
}

impl OffloadsMerges for ResourcesBuilder {
    fn offload(mut self, offload: Arc<dyn Offload>) -> Self {
        self.offload = Some(offload);
        self
    }
}

impl ResourcesBuilder {
    /// Sets the memory limit of all stores together, bytes: memtables, caches, metadata, buffers. At least
    /// 64 MiB. The default is a quarter of the memory of the cgroup or the machine.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Sets the number of threads for background work; two by default, unused if an executor is set. As many
    /// merges run at once as there are threads, so more threads help if writers wait for merges. The number
    /// is limited to the machine's cores, or to two on a smaller machine.
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.background_threads = Some(threads);
        self
    }

    /// Adds a second cache tier on storage-class memory. If it cannot be opened or fails, stores work
    /// without it, and `terracedb::stats::Statistics::scm` reports the failure.
    #[must_use]
    pub fn scm(mut self, scm: Scm) -> Self {
        self.scm = Some(scm);
        self
    }

    /// Turns the row cache off, for measurements.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn without_rows(mut self) -> Self {
        self.no_rows = true;
        self
    }

    /// Limits the page cache to `bytes`, whatever the memory limit, for simulations.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn page_cache_max(mut self, bytes: u64) -> Self {
        self.page_cache_max = Some(bytes);
        self
    }

    /// Sets the executor of background work; the stores use its clock. The default is threads of its own
    /// and the machine's clock.
    #[must_use]
    pub fn executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Makes the resources, and starts their threads.
    ///
    /// # Errors
    /// `Invalid` if the memory limit is below 64 MiB or the number of threads is 0. `Retry` if a thread
    /// cannot be started.
    pub fn build(self) -> Result<Resources> {
        let plan = MemoryPlan::new(self.memory.unwrap_or_else(default_memory))?;
        let budget = Budget::new(plan.budget);
        apply_caps(&plan, &budget);
        let page_cache_max = self.page_cache_max.unwrap_or(u64::MAX);
        let caches = Caches::new(&plan, &budget, page_cache_max)?;
        let regions = RegionPool::new(budget.account(REGIONS), kept_region_bytes(&plan));
        let reclaimer = Arc::downgrade(&regions);
        budget.add_reclaimer(ReclaimOrder::Optional, reclaimer);
        let filters = HeldFilters::new(budget.spare_account(FILTERS));
        let reclaimer = Arc::downgrade(&filters);
        budget.add_reclaimer(ReclaimOrder::Optional, reclaimer);
        let flush = budget.set_aside("flushes", FLUSH_BYTES);
        let background_threads = limited_threads(self.background_threads)?;
        let executors = Executors::new(self.executor, background_threads)?;
        let account = budget.account("SCM map");
        let scm = self.scm.map(|scm| start_scm(scm, &account, &caches, &executors)).transpose()?;
        let compaction = CompactionPool::new(budget.account(COMPACTION), plan.compaction);
        Ok(Resources(Arc::new(Inner {
            owner: Owner::this(),
            memory: AtomicU64::new(plan.memory),
            budget,
            cache: caches.pages,
            rows: caches.rows,
            balance: caches.balance,
            scm,
            has_rows: !self.no_rows,
            page_cache_max,
            regions,
            flush,
            executor: executors.background,
            urgent: executors.urgent,
            watch: executors.watch,
            network: executors.network,
            background_threads,
            compaction,
            filters,
            offload: self.offload,
            resizing: Mutex::new(()),
            open_stores: AtomicUsize::default(),
        })))
    }
}

/// The DRAM tier: page cache, row cache, and the balance of memory between them.
struct Caches {
    pages: Arc<PageCache>,
    rows: Arc<RowCache>,
    balance: Arc<Balance>,
}

impl Caches {
    fn new(plan: &MemoryPlan, budget: &Budget, page_cache_max: u64) -> Result<Self> {
        let account = budget.spare_account("page cache");
        let pages = Arc::new(PageCache::new(&account, plan.budget.min(page_cache_max))?);
        let account = budget.spare_account("row cache");
        let rows = Arc::new(RowCache::new(&account, Balance::first_rows(plan.budget))?);
        let balance = Arc::new(Balance::new(&pages, &rows));
        let reclaimer = Arc::downgrade(&balance);
        budget.add_reclaimer(ReclaimOrder::Cache, reclaimer);
        Ok(Self { pages, rows, balance })
    }
}

/// The executors of background work. See the fields of `Resources` for their use.
struct Executors {
    background: Arc<dyn Executor>,
    urgent: Arc<dyn Executor>,
    watch: OnceLock<Arc<dyn Executor>>,
    network: OnceLock<Arc<dyn Executor>>,
    /// The user's executor runs everything, so that nothing gets a thread of its own.
    is_given: bool,
}

impl Executors {
    fn new(given: Option<Arc<dyn Executor>>, background_threads: usize) -> Result<Self> {
        if let Some(executor) = given {
            return Ok(Self {
                background: Arc::clone(&executor),
                urgent: Arc::clone(&executor),
                watch: Arc::clone(&executor).into(),
                network: executor.into(),
                is_given: true,
            });
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let background = Threads::start_low_priority(background_threads, Arc::clone(&clock))?;
        Ok(Self {
            background: Arc::new(background),
            urgent: Arc::new(Threads::start(1, clock)?),
            watch: OnceLock::new(),
            network: OnceLock::new(),
            is_given: false,
        })
    }
}

/// Opens the SCM tier under the caches. Its task gets a thread of its own: its steps are short and its queue
/// is bounded, and behind merges and readers most pages to demote would be refused.
fn start_scm(
    scm: Scm,
    account: &Account,
    caches: &Caches,
    executors: &Executors,
) -> Result<ScmCache> {
    let executor: Arc<dyn Executor> = match executors.is_given {
        true => Arc::clone(&executors.background),
        false => Arc::new(Threads::start(1, Arc::clone(executors.background.clock()))?),
    };
    Ok(ScmCache::start(scm, account, &caches.pages, &caches.rows, executor))
}

/// The number of background threads for the `asked` number: at most the cores, or two if there are fewer.
fn limited_threads(asked: Option<usize>) -> Result<usize> {
    if asked == Some(0) {
        return Err(Error::invalid("background threads").expected("at least 1").got(0));
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Ok(asked.unwrap_or(BACKGROUND_THREADS).min(cores.max(BACKGROUND_THREADS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_threads_are_two_or_as_asked_up_to_the_cores() {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        assert_eq!(limited_threads(None).unwrap(), 2);
        assert_eq!(limited_threads(Some(1)).unwrap(), 1);
        assert_eq!(limited_threads(Some(100_000)).unwrap(), cores.max(2));
        assert!(limited_threads(Some(0)).is_err());
        let builder = Resources::builder().memory(64 << 20).background_threads(1);
        assert_eq!(builder.build().unwrap().background_threads(), 1);
    }
}

//! The offload of a store's merges: the workers, the attempts that were given up, and the sweep of the files
//! that such attempts still made.
//!
//! A worker with access to the store's directory may go on for a lease after its host gave it up, or died.
//! What it writes has ids that were reserved for that attempt alone, so it can do no harm; but nothing names
//! these files. Two leases later nothing writes them any more, and [`Offloading::sweep`] removes them.
//!
//! Any thread may call. Cost: a short lock; a sweep lists the directory, once per attempt that failed.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Result, TableId};
use compact::offload::{LEASE, Offload};
use media::Medium;
use parking_lot::Mutex;

use super::CompactionHost;

/// Attempts by workers before a merge runs in this process.
pub(super) const ATTEMPTS_MAX: u32 = 2;

/// Memory of a merge while a worker runs it: the buffers of the link and of verification, bytes.
pub(super) const LINK_BYTES: u64 = (2 << 20) + (256 << 10);

/// Most ranges that wait for a sweep. Further ones are left to the next open.
const ABANDONED_MAX: usize = 1024;

/// Ids that no file may have any more.
struct Abandoned {
    ids: Range<TableId>,
    /// Ids within the range that files have rightly.
    kept: BTreeSet<TableId>,
    since: Duration,
}

/// The offload of a store's merges. See the module.
pub(super) struct Offloading {
    pub(super) workers: Arc<dyn Offload>,
    host: Arc<dyn CompactionHost>,
    abandoned: Mutex<Vec<Abandoned>>,
    /// Attempts of workers that were given up. Only a number: `Relaxed`.
    fallbacks: AtomicU64,
    /// Drawn when the store was opened: the upper half of each epoch.
    life: u64,
}

impl Offloading {
    /// The offload of `host`; `None` if it has no workers. `medium` holds the store's files and no others,
    /// and new ones have ids from `next` on: any other file that appears is a worker's of an earlier life.
    pub(super) fn new(
        host: &Arc<dyn CompactionHost>,
        medium: &dyn Medium,
        next: TableId,
    ) -> Result<Option<Arc<Self>>> {
        let Some(workers) = host.offload() else { return Ok(None) };
        let offloading = Self {
            workers: Arc::clone(workers),
            host: Arc::clone(host),
            abandoned: Mutex::default(),
            fallbacks: AtomicU64::new(0),
            life: (base::StoreId::random()?.0 as u64) << 32,
        };
        let listed = medium.list()?;
        let kept = listed.iter().filter_map(|file| table_or_values(&file.name)).collect();
        offloading.push(TableId(0)..next, kept);
        Ok(Some(Arc::new(offloading)))
    }

    /// The epoch of a job's first attempt.
    pub(super) const fn first_epoch(&self) -> u64 {
        self.life
    }

    /// Attempts of workers that were given up.
    pub(super) fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// Counts an attempt that failed.
    pub(super) fn count_fallback(&self) {
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// Has files with one of `ids` removed, once no worker writes them any more.
    pub(super) fn abandon(&self, ids: Range<TableId>) {
        self.push(ids, BTreeSet::new());
    }

    fn push(&self, ids: Range<TableId>, kept: BTreeSet<TableId>) {
        let mut abandoned = self.abandoned.lock();
        if abandoned.len() < ABANDONED_MAX {
            abandoned.push(Abandoned { ids, kept, since: self.now() });
        }
    }

    fn now(&self) -> Duration {
        self.host.executor().clock().monotonic()
    }

    /// Removes the files of attempts that were given up two leases ago. Returns how many.
    pub(super) fn sweep(&self, medium: &dyn Medium) -> usize {
        let now = self.now();
        let due: Vec<_> = {
            let mut abandoned = self.abandoned.lock();
            abandoned.extract_if(.., |it| now.saturating_sub(it.since) >= 2 * LEASE).collect()
        };
        if due.is_empty() {
            return 0;
        }
        // If the directory cannot be listed, or a file not be removed, the next open does it.
        let listed = medium.list().unwrap_or_default();
        let is_orphan =
            |id: &TableId| due.iter().any(|it| it.ids.contains(id) && !it.kept.contains(id));
        let orphans = listed
            .iter()
            .filter(|file| table_or_values(&file.name).as_ref().is_some_and(is_orphan));
        orphans.filter(|file| medium.remove(&file.name).is_ok()).count()
    }
}

impl fmt::Debug for Offloading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offloading({:?})", self.workers)
    }
}

/// The id of a table or value file.
fn table_or_values(name: &str) -> Option<TableId> {
    table::parse_file_name(name).or_else(|| table::parse_values_file_name(name))
}

#[cfg(test)]
mod tests {
    use base::{Executor, ManualClock, Stepper};
    use compact::offload::{Decision, JobShape, Placement, RemoteRun, Verify, WorkerStatistics};
    use compact::{Env, Job, Outcome};
    use media::{Access, MemoryMedium};

    use super::*;

    #[derive(Debug)]
    struct NoWorkers;

    impl Offload for NoWorkers {
        fn place(&self, _: &JobShape) -> Placement {
            Placement::Local
        }

        fn ended(&self, _: &JobShape, _: Placement, _: Duration, _: bool) {}

        fn engine(&self) -> Option<Arc<dyn table::BlockEngine>> {
            None
        }

        fn falls_back(&self) -> bool {
            true
        }

        fn verifies(&self) -> Verify {
            Verify::Full
        }

        fn decisions(&self) -> Vec<Decision> {
            Vec::new()
        }

        fn offer(&self, _: &Job, _: &JobShape, _: &Env, _: TableId) -> Option<Box<dyn RemoteRun>> {
            None
        }

        fn verify(
            &self,
            _: &Job,
            _: &Outcome,
            _: &Env,
            _: TableId,
            _: &str,
        ) -> Option<Box<dyn RemoteRun>> {
            None
        }

        fn statistics(&self) -> Vec<WorkerStatistics> {
            Vec::new()
        }
    }

    struct TestHost(Stepper, Arc<dyn Offload>);

    impl fmt::Debug for TestHost {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("TestHost")
        }
    }

    impl CompactionHost for TestHost {
        fn executor(&self) -> &dyn Executor {
            &self.0
        }

        fn memtable_bytes(&self) -> u64 {
            0
        }

        fn value_bytes_max(&self) -> usize {
            0
        }

        fn are_range_deletes_pressing(&self) -> bool {
            false
        }

        fn table_memory_excess(&self) -> u64 {
            0
        }

        fn debt_changed(&self, _: f64, _: f64) {}

        fn offload(&self) -> Option<&Arc<dyn Offload>> {
            Some(&self.1)
        }
    }

    #[test]
    fn files_of_abandoned_attempts_are_removed_after_two_leases_and_no_others() {
        let clock = Arc::new(ManualClock::default());
        let host: Arc<dyn CompactionHost> =
            Arc::new(TestHost(Stepper::new(0, Arc::clone(&clock) as _), Arc::new(NoWorkers)));
        let medium = MemoryMedium::new();
        let add = |id| {
            drop(medium.create(&table::file_name(TableId(id)), Access::Direct, 0).unwrap());
        };
        let names = || medium.list().unwrap().into_iter().map(|it| it.name).collect::<Vec<_>>();
        let named =
            |ids: &[u64]| ids.iter().map(|id| table::file_name(TableId(*id))).collect::<Vec<_>>();
        add(3);
        let offloading = Offloading::new(&host, &medium, TableId(10)).unwrap().unwrap();
        // 4: a worker of an earlier life of the store. 11: one of this life. 15: the store's own.
        add(4);
        clock.advance(LEASE);
        offloading.abandon(TableId(11)..TableId(14));
        add(11);
        add(15);
        assert_eq!(offloading.sweep(&medium), 0);
        clock.advance(LEASE);
        assert_eq!(offloading.sweep(&medium), 1);
        assert_eq!(names(), named(&[3, 11, 15]));
        clock.advance(LEASE);
        assert_eq!(offloading.sweep(&medium), 1);
        assert_eq!(names(), named(&[3, 15]));
        assert_eq!(offloading.sweep(&medium), 0);
        // Two lives of a store have different epochs.
        let next_life = Offloading::new(&host, &medium, TableId(20)).unwrap().unwrap();
        assert_ne!(offloading.first_epoch(), next_life.first_epoch());
    }
}

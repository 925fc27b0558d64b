//! The compactor: the compaction state of all keyspaces of a store, shared by the tasks that run jobs and by
//! callers that request merges or statistics.
//!
//! Concurrency: any thread. `state` is a short lock, taken after a tree's version edit guard and never before
//! it. Planning holds the guard of the planned tree: a few milliseconds for a thousand tables, about 25 ms if
//! these lie in forty runs. A flush of the same keyspace waits that long before it is installed; readers and
//! writers never wait.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::sync::{Condvar, Mutex, MutexGuard};
use base::{Error, KeyspaceId, Owner, Result, TaskHandle, invariant};
use compact::offload::Placement;
use compact::{Operators, plan};
use media::{Metered, Purpose, Usage};

use super::compactor_state::CompactorState;
use super::counters::Merged;
use super::keyspace_state::KeyspaceCompactionState;
use super::offloading::Offloading;
use super::rate_limiter::RateLimiter;
use super::reader_share::{ReaderShare, Readers};
use super::{CompactionHost, CompactionPool, CompactionStatistics, Counters, MergeJob};
use crate::{TableFile, Tree, TreeContext, Trees};

/// The compaction state of a store. See the module.
pub struct Compactor {
    pub(super) owner: Owner,
    pub(super) env: Arc<TreeContext>,
    pub(super) operators: Arc<Operators>,
    pub(super) trees: Arc<Trees>,
    pub(super) host: Arc<dyn CompactionHost>,
    pub(super) pool: Arc<CompactionPool>,
    pub(super) options: plan::Options,
    pub(super) offloading: Option<Arc<Offloading>>,
    metered: Arc<Metered>,
    rate_limiter: RateLimiter,
    reader_share: ReaderShare,
    pub(super) tasks: OnceLock<Vec<TaskHandle>>,
    /// Whether a flush is in progress. Only makes tasks leave their thread to the flush, so `Relaxed`.
    flushing: AtomicBool,
    pub(super) counters: Counters,
    pub(super) state: Mutex<CompactorState>,
    /// Signalled when a merge ends, and when nothing is left to do.
    pub(super) changed: Condvar,
}

impl Compactor {
    /// A compactor of `trees`. Jobs charge their memory to `pool`; `metered` counts the bytes that they read
    /// and write.
    ///
    /// # Errors
    /// With workers: those of listing the directory, and `Retry` without randomness.
    pub fn new(
        env: Arc<TreeContext>,
        trees: Arc<Trees>,
        host: Arc<dyn CompactionHost>,
        pool: Arc<CompactionPool>,
        operators: Arc<Operators>,
        options: plan::Options,
        metered: Arc<Metered>,
    ) -> Result<Self> {
        let offloading = Offloading::new(&host, &*env.medium, env.manifest.upcoming_table())?;
        let (tasks, flushing, counters) = Default::default();
        let (rate_limiter, reader_share) = Default::default();
        let (state, changed) = Default::default();
        Ok(Self {
            owner: Owner::this(),
            env,
            operators,
            trees,
            host,
            pool,
            options,
            offloading,
            metered,
            rate_limiter,
            reader_share,
            tasks,
            flushing,
            counters,
            state,
            changed,
        })
    }

    /// Sets the tasks to wake when there may be something to merge. Called once, at open.
    pub fn set_tasks(&self, tasks: Vec<TaskHandle>) {
        invariant!(self.tasks.set(tasks).is_ok(), "the compactor's tasks are set once");
    }

    /// The components that jobs use.
    pub fn env(&self) -> &Arc<TreeContext> {
        &self.env
    }

    pub(super) fn wake(&self) {
        self.tasks.get().into_iter().flatten().for_each(TaskHandle::wake);
    }

    /// Monotonic time.
    pub fn now(&self) -> Duration {
        self.host.executor().clock().monotonic()
    }

    /// How long a merge must wait so that all merges together keep to the configured rate.
    pub(super) fn rate_wait(&self) -> Option<Duration> {
        let (usage, now) = (self.metered.snapshot(), self.now());
        let counts = usage.of(Purpose::Compaction);
        let set = self.env.options.tree_options().compaction_rate;
        let share = match self.state.lock().is_awaited() {
            true => 0,
            false => self.reader_share.rate(now, self.env.ring.visible(), || self.readers(&usage)),
        };
        let rate = [set, share].into_iter().filter(|rate| *rate > 0).min().unwrap_or(0);
        self.rate_limiter.wait(rate, counts.read_bytes + counts.write_bytes, now)
    }

    fn readers(&self, usage: &Usage) -> Readers {
        let of_readers = [Purpose::Data, Purpose::Meta, Purpose::ReadAhead];
        let counts = of_readers.map(|purpose| usage.of(purpose));
        let trees = self.trees.all();
        Readers {
            reads: counts.iter().map(|counts| counts.read_ops).sum(),
            bytes: counts.iter().map(|counts| counts.read_bytes).sum(),
            seeks: trees.iter().map(|tree| tree.view().read_context.walks().seeks.get()).sum(),
        }
    }

    /// Tells whether a flush is in progress.
    pub fn set_flushing(&self, flushing: bool) {
        self.flushing.store(flushing, Ordering::Relaxed);
    }

    /// Whether a flush is in progress.
    pub fn is_flushing(&self) -> bool {
        self.flushing.load(Ordering::Relaxed)
    }

    /// Records that a flush of `tree` wrote `bytes`, tables and value files together.
    pub fn flushed(&self, tree: &Tree, bytes: u64) {
        let version = Arc::clone(&tree.view().version);
        let held = |file: &Arc<TableFile>| file.summary().bytes + file.summary().value_bytes();
        let all: u64 = version.files().into_iter().map(held).sum();
        tree.writes().flush_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.state.lock().keyspaces.entry(tree.id()).or_default().flushed(bytes, all);
        self.wake();
    }

    /// Records that `job` was installed.
    pub fn merged(&self, job: MergeJob, merged: &Merged) {
        self.counters.merged(merged);
        let (shape, place) = job.placed();
        // A job that came back took the time of two places.
        let is_clean = merged.remote == (place == Placement::Remote);
        if let Some(offloading) = &self.offloading {
            offloading.workers.ended(
                &shape,
                place,
                self.now().saturating_sub(job.began()),
                is_clean,
            );
        }
        let (id, bytes) = (job.tree().id(), job.bytes());
        job.count(merged);
        drop(job);
        let mut state = self.state.lock();
        let keyspace = state.keyspaces.entry(id).or_default();
        keyspace.succeeded();
        if let Some(bytes) = merged.turnover {
            keyspace.turnover.merged(bytes.newer, bytes.oldest, bytes.outputs);
        }
        self.job_ended(state, id, bytes);
    }

    /// Whether writers are delayed until merges catch up.
    pub(super) fn are_writers_delayed(&self) -> bool {
        let state = self.state.lock();
        state.keyspaces.values().any(|keyspace| keyspace.debt.fullness > 1.0)
    }

    /// Has the next merge of `tree` run in this process, with all its memory from the start, if `runs_here`.
    pub(super) fn runs_here_next(&self, tree: &Tree, runs_here: bool) {
        if runs_here {
            self.state.lock().keyspaces.entry(tree.id()).or_default().runs_here = true;
        }
    }

    /// Whether the next merge of `tree` must run in this process; forgotten then.
    pub(super) fn take_runs_here(&self, tree: &Tree) -> bool {
        let mut state = self.state.lock();
        let keyspace = state.keyspaces.entry(tree.id()).or_default();
        std::mem::take(&mut keyspace.runs_here)
    }

    /// Drops `job` without a result.
    pub fn cancelled(&self, job: MergeJob) {
        self.counters.cancelled();
        let (id, bytes) = (job.tree().id(), job.bytes());
        job.cancel(&self.env);
        self.job_ended(self.state.lock(), id, bytes);
    }

    /// Records that `job` failed and changed nothing. If it failed because memory was taken away while it
    /// ran, it is planned again for the memory that is left. If it found too little memory, because several
    /// of its inputs had long entries at once, it is planned again with fewer runs.
    pub fn failed(&self, job: MergeJob, error: Error) {
        let tree = Arc::clone(job.tree());
        self.runs_here_next(&tree, job.lacked_memory_here());
        if tree.is_dropped() || error.is_retryable() && job.is_curtailed() {
            return self.cancelled(job);
        }
        let id = tree.id();
        if error.is_retryable() && self.state.lock().keyspaces.entry(id).or_default().narrow() {
            return self.cancelled(job);
        }
        let error = error.at(job.describe());
        let (bytes, is_kept_out) = (job.bytes(), job.has_damaged_input());
        drop(job);
        self.note_failure(&tree, error, is_kept_out);
        self.job_ended(self.state.lock(), tree.id(), bytes);
    }

    /// Records the end of a job of `keyspace` that might have written `bytes`.
    fn job_ended(
        &self,
        mut state: MutexGuard<'_, CompactorState>,
        keyspace: KeyspaceId,
        bytes: u64,
    ) {
        if let Some(keyspace) = state.keyspaces.get_mut(&keyspace) {
            keyspace.job_ended(bytes);
        }
        // Its memory may be what other keyspaces lacked, which may be fuller.
        state
            .keyspaces
            .values_mut()
            .filter(|keyspace| keyspace.debt.bytes > 0)
            .for_each(KeyspaceCompactionState::allow_planning);
        invariant!(state.running > 0, "a job that ends was counted as running");
        state.running = state.running.saturating_sub(1);
        state.ended += 1;
        self.changed.notify_all();
        drop(state);
        // Other tasks may now get the memory or keys that they lacked.
        self.wake();
    }

    /// Records that planning or a job of `tree` failed. `is_kept_out`: later merges leave the damaged table
    /// out.
    pub(super) fn note_failure(&self, tree: &Tree, error: Error, is_kept_out: bool) {
        self.counters.failed();
        let now = self.now();
        let mut state = self.state.lock();
        state.keyspaces.entry(tree.id()).or_default().failed(error.clone(), is_kept_out, now);
        let own = state.requests.values_mut().filter(|request| request.keyspace == tree.id());
        for request in own.filter(|request| request.ended.is_none()) {
            if is_kept_out {
                request.damage.get_or_insert_with(|| error.clone());
            } else {
                request.ended = Some(Err(error.clone()));
            }
        }
        self.changed.notify_all();
    }

    /// Makes all waiting callers return `Closed`.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// The error of the last merge of a keyspace, until one succeeds.
    pub fn failing(&self) -> Option<Error> {
        self.state.lock().failing().cloned()
    }

    /// Statistics since the store was opened.
    pub fn statistics(&self) -> CompactionStatistics {
        let damaged = |tree: &Arc<Tree>| {
            let version = Arc::clone(&tree.view().version);
            version.files().iter().filter(|file| file.is_damaged()).count()
        };
        let damaged_tables = self.trees.all().iter().map(damaged).sum();
        let state = self.state.lock();
        let failure = state.failing();
        CompactionStatistics {
            running: state.running,
            failing: failure.map(ToString::to_string),
            debt_bytes: state.keyspaces.values().map(|keyspace| keyspace.debt.bytes).sum(),
            damaged_tables,
            decisions: self
                .offloading
                .as_ref()
                .map(|it| it.workers.decisions())
                .unwrap_or_default(),
            fallbacks: self.offloading.as_ref().map_or(0, |it| it.fallbacks()),
            workers: self.offloading.as_ref().map(|it| it.workers.statistics()).unwrap_or_default(),
            ..self.counters.statistics()
        }
    }
}

impl fmt::Debug for Compactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Compactor({:?})", self.options)
    }
}

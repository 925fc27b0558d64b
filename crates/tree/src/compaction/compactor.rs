//! Finds what to merge, and keeps count: shared by the tasks that merge and by those who ask.
//!
//! Concurrency: `state` is a short lock, taken after a tree's shape and never before it. Planning
//! happens under the shape of the tree it is about: a few milliseconds for a thousand tables, some 25
//! where they lie forty deep, in which a flush of the same keyspace waits to be installed; readers and
//! writers never wait.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::{Error, KeyspaceId, TaskHandle, invariant};
use compact::{Operators, plan};
use media::{Metered, Purpose};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::compactor_state::CompactorState;
use super::counters::Merged;
use super::keyspace_state::KeyspaceCompactionState;
use super::rate_limiter::RateLimiter;
use super::{CompactionHost, CompactionPool, CompactionStatistics, Counters, MergeJob};
use crate::{TableFile, Tree, TreeContext, Trees};

/// See the module.
pub struct Compactor {
    pub(super) env: Arc<TreeContext>,
    pub(super) operators: Arc<Operators>,
    pub(super) trees: Arc<Trees>,
    pub(super) host: Arc<dyn CompactionHost>,
    pub(super) pool: Arc<CompactionPool>,
    pub(super) options: plan::Options,
    metered: Arc<Metered>,
    rate_limiter: RateLimiter,
    pub(super) tasks: OnceLock<Vec<TaskHandle>>,
    /// Only makes a task leave its thread to the flush: `Relaxed`.
    flushing: AtomicBool,
    pub(super) counters: Counters,
    pub(super) state: Mutex<CompactorState>,
    /// Signalled when a merge ends, and when nothing is left to do.
    pub(super) changed: Condvar,
}

impl Compactor {
    pub fn new(
        env: Arc<TreeContext>,
        trees: Arc<Trees>,
        host: Arc<dyn CompactionHost>,
        pool: Arc<CompactionPool>,
        operators: Arc<Operators>,
        options: plan::Options,
        metered: Arc<Metered>,
    ) -> Self {
        let (tasks, flushing, counters, rate_limiter) = Default::default();
        let (state, changed) = Default::default();
        Self {
            env,
            operators,
            trees,
            host,
            pool,
            options,
            metered,
            rate_limiter,
            tasks,
            flushing,
            counters,
            state,
            changed,
        }
    }

    /// Names the tasks to wake when there may be something to merge.
    pub fn set_tasks(&self, tasks: Vec<TaskHandle>) {
        // Called once, at open.
        let _ = self.tasks.set(tasks);
    }

    pub fn env(&self) -> &Arc<TreeContext> {
        &self.env
    }

    pub(super) fn wake(&self) {
        self.tasks.get().into_iter().flatten().for_each(TaskHandle::wake);
    }

    pub fn now(&self) -> Duration {
        self.host.executor().clock().monotonic()
    }

    /// How long a merge is to wait, so that all of them keep to the rate that is set.
    pub(super) fn rate_wait(&self) -> Option<Duration> {
        let counts = self.metered.snapshot().of(Purpose::Compaction);
        let rate = self.env.options.load().compaction_rate;
        self.rate_limiter.wait(rate, counts.read_bytes + counts.write_bytes, self.now())
    }

    pub fn set_flushing(&self, flushing: bool) {
        self.flushing.store(flushing, Ordering::Relaxed);
    }

    /// Whether a flush is under way.
    pub fn is_flushing(&self) -> bool {
        self.flushing.load(Ordering::Relaxed)
    }

    /// A flush of `tree` wrote `bytes`, of a table and of long values.
    pub fn flushed(&self, tree: &Tree, bytes: u64) {
        let version = Arc::clone(&tree.view().version);
        let held = |file: &Arc<TableFile>| file.summary().bytes + file.summary().value_bytes();
        let all: u64 = version.files().into_iter().map(held).sum();
        self.state.lock().keyspaces.entry(tree.id()).or_default().flushed(bytes, all);
        self.wake();
    }

    /// `job` is installed.
    pub fn merged(&self, job: MergeJob, merged: &Merged) {
        self.counters.merged(merged);
        let (id, bytes) = (job.tree().id(), job.bytes());
        drop(job);
        let mut state = self.state.lock();
        let keyspace = state.keyspaces.entry(id).or_default();
        keyspace.succeeded();
        if let Some((newer, oldest, out)) = merged.turnover {
            keyspace.turnover.merged(newer, oldest, out);
        }
        self.job_ended(state, id, bytes);
    }

    /// `job` was given up.
    pub fn cancelled(&self, job: MergeJob) {
        self.counters.cancelled();
        let (id, bytes) = (job.tree().id(), job.bytes());
        job.cancel(&self.env);
        self.job_ended(self.state.lock(), id, bytes);
    }

    /// `job` failed: nothing happened. One that found no memory because some was taken away while it
    /// ran is planned again, for what there is now.
    pub fn failed(&self, job: MergeJob, error: Error) {
        let tree = Arc::clone(job.tree());
        if tree.is_dropped() || error.is_retryable() && job.is_curtailed() {
            return self.cancelled(job);
        }
        let error = error.at(job.describe());
        let (bytes, is_kept_out) = (job.bytes(), job.has_damaged_input());
        drop(job);
        self.note_failure(&tree, error, is_kept_out);
        self.job_ended(self.state.lock(), tree.id(), bytes);
    }

    /// A job of `keyspace` ended, which might have written `bytes`.
    fn job_ended(
        &self,
        mut state: MutexGuard<'_, CompactorState>,
        keyspace: KeyspaceId,
        bytes: u64,
    ) {
        if let Some(keyspace) = state.keyspaces.get_mut(&keyspace) {
            keyspace.job_ended(bytes);
        }
        // Its memory may be what looks at others were in vain for, which may be more urgent.
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
        // What the others could not take may be free now.
        self.wake();
    }

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

    /// Sends everyone away who waits.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Why merges fail, while they do.
    pub fn failing(&self) -> Option<Error> {
        self.state.lock().failing().cloned()
    }

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
            ..self.counters.statistics()
        }
    }
}

impl fmt::Debug for Compactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Compactor({:?})", self.options)
    }
}

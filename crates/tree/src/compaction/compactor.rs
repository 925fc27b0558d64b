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

use base::{Error, ErrorKind, KeyspaceId, Result, TaskHandle, format_bytes};
use compact::plan::{self, ManualRange, Plan};
use compact::{Horizon, Operators};
use media::{Metered, Purpose};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::compactor_state::CompactorState;
use super::counters::Merged;
use super::keyspace_state::{KeyspaceCompactionState, PlanInputs};
use super::merge_job::writer_bytes;
use super::rate_limiter::RateLimiter;
use super::{
    CompactionHost, CompactionPool, CompactionStatistics, Counters, MergeJob, merge_end, summary,
};
use crate::Trees;
use crate::{TableFile, Tree, TreeContext, VersionEditGuard};

/// What a job takes for reading, at most.
const READ_BYTES_MAX: usize = 8 << 20;

/// A look moves or drops tables at most this often before it leaves the rest to the next.
const CHANGES_PER_ROUND: usize = 64;

/// See the module.
pub struct Compactor {
    pub(super) env: Arc<TreeContext>,
    operators: Arc<Operators>,
    pub(super) trees: Arc<Trees>,
    pub(super) host: Arc<dyn CompactionHost>,
    pool: Arc<CompactionPool>,
    options: plan::Options,
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

    /// What a job works with, as the memory number is now.
    fn job_env(&self) -> compact::Env {
        let read_bytes = (self.pool.limit() / 4) as usize;
        compact::Env {
            medium: Arc::clone(&self.env.medium),
            dictionaries: Arc::clone(&self.env.dictionaries) as _,
            operators: Arc::clone(&self.operators),
            account: self.pool.account(),
            tables: self.env.accounts.pinned.clone(),
            read_bytes: read_bytes.min(READ_BYTES_MAX),
        }
    }

    /// What is planned by: no more runs at once than memory for one job has room for.
    pub(super) fn job_options(&self) -> plan::Options {
        let codec = self.env.options.load().codec;
        let taken = writer_bytes(codec) + self.job_env().read_bytes;
        let room = (self.pool.limit() as usize).saturating_sub(taken);
        let fits = (room / compact::Env::RUN_BYTES_MIN).max(2);
        plan::Options { runs_max: self.options.runs_max.min(fits), ..self.options.clone() }
    }

    /// The next merge, reserved for the caller; none where there is nothing to do now.
    pub fn next_job(&self) -> Option<MergeJob> {
        // A manifest that failed takes no record of what would be merged.
        if self.env.manifest.poisoned().is_some() {
            self.end_requests(None, &|| Error::new(ErrorKind::Poisoned, "manifest"));
            return None;
        }
        let told = |state: &CompactorState| (state.ended, state.refused, state.settle_calls);
        let before = {
            let state = self.state.lock();
            // Not worth a look: the least job has to wait until another ends.
            if state.running > 0 && !self.pool.has_room(MergeJob::MEMORY_MIN) {
                return None;
            }
            told(&state)
        };
        for tree in self.by_pressure() {
            match self.plan_keyspace(&tree) {
                Ok(Some(job)) => return Some(job),
                Ok(None) => {}
                Err(error) => self.note_failure(&tree, error, false),
            }
        }
        let mut state = self.state.lock();
        if state.running == 0 && told(&state) == before {
            state.idle_rounds += 1;
            self.changed.notify_all();
        }
        None
    }

    /// How long a task that found nothing to do may sleep, at most `longest`.
    pub fn sleep_time(&self, longest: Duration) -> Duration {
        let now = self.now();
        let state = self.state.lock();
        let owing = state.keyspaces.values().filter(|keyspace| keyspace.debt.bytes > 0);
        let next = owing.filter_map(|keyspace| keyspace.next_plan().checked_sub(now)).min();
        next.map_or(longest, |next| next.clamp(Duration::from_millis(1), longest))
    }

    /// The keyspaces, first those with the fullest trees at the last look.
    fn by_pressure(&self) -> Vec<Arc<Tree>> {
        let mut trees = self.trees.all();
        let mut state = self.state.lock();
        state.keyspaces.retain(|id, _| trees.iter().any(|tree| tree.id() == *id));
        for request in state.requests.values_mut().filter(|request| request.ended.is_none()) {
            if !trees.iter().any(|tree| tree.id() == request.keyspace) {
                request.ended = Some(Err(Error::closed("keyspace")));
            }
        }
        let pressure = |tree: &Arc<Tree>| {
            let debt =
                state.keyspaces.get(&tree.id()).map(|keyspace| keyspace.debt).unwrap_or_default();
            debt.fullness.max(debt.space_fullness)
        };
        trees.sort_by(|one, other| pressure(other).total_cmp(&pressure(one)));
        trees
    }

    /// Looks at one keyspace: does what takes no merge, and returns a merge if there is one to do.
    fn plan_keyspace(&self, tree: &Arc<Tree>) -> Result<Option<MergeJob>> {
        let options = self.job_options();
        for _ in 0..CHANGES_PER_ROUND {
            let mut guard = tree.version_edit();
            if tree.is_dropped() {
                return Ok(None);
            }
            let Some((summary, inputs, request)) = self.summary(tree, &guard) else {
                return Ok(None);
            };
            let start = self.now();
            let planned = plan::TreeLayout::new(&summary, &options);
            let (plan, debt) = (planned.plan(), planned.debt());
            let took = self.now().saturating_sub(start);
            let is_busy = !guard.reserved().is_empty();
            let mut job = None;
            match &plan {
                Some(Plan::Drop(pieces)) => {
                    self.drop_pieces(tree, &guard, pieces, summary.now_ms)?;
                }
                Some(Plan::Move(moves)) => self.move_pieces(tree, &guard, moves)?,
                Some(Plan::Merge(merge)) => {
                    job = self.start(tree, &mut guard, merge, summary.now_ms)?;
                }
                None => {}
            }
            let is_changed = matches!(plan, Some(Plan::Drop(_) | Plan::Move(_)));
            let no_space = match &plan {
                None if debt.bytes > 0 && !is_busy => no_space_error(&summary, &options),
                _ => None,
            };
            let mut state = self.state.lock();
            state.running += usize::from(job.is_some());
            state.ended += u64::from(is_changed);
            let keyspace = state.keyspaces.entry(tree.id()).or_default();
            keyspace.set_debt(debt, start, took);
            keyspace.job_bytes += job.as_ref().map_or(0, MergeJob::bytes);
            keyspace.no_space = no_space.clone();
            if job.is_none() && !is_changed {
                keyspace.planned_in_vain(start, took);
            }
            self.report_debt(&state);
            let keyspace = state.keyspaces.entry(tree.id()).or_default();
            // A merge that found no room now may find it without a change to this keyspace.
            if plan.is_none() {
                keyspace.set_empty_plan(inputs);
            }
            if let Some(request) = request.and_then(|id| state.requests.get_mut(&id)) {
                request.set_remaining(debt.manual_bytes);
                // What is left then cannot be merged: it is damaged, or there is no space to.
                if debt.manual_bytes == 0 || (plan.is_none() && !is_busy) {
                    if let Some(no_space) = no_space {
                        request.damage.get_or_insert(no_space);
                    }
                    request.end();
                    self.changed.notify_all();
                }
            }
            if !is_changed {
                return Ok(job);
            }
        }
        Ok(None)
    }

    /// Starts a merge; none where it has to wait for another's memory or keys.
    fn start(
        &self,
        tree: &Arc<Tree>,
        guard: &mut VersionEditGuard<'_>,
        merge: &plan::Merge,
        now_ms: u64,
    ) -> Result<Option<MergeJob>> {
        let env = self.job_env();
        let bytes = MergeJob::memory_for(merge, &env, self.env.options.load().codec);
        let most = self.pool.limit();
        // Beside many runs a few at least, or a slice would be next to nothing.
        let room = most.saturating_sub(bytes).max(most / 8);
        let (end, deletes) = merge_end::with_room_for_range_deletes(merge, &guard.version(), room);
        let merge = &plan::Merge { end, ..merge.clone() };
        let memory = self.pool.grant(bytes + deletes);
        let (id, running) = {
            let mut state = self.state.lock();
            state.refused += u64::from(memory.is_none());
            (state.id(), state.running)
        };
        let Some(memory) = memory else { return Ok(None) };
        match MergeJob::new(&self.env, &env, tree, guard, merge, (id, now_ms), memory) {
            Err(error) if error.is_retryable() && running > 0 => Ok(None),
            started => started,
        }
    }

    /// What the planner is told of `tree`, and the request it is asked about; none where a look can
    /// find nothing new.
    fn summary(
        &self,
        tree: &Tree,
        guard: &VersionEditGuard<'_>,
    ) -> Option<(plan::Summary, PlanInputs, Option<u64>)> {
        let (version, now) = (guard.version(), self.now());
        let horizon = self.env.snapshots.horizon(&self.env.ring);
        let mut state = self.state.lock();
        let quiet = state.is_quiet(self.env.ring.visible(), now);
        let requests = state.requests.iter();
        let mut own = requests.filter(|(_, it)| it.keyspace == tree.id() && it.ended.is_none());
        let request = own.next().map(|(id, request)| (*id, request.range.clone()));
        let (id, manual) = request.unzip();
        let snapshots = horizon.seqnos().split_last().map_or(&[][..], |(_, snapshots)| snapshots);
        let inputs = PlanInputs::new(&version, guard.reserved().len(), (quiet, snapshots), id, now);
        let is_awaited = manual.is_some() || state.settle_waiters > 0;
        let keyspace = state.keyspaces.entry(tree.id()).or_default();
        let is_early = keyspace.is_paused(now) || keyspace.is_planning_deferred(now);
        if keyspace.found_nothing_for(&inputs) || is_early && !is_awaited {
            return None;
        }
        drop(state);
        Some((self.planner_input(tree, guard, horizon, quiet, manual), inputs, id))
    }

    /// What the planner is told of `tree`, whatever looks found before.
    pub(super) fn planner_input(
        &self,
        tree: &Tree,
        guard: &VersionEditGuard<'_>,
        readers: Horizon,
        quiet: bool,
        manual: Option<ManualRange>,
    ) -> plan::Summary {
        let (version, now) = (guard.version(), self.now());
        let (superseding, demand, elsewhere) = {
            let mut state = self.state.lock();
            let all = state.all_job_bytes();
            let keyspace = state.keyspaces.entry(tree.id()).or_default();
            let demand = keyspace.demand(tree.view().read_context.seeks(), now);
            (keyspace.turnover.superseding(), demand, all - keyspace.job_bytes)
        };
        // A device that does not say how much is left is one on which merges find out by failing.
        let space = self.env.medium.space().ok().flatten();
        // What is on its way out is free by the time that a merge has come so far.
        let coming = self.env.obsolete.bytes();
        let free_bytes = space.map(|space| (space.free + coming).saturating_sub(elsewhere));
        plan::Summary {
            runs: summary::runs(&version),
            values: summary::values(&version),
            busy: summary::areas(guard.reserved()),
            free_bytes,
            now_ms: self.env.timekeeper.trusted_now(),
            readers,
            quiet,
            manual,
            unit_bytes: self.host.memtable_bytes() / 2,
            superseding,
            demand,
        }
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
        state.running -= 1;
        state.ended += 1;
        self.changed.notify_all();
        drop(state);
        // What the others could not take may be free now.
        self.wake();
    }

    fn note_failure(&self, tree: &Tree, error: Error, is_kept_out: bool) {
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

/// Why nothing is merged of a tree for which nothing was planned, where that is for want of space.
fn no_space_error(summary: &plan::Summary, options: &plan::Options) -> Option<Error> {
    let free = summary.free_bytes?;
    let unbounded = plan::Summary { free_bytes: None, ..summary.clone() };
    let Some(Plan::Merge(merge)) = plan::plan(&unbounded, options) else { return None };
    Some(
        Error::no_space("merge")
            .expected(format_args!("{} free, and what flushes need", format_bytes(merge.bytes)))
            .got(format_bytes(free)),
    )
}

impl fmt::Debug for Compactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Compactor({:?})", self.options)
    }
}

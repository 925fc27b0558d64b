//! The choice of the next compaction job: plans keyspace by keyspace, the fullest first, does drops and
//! trivial moves at once, and starts a merge.
//!
//! Called by the compaction tasks. Planning of a tree holds its version edit guard.

use std::sync::Arc;
use std::time::Duration;

use base::{Error, ErrorKind, Result, format_bytes, invariant};
use compact::offload::{JobShape, Placement};
use compact::plan::hashed::window::{self, Discard, Eviction, Kept};
use compact::plan::{self, ManualRange, Plan};
use compact::{Horizon, Operators};

use super::compactor_state::CompactorState;
use super::discarding::Discarding;
use super::keyspace_state::PlanInputs;
use super::merge_job::{memory_for, writer_bytes};
use super::offloading::LINK_BYTES;
use super::{Compactor, MergeJob, merge_end, summary};
use crate::tree::window_options;
use crate::{Tree, VersionEditGuard, metadata_bytes};

/// Most memory of a job for reading, bytes.
const READ_BYTES_MAX: usize = 8 << 20;

/// Most moves and drops of one keyspace before the next round of planning.
const CHANGES_PER_ROUND: usize = 64;

/// The planner's answer.
struct Next {
    plan: Option<Plan>,
    /// Set if the planned merge is a partial discard of a window.
    discard: Option<Discard>,
    debt: plan::Debt,
}

impl Next {
    /// The answer of the planner for the kind of `tree`.
    fn of(
        tree: &Tree,
        summary: &plan::Summary,
        options: &plan::Options,
        operators: &Operators,
        memory_excess: &dyn Fn() -> u64,
    ) -> Self {
        let discard = None;
        let Some(policy) = tree.kind().policy() else {
            let planned = plan::TreeLayout::new(summary, options);
            return Self { plan: planned.plan(), discard, debt: planned.debt() };
        };
        let Some(mut window) = window_options(policy) else {
            let (plan, debt) = plan::hashed::plan_keep(summary, options);
            return Self { plan, discard, debt };
        };
        window.inputs_max = options.runs_max;
        let excess = memory_excess();
        if excess > 0 {
            window = window.within_memory(summary, metadata_bytes(tree), excess);
        }
        if let Kept::Named(name) = &window.kept
            && operators.priority(name).is_none()
        {
            // A repair opened the store. It evicts nothing, because it cannot know which entries to keep.
            window.bytes = u64::MAX;
        }
        let debt = window::debt(summary, &window);
        let (plan, discard) = match window::plan(summary, &window) {
            None => (None, None),
            Some(Eviction::Drop(pieces)) => (Some(Plan::Drop(pieces)), None),
            Some(Eviction::Merge(merge)) => (Some(Plan::Merge(merge)), None),
            Some(Eviction::Discard(discard)) => {
                (Some(Plan::Merge(discard.merge.clone())), Some(discard))
            }
        };
        Self { plan, discard, debt }
    }
}

/// The result of planning for one keyspace.
struct Planned {
    plan: Option<Plan>,
    debt: plan::Debt,
    /// When planning began, and how long it took.
    start: Duration,
    took: Duration,
    /// Why nothing is merged although there is debt, if the device is full.
    no_space: Option<Error>,
    /// Whether other jobs work on the keyspace.
    is_busy: bool,
}

impl Compactor {
    /// The environment of a job, under the current memory limit.
    fn job_env(&self) -> compact::Env {
        let read_bytes = (self.pool.limit() / 4) as usize;
        compact::Env {
            medium: Arc::clone(&self.env.medium),
            dictionaries: Arc::clone(&self.env.dictionaries) as _,
            operators: Arc::clone(&self.operators),
            account: self.pool.account(),
            tables: self.env.accounts.pinned.clone(),
            read_bytes: read_bytes.min(READ_BYTES_MAX),
            value_bytes_max: self.host.value_bytes_max(),
            engine: None,
            sums_entries: self.env.sums_entries,
        }
    }

    /// The planner's options: a merge has at most as many runs as fit in the memory of one job.
    pub(super) fn job_options(&self, tree: &Tree) -> plan::Options {
        let codec = tree.options(&*self.env.options).codec;
        let taken = writer_bytes(codec, tree.key_form()) + self.job_env().read_bytes;
        let room = (self.pool.limit() as usize).saturating_sub(taken);
        let fits = (room / compact::Env::RUN_BYTES_MIN).max(2);
        let most = match tree.kind().policy() {
            None => self.options.runs_max,
            // A slice has more runs when it is due than an ordered tree ever has.
            Some(_) => plan::hashed::keep::Options::default().runs_max,
        };
        plan::Options {
            runs_max: most.min(fits),
            base_filter_bits: tree.kind().base_filter_bits(),
            ..self.options.clone()
        }
    }

    /// The next merge, its rectangle reserved; `None` if there is nothing to do now.
    pub fn next_job(&self) -> Option<MergeJob> {
        // A failed manifest cannot record a merge.
        if self.env.manifest.poisoned().is_some() {
            self.end_requests(None, &|| Error::new(ErrorKind::Poisoned, "manifest"));
            return None;
        }
        if let Some(offloading) = &self.offloading {
            offloading.sweep(&*self.env.medium);
        }
        let progress = |state: &CompactorState| (state.ended, state.refused, state.settle_calls);
        let before = {
            let state = self.state.lock();
            // Even the smallest job must wait until another ends.
            if state.running > 0 && !self.pool.has_room(MergeJob::MEMORY_MIN) {
                return None;
            }
            progress(&state)
        };
        for tree in self.by_pressure() {
            match self.plan_keyspace(&tree) {
                Ok(Some(job)) => return Some(job),
                Ok(None) => {}
                Err(error) => self.note_failure(&tree, error, false),
            }
        }
        let mut state = self.state.lock();
        if state.running == 0 && progress(&state) == before {
            state.idle_rounds += 1;
            self.changed.notify_all();
        }
        None
    }

    /// How long a task without work may sleep, at most `longest`.
    pub fn sleep_time(&self, longest: Duration) -> Duration {
        let now = self.now();
        let state = self.state.lock();
        let owing = state.keyspaces.values().filter(|keyspace| keyspace.debt.bytes > 0);
        let next = owing.filter_map(|keyspace| keyspace.next_plan().checked_sub(now)).min();
        next.map_or(longest, |next| next.clamp(Duration::from_millis(1), longest))
    }

    /// The keyspaces, those with the fullest trees first, by the debt that was measured last. Forgets dropped
    /// keyspaces.
    fn by_pressure(&self) -> Vec<Arc<Tree>> {
        let mut trees = self.trees.all();
        let mut state = self.state.lock();
        state.keyspaces.retain(|id, _| trees.iter().any(|tree| tree.id() == *id));
        for request in state.requests.values_mut().filter(|request| request.ended.is_none()) {
            if !trees.iter().any(|tree| tree.id() == request.keyspace) {
                // Nothing is left to merge.
                request.left = 0;
                request.ended = Some(Ok(()));
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

    /// Plans one keyspace. Does drops and trivial moves, and returns a merge if one was started.
    fn plan_keyspace(&self, tree: &Arc<Tree>) -> Result<Option<MergeJob>> {
        let mut options = self.job_options(tree);
        if let Some(keyspace) = self.state.lock().keyspaces.get(&tree.id()) {
            options.runs_max = keyspace.runs_max(options.runs_max);
        }
        for _ in 0..CHANGES_PER_ROUND {
            let mut guard = tree.version_edit();
            if tree.is_dropped() {
                return Ok(None);
            }
            let Some((summary, inputs, request)) = self.summary(tree, &guard) else {
                return Ok(None);
            };
            let start = self.now();
            let excess = || self.host.table_memory_excess();
            let Next { plan, discard, debt } =
                Next::of(tree, &summary, &options, &self.operators, &excess);
            let took = self.now().saturating_sub(start);
            let is_busy = !guard.reserved().is_empty();
            let mut job = None;
            match &plan {
                Some(Plan::Drop(pieces)) if tree.kind().is_window() => {
                    self.evict_pieces(tree, &guard, pieces, summary.now_ms)?;
                }
                Some(Plan::Drop(pieces)) => {
                    self.drop_pieces(tree, &guard, pieces, summary.now_ms)?;
                }
                Some(Plan::Move(moves)) => self.move_pieces(tree, &guard, moves)?,
                Some(Plan::Merge(merge)) => {
                    job = self.start(tree, &mut guard, (merge, discard), summary.now_ms)?;
                }
                None => {}
            }
            let is_changed = matches!(plan, Some(Plan::Drop(_) | Plan::Move(_)));
            let no_space = match &plan {
                None if debt.bytes > 0 && !is_busy => {
                    no_space_error(tree, &summary, &options, &self.operators)
                }
                _ => None,
            };
            let planned = Planned { plan, debt, start, took, no_space, is_busy };
            self.note_planned(tree, planned, job.as_ref(), inputs, request);
            if !is_changed {
                return Ok(job);
            }
        }
        Ok(None)
    }

    /// Records the result of planning: the debt, the job that was started, and the progress of `request`.
    fn note_planned(
        &self,
        tree: &Tree,
        planned: Planned,
        job: Option<&MergeJob>,
        inputs: PlanInputs,
        request: Option<u64>,
    ) {
        let Planned { plan, debt, start, took, no_space, is_busy } = planned;
        let is_changed = matches!(plan, Some(Plan::Drop(_) | Plan::Move(_)));
        invariant!(
            job.is_none() || matches!(plan, Some(Plan::Merge(_))),
            "a job is started for a planned merge only"
        );
        let mut state = self.state.lock();
        state.running += usize::from(job.is_some());
        state.ended += u64::from(is_changed);
        let keyspace = state.keyspaces.entry(tree.id()).or_default();
        keyspace.set_debt(debt, start, took);
        keyspace.job_bytes += job.map_or(0, MergeJob::bytes);
        keyspace.no_space = no_space.clone();
        if job.is_none() && !is_changed {
            keyspace.planned_in_vain(start, took);
        }
        // Not after a merge that was planned and got no memory: it may get some without a change to this
        // keyspace.
        if plan.is_none() {
            keyspace.set_empty_plan(inputs);
        }
        self.report_debt(&state);
        let Some(request) = request.and_then(|id| state.requests.get_mut(&id)) else { return };
        request.set_remaining(debt.manual_bytes);
        // If nothing was planned, the remaining bytes cannot be merged: damage, or no space.
        if debt.manual_bytes == 0 || (plan.is_none() && !is_busy) {
            if let Some(no_space) = no_space {
                request.damage.get_or_insert(no_space);
            }
            request.end();
            self.changed.notify_all();
        }
    }

    /// Starts a merge; `None` if it must wait for the memory or the keys of another job.
    fn start(
        &self,
        tree: &Arc<Tree>,
        guard: &mut VersionEditGuard<'_>,
        (merge, discard): (&plan::Merge, Option<Discard>),
        now_ms: u64,
    ) -> Result<Option<MergeJob>> {
        let env = self.job_env();
        let codec = tree.options(&*self.env.options).codec;
        let bytes = memory_for(merge, &env, codec, tree.key_form());
        let most = self.pool.limit();
        // With many runs, range deletes get half as much memory at least: otherwise slices would be small,
        // and merges would drop them slower than writers add them.
        let room = most.saturating_sub(bytes).max(most / 2);
        let (end, deletes) = merge_end::with_room_for_range_deletes(merge, &guard.version(), room);
        let merge = &plan::Merge { end, ..merge.clone() };
        let shape = JobShape { bytes: merge.bytes, codec, is_urgent: self.are_writers_delayed() };
        let runs_here = self.take_runs_here(tree);
        // A worker has neither the clock's counters nor the user's function.
        let (place, engine) = self.place(&shape, runs_here || discard.is_some());
        if place == Placement::Wait {
            // As without memory: a merge is due, so the store must not report itself settled.
            self.state.lock().refused += 1;
            return Ok(None);
        }
        let offloading = self.offloading.clone().filter(|_| place == Placement::Remote);
        let extra = if engine.is_some() { compact::Env::ENGINE_BYTES } else { 0 };
        let env = compact::Env { engine, ..env };
        let bytes = bytes + deletes + extra;
        let memory = self.pool.grant(if offloading.is_some() { LINK_BYTES } else { bytes });
        let (id, running) = {
            let mut state = self.state.lock();
            state.refused += u64::from(memory.is_none());
            (state.id(), state.running)
        };
        let Some(memory) = memory else {
            self.runs_here_next(tree, runs_here);
            return Ok(None);
        };
        // Unique over all lives of the store, each of which begins a manifest.
        let id = self.env.manifest.number() << 32 | id & u64::from(u32::MAX);
        let discarding = discard.map(|it| Discarding::new(tree, &it, &self.operators));
        let (ids, place_of_job) = ((id, now_ms), place);
        let place = (memory, bytes, offloading, (shape, place_of_job));
        match MergeJob::new(&self.env, &env, tree, guard, (merge, discarding), ids, place) {
            Err(error) if error.is_retryable() && running > 0 => Ok(None),
            started => started,
        }
    }

    /// Where a job runs, with the engine that compresses for it.
    fn place(
        &self,
        shape: &JobShape,
        runs_here: bool,
    ) -> (Placement, Option<Arc<dyn table::BlockEngine>>) {
        let Some(offloading) = self.offloading.as_ref().filter(|_| !runs_here) else {
            return (Placement::Local, None);
        };
        match offloading.workers.place(shape) {
            Placement::Compress => match offloading.workers.engine() {
                Some(engine) => (Placement::Compress, Some(engine)),
                None => (Placement::Local, None),
            },
            place => (place, None),
        }
    }

    /// The planner's input for `tree`, and the manual request that it considers; `None` if planning cannot
    /// find anything new yet.
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
        let hints = (quiet, self.host.are_range_deletes_pressing());
        let inputs = PlanInputs::new(&version, guard.reserved().len(), hints, snapshots, (id, now));
        let is_awaited = manual.is_some() || state.settle_waiters > 0;
        let keyspace = state.keyspaces.entry(tree.id()).or_default();
        let is_early = keyspace.is_paused(now) || keyspace.is_planning_deferred(now);
        if keyspace.found_nothing_for(&inputs) || is_early && !is_awaited {
            return None;
        }
        drop(state);
        Some((self.planner_input(tree, guard, horizon, quiet, manual), inputs, id))
    }

    /// The planner's input for `tree`, whatever was planned before.
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
            let demand = keyspace.demand(&tree.view().read_context.walks().seeks, now);
            (keyspace.turnover.superseding(), demand, all - keyspace.job_bytes)
        };
        // If the device does not report its free space, a merge finds out by failing.
        let space = self.env.medium.space().ok().flatten();
        // Obsolete files will be removed by the time that the merge needs their space.
        let coming = self.env.obsolete.bytes();
        let free_bytes = space.map(|space| (space.free + coming).saturating_sub(elsewhere));
        plan::Summary {
            runs: summary::runs(&version),
            hidden: summary::hidden(&version),
            values: summary::values(&version),
            busy: summary::areas(guard.reserved()),
            free_bytes,
            now_ms: self.env.timekeeper.trusted_now(),
            readers,
            quiet,
            manual,
            overhead_bytes: table::OVERHEAD_BYTES_MIN,
            unit_bytes: self.options.unit_bytes.unwrap_or(self.host.memtable_bytes() / 2),
            superseding,
            demand,
            range_deletes_pressing: self.host.are_range_deletes_pressing(),
        }
    }
}

/// The error to report if the device has too little free space for the merge that would otherwise be planned.
fn no_space_error(
    tree: &Tree,
    summary: &plan::Summary,
    options: &plan::Options,
    operators: &Operators,
) -> Option<Error> {
    let free = summary.free_bytes?;
    let unbounded = plan::Summary { free_bytes: None, ..summary.clone() };
    let next = Next::of(tree, &unbounded, options, operators, &|| 0);
    let Some(Plan::Merge(merge)) = next.plan else { return None };
    Some(
        Error::no_space("merge")
            .expected(format_args!("{} free, and what flushes need", format_bytes(merge.bytes)))
            .got(format_bytes(free)),
    )
}

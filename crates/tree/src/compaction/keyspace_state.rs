//! The compaction state of one keyspace between two rounds of planning.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Counter, Error, Seqno};
use compact::plan::{Debt, Demand, DemandMeter, Turnover, UsageCounters};

use crate::Version;

/// A failed merge is tried again after this pause; the pause doubles up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// A merge of many runs is halved this often at most: then it has two.
const NARROWED_MAX: u32 = 4;

/// Planning that finds nothing to do takes at most 1/40 of a thread's time per keyspace.
const PLANNING_SHARE: u32 = 40;

/// Measuring the debt takes at most 1/20 of a thread's time per keyspace. The time is that of flushes, which
/// come every few tenths of a second; a tree of thousands of tables takes about 25 ms.
const DEBT_SHARE: u32 = 20;

/// Planning is repeated after this time even if its inputs are the same: entries expire and space becomes
/// free without a new version.
const REPLAN_AFTER: Duration = Duration::from_secs(2);

/// The compaction state of one keyspace. Protected by the lock of the compactor's state.
#[derive(Debug, Default)]
pub(super) struct KeyspaceCompactionState {
    /// Measured share of the newer runs' bytes that supersede older versions.
    pub(super) turnover: Turnover,
    /// Rate of seeks and of writes.
    meter: DemandMeter,
    /// Bytes that flushes wrote since the store was opened.
    written: u64,
    /// The debt as it was measured last.
    pub(super) debt: Debt,
    /// Until then the debt is not measured again.
    debt_recent_until: Duration,
    /// The error of the last merge, until one succeeds.
    pub(super) failure: Option<Error>,
    /// Set if planning found too little free space for a merge.
    pub(super) no_space: Option<Error>,
    /// Bytes that running jobs may write.
    pub(super) job_bytes: u64,
    /// Consecutive failures.
    failures: u32,
    /// How often the number of runs of a merge is halved, because merges of more runs found too little
    /// memory.
    narrowed: u32,
    /// Whether the next merge runs in this process, with all its memory from the start: one that no worker
    /// ended found too little left.
    pub(super) runs_here: bool,
    /// After a failure, no merge starts before this time.
    not_before: Duration,
    /// After planning found nothing, no planning before this time.
    next_plan: Duration,
    /// The inputs of the last planning, if it found nothing to do.
    empty_plan: Option<PlanInputs>,
}

/// The inputs that decide what planning finds, except for time.
#[derive(Clone, Debug)]
pub(super) struct PlanInputs {
    version: Weak<Version>,
    busy: usize,
    /// Whether the store is quiet, and whether range deletes are pressing.
    hints: (bool, bool),
    /// The live snapshots.
    snapshots: Vec<Seqno>,
    request: Option<u64>,
    at: Duration,
}

impl PlanInputs {
    pub(super) fn new(
        version: &Arc<Version>,
        busy: usize,
        hints: (bool, bool),
        snapshots: &[Seqno],
        (request, at): (Option<u64>, Duration),
    ) -> Self {
        let (version, snapshots) = (Arc::downgrade(version), snapshots.to_vec());
        Self { version, busy, hints, snapshots, request, at }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.version.ptr_eq(&other.version)
            && (self.busy, self.hints) == (other.busy, other.hints)
            && (&self.snapshots, self.request) == (&other.snapshots, other.request)
            && other.at.saturating_sub(self.at) < REPLAN_AFTER
    }
}

impl KeyspaceCompactionState {
    /// Records that a flush wrote `bytes` to a tree of `tree_bytes`.
    pub(super) fn flushed(&mut self, bytes: u64, tree_bytes: u64) {
        self.written += bytes;
        self.turnover.flushed(bytes, tree_bytes);
    }

    /// The rates of seeks and writes at `now`.
    pub(super) fn demand(&mut self, seeks: &Counter, now: Duration) -> Demand {
        self.meter.observe(UsageCounters {
            at: now.as_secs_f64(),
            seeks: seeks.get(),
            written: self.written,
        })
    }

    /// Records the debt that was measured from `start` on and took `took`.
    pub(super) fn set_debt(&mut self, debt: Debt, start: Duration, took: Duration) {
        self.debt = debt;
        self.debt_recent_until = start + took.saturating_mul(DEBT_SHARE);
    }

    /// Whether the debt was measured recently enough.
    pub(super) fn is_debt_recent(&self, now: Duration) -> bool {
        now < self.debt_recent_until
    }

    /// Whether merges pause after a failure.
    pub(super) fn is_paused(&self, now: Duration) -> bool {
        self.failure.is_some() && now < self.not_before
    }

    /// Records that planning from `start` on took `took` and started nothing.
    pub(super) fn planned_in_vain(&mut self, start: Duration, took: Duration) {
        self.next_plan = start + took.saturating_mul(PLANNING_SHARE);
    }

    pub(super) fn next_plan(&self) -> Duration {
        self.next_plan
    }

    /// Whether planning has used up its share of time.
    pub(super) fn is_planning_deferred(&self, now: Duration) -> bool {
        now < self.next_plan
    }

    /// Records the end of a merge that might have written `bytes`, whatever its result. The state may be new,
    /// without the job, if the keyspace was dropped.
    pub(super) fn job_ended(&mut self, bytes: u64) {
        self.job_bytes = self.job_bytes.saturating_sub(bytes);
        self.allow_planning();
    }

    /// Allows planning at once: the memory or keys that were missing may be free now.
    pub(super) const fn allow_planning(&mut self) {
        self.next_plan = Duration::ZERO;
    }

    /// Whether planning with these inputs found nothing a moment ago.
    pub(super) fn found_nothing_for(&self, inputs: &PlanInputs) -> bool {
        self.empty_plan.as_ref().is_some_and(|last| last.is_same(inputs))
    }

    /// Records that planning with `inputs` found nothing.
    pub(super) fn set_empty_plan(&mut self, inputs: PlanInputs) {
        self.empty_plan = Some(inputs);
    }

    /// Ends the pause after a failure.
    pub(super) fn retry_now(&mut self) {
        self.not_before = Duration::ZERO;
    }

    /// Halves the runs of the next merges, after one that found too little memory. False if that was tried.
    pub(super) fn narrow(&mut self) -> bool {
        let narrows = self.narrowed < NARROWED_MAX;
        self.narrowed += u32::from(narrows);
        narrows
    }

    /// The most runs of a merge, if the options allow `runs`.
    pub(super) fn runs_max(&self, runs: usize) -> usize {
        (runs >> self.narrowed).max(2)
    }

    /// Forgets earlier failures.
    pub(super) fn succeeded(&mut self) {
        (self.failure, self.failures) = (None, 0);
        self.narrowed = self.narrowed.saturating_sub(1);
    }

    /// Records a failed merge. If later merges leave the damaged table out, they need no pause.
    pub(super) fn failed(&mut self, error: Error, is_kept_out: bool, now: Duration) {
        self.failure = Some(error);
        if !is_kept_out {
            self.not_before = now + PAUSE.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
            self.failures = self.failures.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fruitless_planning_is_deferred_until_a_merge_ends() {
        let mut keyspace =
            KeyspaceCompactionState { job_bytes: 10, ..KeyspaceCompactionState::default() };
        let (start, took) = (Duration::from_secs(1), Duration::from_millis(10));
        keyspace.planned_in_vain(start, took);
        assert!(keyspace.is_planning_deferred(start + took * (PLANNING_SHARE - 1)));
        assert!(!keyspace.is_planning_deferred(start + took * PLANNING_SHARE));
        keyspace.job_ended(4);
        assert!(!keyspace.is_planning_deferred(start + took));
        assert_eq!(keyspace.job_bytes, 6);
        let mut of_a_dropped_keyspace = KeyspaceCompactionState::default();
        of_a_dropped_keyspace.job_ended(4);
        assert_eq!(of_a_dropped_keyspace.job_bytes, 0);
    }
}

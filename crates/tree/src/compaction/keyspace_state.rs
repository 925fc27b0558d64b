//! What the compactor keeps about one keyspace between looks at it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Counter, Error, Seqno};
use compact::plan::{Debt, Demand, DemandMeter, Turnover, UsageCounters};

use crate::Version;

/// A failed merge is tried again after this, then twice as long, up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// Planning in vain takes at most one part in so many of a thread's time, for each keyspace.
const PLANNING_SHARE: u32 = 40;

/// The same for finding out how far it is behind. A part of flushes' time: they come every few tenths of a
/// second, and trees of thousands of tables take some 25 ms.
const DEBT_SHARE: u32 = 20;

/// Time passes, snapshots go and space comes back without a new version.
const REPLAN_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct KeyspaceCompactionState {
    /// How much of what newer runs hold supersedes older versions.
    pub(super) turnover: Turnover,
    /// How much the keyspace is read and written.
    meter: DemandMeter,
    /// Bytes that flushes wrote since the store was opened.
    written: u64,
    /// What was left to do when the tree was looked at or weighed last.
    pub(super) debt: Debt,
    /// Weighing it before would cost more than it is worth.
    debt_recent_until: Duration,
    /// Why the last merge failed, until one succeeds.
    pub(super) failure: Option<Error>,
    /// That the last look found no space for what is to be merged.
    pub(super) no_space: Option<Error>,
    /// Bytes that running jobs may write.
    pub(super) job_bytes: u64,
    failures: u32,
    not_before: Duration,
    /// Looks before this one would cost more than they are worth.
    next_plan: Duration,
    /// What the last look saw, where it found nothing to do.
    empty_plan: Option<PlanInputs>,
}

/// What decides what there is to do, but for time.
#[derive(Clone, Debug)]
pub(super) struct PlanInputs {
    version: Weak<Version>,
    busy: usize,
    quiet: bool,
    /// The live snapshots.
    snapshots: Vec<Seqno>,
    request: Option<u64>,
    at: Duration,
}

impl PlanInputs {
    pub(super) fn new(
        version: &Arc<Version>,
        busy: usize,
        (quiet, snapshots): (bool, &[Seqno]),
        request: Option<u64>,
        at: Duration,
    ) -> Self {
        let (version, snapshots) = (Arc::downgrade(version), snapshots.to_vec());
        Self { version, busy, quiet, snapshots, request, at }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.version.ptr_eq(&other.version)
            && (self.busy, self.quiet) == (other.busy, other.quiet)
            && (&self.snapshots, self.request) == (&other.snapshots, other.request)
            && other.at.saturating_sub(self.at) < REPLAN_AFTER
    }
}

impl KeyspaceCompactionState {
    /// A flush wrote `bytes` to a tree of `tree_bytes`.
    pub(super) fn flushed(&mut self, bytes: u64, tree_bytes: u64) {
        self.written += bytes;
        self.turnover.flushed(bytes, tree_bytes);
    }

    /// How much the keyspace is used, as `uses` counted it until `now`.
    pub(super) fn demand(&mut self, seeks: &Counter, now: Duration) -> Demand {
        self.meter.observe(UsageCounters {
            at: now.as_secs_f64(),
            seeks: seeks.get(),
            written: self.written,
        })
    }

    /// What is left to do, as was found out from `start` on in `took`.
    pub(super) fn set_debt(&mut self, debt: Debt, start: Duration, took: Duration) {
        self.debt = debt;
        self.debt_recent_until = start + took.saturating_mul(DEBT_SHARE);
    }

    /// Whether the debt is known well enough.
    pub(super) fn is_debt_recent(&self, now: Duration) -> bool {
        now < self.debt_recent_until
    }

    /// Whether the keyspace is left alone after a failure.
    pub(super) fn is_paused(&self, now: Duration) -> bool {
        self.failure.is_some() && now < self.not_before
    }

    /// A look that began at `start` took `took` and found nothing that could be done.
    pub(super) fn planned_in_vain(&mut self, start: Duration, took: Duration) {
        self.next_plan = start + took.saturating_mul(PLANNING_SHARE);
    }

    pub(super) fn next_plan(&self) -> Duration {
        self.next_plan
    }

    /// Whether the keyspace has had its part of the time for planning in vain.
    pub(super) fn is_planning_deferred(&self, now: Duration) -> bool {
        now < self.next_plan
    }

    /// A merge that might have written `bytes` ended, however it did.
    pub(super) fn job_ended(&mut self, bytes: u64) {
        self.job_bytes = self.job_bytes.saturating_sub(bytes);
        self.allow_planning();
    }

    /// What a look was in vain for, memory or keys of a merge, may be there now.
    pub(super) const fn allow_planning(&mut self) {
        self.next_plan = Duration::ZERO;
    }

    /// Whether a look at the same found nothing just before.
    pub(super) fn found_nothing_for(&self, inputs: &PlanInputs) -> bool {
        self.empty_plan.as_ref().is_some_and(|last| last.is_same(inputs))
    }

    pub(super) fn set_empty_plan(&mut self, inputs: PlanInputs) {
        self.empty_plan = Some(inputs);
    }

    /// What failed is tried again at once.
    pub(super) fn retry_now(&mut self) {
        self.not_before = Duration::ZERO;
    }

    pub(super) fn succeeded(&mut self) {
        (self.failure, self.failures) = (None, 0);
    }

    /// A merge failed. Where the damage it met is kept out of later ones, they need not wait.
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
    fn a_look_in_vain_holds_until_a_merge_ends() {
        let mut keyspace =
            KeyspaceCompactionState { job_bytes: 10, ..KeyspaceCompactionState::default() };
        let (start, took) = (Duration::from_secs(1), Duration::from_millis(10));
        keyspace.planned_in_vain(start, took);
        assert!(keyspace.is_planning_deferred(start + took * (PLANNING_SHARE - 1)));
        assert!(!keyspace.is_planning_deferred(start + took * PLANNING_SHARE));
        keyspace.job_ended(4);
        assert!(!keyspace.is_planning_deferred(start + took));
        assert_eq!(keyspace.job_bytes, 6);
    }
}

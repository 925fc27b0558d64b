//! What the compactor keeps about one keyspace between looks at it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Error, Seqno};
use compact::plan::{Debt, Demand, DemandMeter, Turnover, UsageCounters};

use crate::{Uses, Version};

/// A failed merge is tried again after this, then twice as long, up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// Planning in vain takes at most one part in so many of a thread's time, for each keyspace.
const LOOK_PART: u32 = 40;

/// The same for finding out how far it is behind. A part of flushes' time: they come every few tenths of a
/// second, and trees of thousands of tables take some 25 ms.
const WEIGHING_PART: u32 = 20;

/// Time passes, snapshots go and space comes back without a new version.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);

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
    next_weighing: Duration,
    /// Why the last merge failed, until one succeeds.
    pub(super) failure: Option<Error>,
    /// That the last look found no space for what is to be merged.
    pub(super) short: Option<Error>,
    /// Bytes that running jobs may write.
    pub(super) working: u64,
    failures: u32,
    not_before: Duration,
    /// Looks before this one would cost more than they are worth.
    next_look: Duration,
    /// What the last look saw, where it found nothing to do.
    fruitless: Option<Seen>,
}

/// What decides what there is to do, but for time.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    version: Weak<Version>,
    busy: usize,
    quiet: bool,
    /// The live snapshots.
    snapshots: Vec<Seqno>,
    request: Option<u64>,
    at: Duration,
}

impl Seen {
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
            && other.at.saturating_sub(self.at) < LOOK_AGAIN_AFTER
    }
}

impl KeyspaceCompactionState {
    /// A flush wrote `bytes` to a tree of `tree_bytes`.
    pub(super) fn flushed(&mut self, bytes: u64, tree_bytes: u64) {
        self.written += bytes;
        self.turnover.flushed(bytes, tree_bytes);
    }

    /// How much the keyspace is used, as `uses` counted it until `now`.
    pub(super) fn demand(&mut self, uses: &Uses, now: Duration) -> Demand {
        self.meter.observe(UsageCounters {
            at: now.as_secs_f64(),
            seeks: uses.seeks.get(),
            written: self.written,
        })
    }

    /// What is left to do, as was found out from `start` on in `took`.
    pub(super) fn see_debt(&mut self, debt: Debt, start: Duration, took: Duration) {
        self.debt = debt;
        self.next_weighing = start + took.saturating_mul(WEIGHING_PART);
    }

    /// Whether the debt is known well enough.
    pub(super) fn is_weighed_enough(&self, now: Duration) -> bool {
        now < self.next_weighing
    }

    /// Whether the keyspace is left alone after a failure.
    pub(super) fn is_paused(&self, now: Duration) -> bool {
        self.failure.is_some() && now < self.not_before
    }

    /// A look that began at `start` took `took` and found nothing that could be done.
    pub(super) fn looked_in_vain(&mut self, start: Duration, took: Duration) {
        self.next_look = start + took.saturating_mul(LOOK_PART);
    }

    pub(super) fn next_look(&self) -> Duration {
        self.next_look
    }

    /// Whether the keyspace has had its part of the time for planning in vain.
    pub(super) fn is_looked_at_enough(&self, now: Duration) -> bool {
        now < self.next_look
    }

    /// A merge that might have written `bytes` ended, however it did.
    pub(super) fn job_ended(&mut self, bytes: u64) {
        self.working = self.working.saturating_sub(bytes);
        self.look_again();
    }

    /// What a look was in vain for, memory or keys of a merge, may be there now.
    pub(super) const fn look_again(&mut self) {
        self.next_look = Duration::ZERO;
    }

    /// Whether a look at the same found nothing just before.
    pub(super) fn was_fruitless(&self, seen: &Seen) -> bool {
        self.fruitless.as_ref().is_some_and(|last| last.is_same(seen))
    }

    pub(super) fn set_fruitless(&mut self, seen: Seen) {
        self.fruitless = Some(seen);
    }

    /// What failed is tried again at once.
    pub(super) fn try_again(&mut self) {
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
        let mut book =
            KeyspaceCompactionState { working: 10, ..KeyspaceCompactionState::default() };
        let (start, took) = (Duration::from_secs(1), Duration::from_millis(10));
        book.looked_in_vain(start, took);
        assert!(book.is_looked_at_enough(start + took * (LOOK_PART - 1)));
        assert!(!book.is_looked_at_enough(start + took * LOOK_PART));
        book.job_ended(4);
        assert!(!book.is_looked_at_enough(start + took));
        assert_eq!(book.working, 6);
    }
}

//! What the compactor keeps about one keyspace between looks at it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::Error;
use compact::plan::{Debt, Turnover};

use super::merge_job::is_passing;
use crate::ordered::Version;

/// A failed merge is tried again after this, then twice as long, up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// Time passes, snapshots go and space comes back without a new version.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Book {
    /// How much of what newer runs hold supersedes older versions.
    pub(super) turnover: Turnover,
    /// What was left to do at the last look.
    pub(super) debt: Debt,
    /// Why the last merge failed, until one succeeds.
    pub(super) failure: Option<Error>,
    failures: u32,
    not_before: Duration,
    /// What the last look saw, where it found nothing to do.
    fruitless: Option<Seen>,
}

/// What decides what there is to do, but for time.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    version: Weak<Version>,
    busy: usize,
    quiet: bool,
    request: Option<u64>,
    at: Duration,
}

impl Seen {
    pub(super) fn new(
        version: &Arc<Version>,
        busy: usize,
        quiet: bool,
        request: Option<u64>,
        at: Duration,
    ) -> Self {
        Self { version: Arc::downgrade(version), busy, quiet, request, at }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.version.ptr_eq(&other.version)
            && (self.busy, self.quiet, self.request) == (other.busy, other.quiet, other.request)
            && other.at.saturating_sub(self.at) < LOOK_AGAIN_AFTER
    }
}

impl Book {
    /// Whether the keyspace is left alone after a failure.
    pub(super) fn is_paused(&self, now: Duration) -> bool {
        self.failure.is_some() && now < self.not_before
    }

    /// Whether a look at the same found nothing just before.
    pub(super) fn was_fruitless(&self, seen: &Seen) -> bool {
        self.fruitless.as_ref().is_some_and(|last| last.is_same(seen))
    }

    pub(super) fn set_fruitless(&mut self, seen: Seen) {
        self.fruitless = Some(seen);
    }

    pub(super) fn succeeded(&mut self) {
        (self.failure, self.failures) = (None, 0);
    }

    pub(super) fn failed(&mut self, error: Error, now: Duration) {
        let pause = PAUSE.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        // Damage is kept out of later merges: the others need not wait.
        if is_passing(&error) || error.kind() != base::ErrorKind::Corrupt {
            self.failures = self.failures.saturating_add(1);
            self.not_before = now + pause;
        }
        self.failure = Some(error);
    }
}

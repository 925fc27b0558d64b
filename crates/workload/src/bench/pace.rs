//! One thread's clock and counters: an operation ends where the next begins, so that one clock
//! read serves both.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::Run;
use crate::figures::Tally;

/// Operations between two looks at the stop flag and two reports of progress.
const GLANCE: u64 = 64;

pub(super) struct Pace<'a> {
    run: &'a Run<'a>,
    last: Duration,
    deadline: Duration,
    progress: &'a AtomicU64,
    pub(super) tally: Tally,
}

impl<'a> Pace<'a> {
    pub(super) fn start(run: &'a Run<'a>, tally: Tally, progress: &'a AtomicU64) -> Self {
        let last = run.clock.monotonic();
        let bound = run.options.duration.filter(|_| !run.name.writes());
        let deadline = bound.map_or(Duration::MAX, |bound| last.saturating_add(bound));
        Self { run, last, deadline, progress, tally }
    }

    /// When the last operation ended.
    pub(super) const fn now(&self) -> Duration {
        self.last
    }

    /// Ends an operation that began when the last one ended; says whether to go on.
    #[inline]
    pub(super) fn lap(&mut self) -> bool {
        self.lap_since(self.last)
    }

    /// Ends an operation that began at `began`; says whether to go on.
    #[inline]
    pub(super) fn lap_since(&mut self, began: Duration) -> bool {
        self.last = self.run.clock.monotonic();
        self.tally.latencies.record(self.last.saturating_sub(began));
        self.tally.ops += 1;
        if self.tally.ops.is_multiple_of(GLANCE) {
            self.progress.store(self.tally.ops, Relaxed);
            if self.run.stop.load(Relaxed) {
                return false;
            }
        }
        self.last < self.deadline
    }

    pub(super) fn into_tally(self) -> Tally {
        self.progress.store(self.tally.ops, Relaxed);
        self.tally
    }
}

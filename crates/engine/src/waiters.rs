//! Threads that wait for flushes: how many, their total waiting time, and the time without progress. The
//! watchdog reads it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base::{Counter, invariant};

/// Threads that wait this long without any progress count as blocked.
pub(crate) const BLOCKED_AFTER: Duration = Duration::from_secs(2);

/// Counts waiting threads. Only reports read it: `Relaxed`.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    count: AtomicUsize,
    /// When the first of them began to wait, or when a flush last succeeded; nanoseconds.
    since: AtomicU64,
    /// Total waiting time, nanoseconds.
    waited: Counter,
}

/// A waiting thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Waiters);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let before = self.0.count.fetch_sub(1, Ordering::Relaxed);
        invariant!(before > 0, "a thread that stops waiting was counted");
    }
}

impl Waiters {
    /// Counts a thread that waits from `now` on.
    pub(crate) fn enter(&self, now: Duration) -> Waiting<'_> {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            self.progressed(now);
        }
        Waiting(self)
    }

    /// A flush succeeded at `now`.
    pub(crate) fn progressed(&self, now: Duration) {
        self.since.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Adds one thread's waiting time.
    pub(crate) fn count(&self, waited: Duration) {
        self.waited.add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Total waiting time.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.get())
    }

    /// How many threads wait and how long there was no progress, if that is [`BLOCKED_AFTER`] or more.
    pub(crate) fn blocked(&self, now: Duration) -> Option<(usize, Duration)> {
        let count = self.count.load(Ordering::Relaxed);
        let since = Duration::from_nanos(self.since.load(Ordering::Relaxed));
        let waited = now.saturating_sub(since);
        (count > 0 && waited >= BLOCKED_AFTER).then_some((count, waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_blocked_after_two_seconds_without_progress() {
        let (waiting, at) = (Waiters::default(), Duration::from_secs);
        assert_eq!(waiting.blocked(at(100)), None, "no thread waits");
        let first = waiting.enter(at(10));
        let second = waiting.enter(at(11));
        assert_eq!(waiting.blocked(at(11)), None);
        assert_eq!(waiting.blocked(at(12)), Some((2, at(2))));
        waiting.progressed(at(12));
        assert_eq!(waiting.blocked(at(13)), None);
        drop(first);
        assert_eq!(waiting.blocked(at(15)), Some((1, at(3))));
        drop(second);
        assert_eq!(waiting.blocked(at(100)), None);
        let _third = waiting.enter(at(200));
        assert_eq!(waiting.blocked(at(201)), None, "time before it began to wait does not count");
    }
}

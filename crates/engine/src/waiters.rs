//! Those that wait for flushes: how many, for how long all together, and since when nothing moved. The
//! watchdog's eyes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base::Counter;

/// Somebody waits for so long without any progress: somebody should be told what blocks them.
pub(crate) const BLOCKED_AFTER: Duration = Duration::from_secs(2);

/// Counts those that wait. Only reports read it: `Relaxed`.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    number: AtomicUsize,
    /// When the first of them came, or what they wait for last made progress, nanoseconds.
    since: AtomicU64,
    /// How long they waited, all together, nanoseconds.
    waited: Counter,
}

/// One that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Waiters);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.number.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waiters {
    /// Another waits from `now` on.
    pub(crate) fn enter(&self, now: Duration) -> Waiting<'_> {
        if self.number.fetch_add(1, Ordering::Relaxed) == 0 {
            self.moved(now);
        }
        Waiting(self)
    }

    /// What they wait for made progress.
    pub(crate) fn moved(&self, now: Duration) {
        self.since.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// One waited for so long.
    pub(crate) fn count(&self, waited: Duration) {
        self.waited.add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How long they waited, all together.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.get())
    }

    /// How many wait, and for how long nothing moved, where that is too long.
    pub(crate) fn blocked(&self, now: Duration) -> Option<(usize, Duration)> {
        let number = self.number.load(Ordering::Relaxed);
        let since = Duration::from_nanos(self.since.load(Ordering::Relaxed));
        let waited = now.saturating_sub(since);
        (number > 0 && waited >= BLOCKED_AFTER).then_some((number, waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_blocked_while_nothing_moves() {
        let (waiting, at) = (Waiters::default(), Duration::from_secs);
        assert_eq!(waiting.blocked(at(100)), None, "nobody waits");
        let first = waiting.enter(at(10));
        let second = waiting.enter(at(11));
        assert_eq!(waiting.blocked(at(11)), None);
        assert_eq!(waiting.blocked(at(12)), Some((2, at(2))));
        waiting.moved(at(12));
        assert_eq!(waiting.blocked(at(13)), None);
        drop(first);
        assert_eq!(waiting.blocked(at(15)), Some((1, at(3))));
        drop(second);
        assert_eq!(waiting.blocked(at(100)), None);
        let _third = waiting.enter(at(200));
        assert_eq!(waiting.blocked(at(201)), None, "its own time counts");
    }
}

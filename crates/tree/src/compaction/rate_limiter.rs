//! How fast merges may use the device: what they moved beyond the rate that is set is owed, and paid
//! by waiting, between two steps and without a thread.
//!
//! What is owed is bytes, not time, so that a rate that is changed is in force at once for it too.
//! All merges of a store share one account.

use std::time::Duration;

use parking_lot::Mutex;

/// A merge does not stop for less: what is owed meanwhile is paid with the next.
const WAIT_MIN: Duration = Duration::from_millis(5);

/// The rate may be changed while a merge waits.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// See the module. Its lock is a leaf.
#[derive(Debug, Default)]
pub(super) struct RateLimiter(Mutex<RateState>);

#[derive(Debug, Default)]
struct RateState {
    /// When it was looked at last.
    at: Duration,
    /// The bytes that merges had moved by then.
    moved: u64,
    /// Bytes that they may not have moved yet.
    owed: u64,
}

impl RateLimiter {
    /// How long to wait at `now` before the next step, where merges have `moved` so many bytes in all
    /// and may move `rate` a second; 0 stands for no limit.
    pub(super) fn wait(&self, rate: u64, moved: u64, now: Duration) -> Option<Duration> {
        let mut state = self.0.lock();
        let passed = now.saturating_sub(state.at);
        let paid = passed.as_nanos().saturating_mul(u128::from(rate)) / 1_000_000_000;
        let more = moved.saturating_sub(state.moved);
        let paid = u64::try_from(paid).unwrap_or(u64::MAX);
        let owed = if rate == 0 { 0 } else { state.owed.saturating_sub(paid) + more };
        *state = RateState { at: now.max(state.at), moved: moved.max(state.moved), owed };
        let wait = Duration::from_secs_f64(owed as f64 / rate.max(1) as f64);
        (wait >= WAIT_MIN).then_some(wait.min(WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn over_time_no_more_is_moved_than_the_rate_allows() {
        let rate_limiter = RateLimiter::default();
        let (rate, mut now, mut moved) = (1 << 20, Duration::ZERO, 0);
        while now < Duration::from_secs(20) {
            match rate_limiter.wait(rate, moved, now) {
                Some(wait) => now += wait,
                None => moved += 64 << 10,
            }
            now += MS / 10;
        }
        let allowed = 20 << 20;
        assert!((allowed - (64 << 10)..=allowed + (64 << 10)).contains(&moved), "{moved}");
    }

    #[test]
    fn a_changed_rate_holds_for_what_is_owed() {
        let rate_limiter = RateLimiter::default();
        assert_eq!(rate_limiter.wait(1000, 100_000, MS), Some(WAIT_MAX));
        assert_eq!(rate_limiter.wait(1_000_000, 100_000, MS), Some(Duration::from_millis(100)));
        assert_eq!(rate_limiter.wait(0, 100_000, MS), None, "no limit, nothing owed");
        assert_eq!(rate_limiter.wait(1000, 100_000, MS), None);
    }

    #[test]
    fn rest_earns_nothing() {
        let rate_limiter = RateLimiter::default();
        assert_eq!(rate_limiter.wait(1000, 0, Duration::from_secs(100)), None);
        assert_eq!(rate_limiter.wait(1000, 100, Duration::from_secs(100)), Some(100 * MS));
    }
}

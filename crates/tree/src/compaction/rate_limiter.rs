//! Limits the bytes per second that merges read and write. Bytes beyond the configured rate become a debt; a
//! task waits between two steps, without a thread, until time has paid it.
//!
//! The debt is in bytes, not in time, so a changed rate applies to it at once. All merges of a store share
//! one limiter.

use std::time::Duration;

use parking_lot::Mutex;

/// A merge does not wait for less: the debt is paid with the next wait.
const WAIT_MIN: Duration = Duration::from_millis(5);

/// The rate may change while a merge waits.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// See the module. No other lock is taken under its lock.
#[derive(Debug, Default)]
pub(super) struct RateLimiter(Mutex<RateState>);

#[derive(Debug, Default)]
struct RateState {
    /// Time of the last call.
    at: Duration,
    /// Bytes that merges had read and written by then.
    moved: u64,
    /// Bytes by which merges are ahead of the rate.
    owed: u64,
}

impl RateLimiter {
    /// How long to wait at `now` before the next step, if merges have read and written `moved` bytes in all
    /// and may move `rate` bytes per second (0: no limit).
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
    fn merges_move_no_more_than_the_rate_over_time() {
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
    fn a_changed_rate_applies_to_the_existing_debt() {
        let rate_limiter = RateLimiter::default();
        assert_eq!(rate_limiter.wait(1000, 100_000, MS), Some(WAIT_MAX));
        assert_eq!(rate_limiter.wait(1_000_000, 100_000, MS), Some(Duration::from_millis(100)));
        assert_eq!(rate_limiter.wait(0, 100_000, MS), None, "no limit, nothing owed");
        assert_eq!(rate_limiter.wait(1000, 100_000, MS), None);
    }

    #[test]
    fn idle_time_earns_no_credit() {
        let rate_limiter = RateLimiter::default();
        assert_eq!(rate_limiter.wait(1000, 0, Duration::from_secs(100)), None);
        assert_eq!(rate_limiter.wait(1000, 100, Duration::from_secs(100)), Some(100 * MS));
    }
}

//! The write budget of a tier: bytes per second, over any minute, because writes wear a device out.
//!
//! No window of 60 seconds, wherever it begins, has more writes than 60 times the budget. Writes are counted
//! by whole seconds; the last 61 seconds cover any such window, and their sum is bounded. Within that, no
//! second takes more than four sixtieths of what its window has left (or one page, if that is more). So a
//! burst leaves something for the rest of its minute, and a writer that always wants more writes four fifths
//! of the budget on average: no second has nothing left. Only the last writes of a tier, when it is closed,
//! ignore that limit.
//!
//! A tier that an earlier process wrote to starts with a used-up budget ([`WriteBudget::used`]): a process
//! that restarts again and again writes no more than one that runs on.
//!
//! No I/O and no clock: the caller passes the time.

use std::time::Duration;

use base::invariant;
use base::limits::PAGE_BYTES;

/// Length of the window, seconds.
const WINDOW: u64 = 60;
/// Whole seconds that cover any window.
const SECONDS: usize = WINDOW as usize + 1;
/// Most writes in one second, in sixtieths of what the window has left.
const BURST: u64 = 4;

/// Writes of the last minute, and the limit.
#[derive(Clone, Debug)]
pub struct WriteBudget {
    /// Bytes per second; `None`: no limit.
    rate: Option<u64>,
    /// Bytes written in each second; second `n` is at index `n % SECONDS`.
    written: [u64; SECONDS],
    sum: u64,
    /// The latest second.
    now: u64,
}

impl WriteBudget {
    /// A budget of `rate` bytes per second; `None`: no limit.
    #[must_use]
    pub const fn new(rate: Option<u64>) -> Self {
        Self { rate, written: [0; SECONDS], sum: 0, now: 0 }
    }

    /// The budget of a tier that an earlier process may have written to just before `now`, a whole minute's
    /// budget: nothing may be written until a minute has passed.
    #[must_use]
    pub fn used(rate: Option<u64>, now: Duration) -> Self {
        let mut budget = Self::new(rate);
        budget.spend(now, rate.unwrap_or(0).saturating_mul(WINDOW));
        budget
    }

    /// Bytes that may be written at `now`. A time before the latest one counts as the latest one.
    #[must_use]
    pub fn left(&mut self, now: Duration) -> u64 {
        let minute = self.left_in_minute(now);
        if self.rate.is_none() {
            return minute;
        }
        let this_second = self.written.get(self.place()).copied().unwrap_or(0);
        debug_assert!(this_second <= self.sum, "a second is a part of its window");
        let before = minute.saturating_add(this_second);
        let second = (before / WINDOW).saturating_mul(BURST).max(PAGE_BYTES as u64);
        minute.min(second.saturating_sub(this_second))
    }

    /// As [`WriteBudget::left`], without the limit of a second: for the last writes of a tier.
    #[must_use]
    pub fn left_in_minute(&mut self, now: Duration) -> u64 {
        self.advance(now.as_secs());
        self.rate.map_or(u64::MAX, |rate| rate.saturating_mul(WINDOW).saturating_sub(self.sum))
    }

    /// Counts `bytes` written at `now`.
    pub fn spend(&mut self, now: Duration, bytes: u64) {
        self.advance(now.as_secs());
        invariant!(
            self.now >= now.as_secs(),
            "a write counts in its second, or in a later one if the clock went back"
        );
        let place = self.place();
        if let Some(second) = self.written.get_mut(place) {
            *second += bytes;
            self.sum += bytes;
            debug_assert!(
                self.sum == self.written.iter().sum::<u64>(),
                "the sum of a window is that of its seconds"
            );
        }
    }

    /// Share of the budget used in the last minute, in 1/256.
    #[must_use]
    pub fn fullness(&mut self, now: Duration) -> u32 {
        self.advance(now.as_secs());
        match self.rate.map(|rate| rate.saturating_mul(WINDOW)) {
            None => 0,
            Some(0) => 256,
            Some(most) => (u128::from(self.sum.min(most)) * 256 / u128::from(most)) as u32,
        }
    }

    const fn place(&self) -> usize {
        (self.now % SECONDS as u64) as usize
    }

    fn advance(&mut self, now: u64) {
        let passed = now.saturating_sub(self.now).min(SECONDS as u64);
        for _ in 0..passed {
            self.now += 1;
            let place = self.place();
            if let Some(second) = self.written.get_mut(place) {
                invariant!(self.sum >= *second, "the sum of a window covers each of its seconds");
                self.sum -= *second;
                *second = 0;
            }
        }
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    #[test]
    fn no_window_of_sixty_seconds_exceeds_the_budget() {
        for seed in 0..20 {
            let (mut rng, rate) = (Rng::new(seed), 1_000_000);
            let mut budget = WriteBudget::new(Some(rate));
            let mut spent: Vec<(u64, u64)> = Vec::new();
            let mut millis = 0;
            while millis < 400_000 {
                // Long pauses between writers that use all they may.
                millis += if rng.below(200) == 0 { rng.below(90_000) } else { rng.below(50) };
                let now = Duration::from_millis(millis);
                let bytes = rng.below(400_000).min(budget.left(now));
                budget.spend(now, bytes);
                spent.push((millis, bytes));
            }
            for (first, (from, _)) in spent.iter().enumerate() {
                let window = spent[first..].iter().take_while(|(at, _)| *at < from + 60_000);
                let sum: u64 = window.map(|(_, bytes)| bytes).sum();
                assert!(sum <= rate * WINDOW, "seed {seed}: {sum} from {from} ms on");
            }
            let (sum, seconds) = (spent.iter().map(|(_, bytes)| bytes).sum::<u64>(), millis / 1000);
            assert!(sum > rate * seconds / 5, "seed {seed}: {sum} in {seconds} s");
        }
    }

    #[test]
    fn no_rate_means_no_limit_and_rate_zero_no_writes() {
        let now = Duration::from_secs(5);
        let mut open = WriteBudget::new(None);
        open.spend(now, 1 << 40);
        assert_eq!((open.left(now), open.fullness(now)), (u64::MAX, 0));
        let mut shut = WriteBudget::new(Some(0));
        assert_eq!((shut.left(now), shut.fullness(now)), (0, 256));
    }

    #[test]
    fn a_used_budget_allows_nothing_for_a_minute() {
        let mut budget = WriteBudget::used(Some(100), Duration::from_millis(7500));
        let mut left = |millis| budget.left(Duration::from_millis(millis));
        assert_eq!([7500, 50_000, 67_500].map(&mut left), [0; 3]);
        assert_eq!(left(68_000), 4096);
        assert_eq!(WriteBudget::used(None, Duration::ZERO).left(Duration::ZERO), u64::MAX);
    }

    #[test]
    fn after_a_burst_the_rest_of_the_minute_is_left_for_the_last_writes() {
        let (mut budget, now) = (WriteBudget::new(Some(4096)), Duration::from_secs(9));
        budget.spend(now, 4 * 4096);
        assert_eq!((budget.left(now), budget.left_in_minute(now)), (0, 56 * 4096));
        budget.spend(now, 56 * 4096);
        assert_eq!(budget.left_in_minute(now), 0);
        assert_eq!(WriteBudget::new(None).left_in_minute(now), u64::MAX);
    }

    #[test]
    fn a_writer_that_always_wants_more_writes_every_second() {
        let rate = 1 << 20;
        let mut budget = WriteBudget::used(Some(rate), Duration::ZERO);
        let mut seconds = vec![0; 600];
        for millis in (0..600_000).step_by(10) {
            let now = Duration::from_millis(millis);
            let bytes = budget.left(now);
            budget.spend(now, bytes);
            seconds[millis as usize / 1000] += bytes;
        }
        let (first, rest) = seconds.split_at(61);
        assert_eq!(first.iter().sum::<u64>(), 0, "the budget was used before");
        assert!(rest.iter().all(|bytes| *bytes > rate / 16), "{rest:?}");
        let minutes = rest.chunks(60).filter(|minute| minute.len() == 60);
        let bytes: Vec<u64> = minutes.map(|minute| minute.iter().sum()).collect();
        assert!(bytes.iter().all(|bytes| *bytes > rate * 60 / 2), "{bytes:?}");
    }

    #[test]
    fn the_largest_budget_is_a_budget() {
        let (mut budget, now) = (WriteBudget::used(Some(u64::MAX), Duration::ZERO), Duration::ZERO);
        assert_eq!((budget.left(now), budget.fullness(now)), (0, 256));
        assert!(budget.left(Duration::from_secs(61)) > u64::MAX / 16);
    }

    #[test]
    fn a_clock_that_goes_back_counts_as_standing_still() {
        let mut budget = WriteBudget::new(Some(100));
        budget.spend(Duration::from_secs(100), 4096);
        assert_eq!(budget.left(Duration::from_secs(3)), 0);
        assert_eq!(budget.left(Duration::from_secs(101)), 6000 - 4096);
    }
}

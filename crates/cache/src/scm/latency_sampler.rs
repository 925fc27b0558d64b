//! A latency sampler: picks the few operations that are done only to be measured, such as a read that is
//! waited for alone, so that they take a small part of one reader's time. Any thread may ask; lock-free.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Sampled operations take 1/64 of the time.
const PART: u64 = 64;

/// Time of the next sample, nanoseconds of the tier's clock. A plain number: `Relaxed`.
#[derive(Debug, Default)]
pub(crate) struct LatencySampler(AtomicU64);

impl LatencySampler {
    /// Whether to do an operation of about `nanos` nanoseconds at `now`. Of concurrent callers one gets true.
    pub(crate) fn is_due(&self, now: Duration, nanos: u32) -> bool {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let due = self.0.load(Relaxed);
        let next = now.saturating_add(u64::from(nanos) * PART);
        now >= due && self.0.compare_exchange(due, next, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_take_a_sixty_fourth_of_the_time() {
        let (sampler, step) = (LatencySampler::default(), Duration::from_micros(70));
        let took = Duration::from_millis(2);
        let (mut now, mut measured) = (Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(10) {
            let is_due = sampler.is_due(now, 2_000_000);
            measured += if is_due { took } else { Duration::ZERO };
            now += if is_due { took } else { step };
        }
        assert!(measured * 62 <= now && measured * 80 >= now, "{measured:?}");
    }
}

//! [`Latency`]: how long commands took in the server, as a histogram. A command adds to two counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets, microseconds; one more bucket has the rest.
pub(crate) const BOUNDS_US: [u64; 15] = [
    50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 10_000_000,
];

#[derive(Debug, Default)]
pub(crate) struct Latency {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    pub(crate) fn add(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < took_us);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(took_us, Ordering::Relaxed);
    }

    /// Commands by bucket.
    pub(crate) fn counts(&self) -> Vec<u64> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// The time of all commands.
    pub(crate) fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_counted_in_the_bucket_of_its_time() {
        let latency = Latency::default();
        for us in [0, 50, 51, 1_000_000, u64::from(u32::MAX)] {
            latency.add(Duration::from_micros(us));
        }
        let counts = latency.counts();
        assert_eq!((counts[0], counts[1], counts[13], counts[15]), (2, 1, 1, 1));
        assert_eq!(latency.sum().as_micros(), 50 + 51 + 1_000_000 + u128::from(u32::MAX));
    }
}

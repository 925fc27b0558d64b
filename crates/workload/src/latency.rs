//! Latency histograms: one per thread, merged at the end.

use std::time::Duration;

use base::{Error, Result, invariant};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Three significant digits: a percentile is off by at most 0.1 %.
const DIGITS: u8 = 3;

/// Longer operations count as this long.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

/// A histogram of latencies. Takes about 200 KiB of memory once it has a latency of a second.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// An empty histogram.
    ///
    /// # Errors
    /// `Retry` if there is no memory for the buckets.
    pub fn new() -> Result<Self> {
        let highest = LATENCY_MAX.as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(1, highest, DIGITS)
            .map_err(|error| Error::retry("latency histogram").caused_by(error))?;
        Ok(Self(histogram))
    }

    /// Counts one operation.
    #[inline]
    pub fn record(&mut self, took: Duration) {
        self.record_many(took, 1);
    }

    /// Counts `count` operations that took `took` each.
    #[inline]
    pub fn record_many(&mut self, took: Duration, count: u64) {
        self.0.saturating_record_n(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), count);
    }

    /// Adds another thread's operations.
    pub fn merge(&mut self, other: &Self) {
        // Fails only if the bounds differ, and all histograms have the same.
        let added = self.0.add(&other.0);
        invariant!(added.is_ok(), "all latency histograms have the same bounds");
    }

    /// Operations counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The figures for reports.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        LatencySummary {
            mean: self.0.mean() / 1000.0,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max() as f64 / 1000.0,
        }
    }
}

/// Latencies, microseconds with fractions; all zero if no operation was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The longest latency.
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_histograms_give_the_percentiles_of_all_threads() {
        let (mut one, mut two) = (Latencies::new().unwrap(), Latencies::new().unwrap());
        for micros in 1..=500u64 {
            one.record(Duration::from_nanos(micros * 1000 - 500));
            two.record(Duration::from_micros(micros + 500));
        }
        one.merge(&two);
        let summary = one.summary();
        assert_eq!(one.count(), 1000);
        let near = |got: f64, expected: f64| (got - expected).abs() <= expected / 500.0;
        assert!(near(summary.mean, 500.25), "{summary:?}");
        assert!(near(summary.p50, 499.5), "{summary:?}");
        assert!(near(summary.p99, 990.0) && near(summary.p999, 999.0), "{summary:?}");
        assert!(near(summary.max, 1000.0), "{summary:?}");
        two.record(Duration::MAX);
        assert!(near(two.summary().max, 3.6e9));
        assert_eq!(Latencies::new().unwrap().summary(), LatencySummary::default());
    }

    /// Latencies below a microsecond keep their fraction.
    #[test]
    fn summaries_keep_nanoseconds() {
        let mut latencies = Latencies::new().unwrap();
        latencies.record(Duration::from_nanos(137));
        assert!((latencies.summary().p50 - 0.137).abs() < 1e-9);
    }
}

//! Compresses the values of cached rows when memory is short, so that more rows fit.
//!
//! A hit then costs a decompression, a fraction of a microsecond; each further row in memory saves device
//! reads of tens of microseconds. While rows have memory to spare, or most new rows are refused anyway,
//! values are stored as they are. After [`FAILURES_MAX`] consecutive values that did not get smaller, only
//! one in [`TRY_ONE_IN`] is tried.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cache::RowCache;
use table::pack_value;

/// Consecutive values that did not get smaller, after which most values are not tried.
const FAILURES_MAX: u32 = 32;

/// From then on, one value in this many is tried.
const TRY_ONE_IN: u32 = 16;

/// Longer values are not tried, bytes: the longest row has half as many.
const VALUE_BYTES_MAX: usize = 4096;

/// Decides whether to compress a value, by the success of the last ones. Any thread may call.
#[derive(Debug, Default)]
pub struct RowCompression {
    /// Consecutive values that were not compressed, tried or not.
    failures: AtomicU32,
}

impl RowCompression {
    /// The compressed form of `value` for a row of `rows`; `None` if it is to be stored as it is.
    pub fn form(&self, rows: &RowCache, value: &[u8]) -> Option<Vec<u8>> {
        if rows.is_tight() { self.pack(value) } else { None }
    }

    /// The compressed form of `value`, for [`table::unpack_value`]; `None` if it is not smaller or not tried.
    fn pack(&self, value: &[u8]) -> Option<Vec<u8>> {
        if value.len() > VALUE_BYTES_MAX || !self.is_tried() {
            return None;
        }
        let mut packed = Vec::new();
        let gains = pack_value(value, &mut packed);
        if gains {
            self.failures.store(0, Relaxed);
        }
        gains.then_some(packed)
    }

    /// Whether to try the next value. Counts it as a failure until it succeeds.
    fn is_tried(&self) -> bool {
        let failures = self.failures.fetch_add(1, Relaxed);
        failures < FAILURES_MAX || failures.is_multiple_of(TRY_ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    #[test]
    fn incompressible_values_are_seldom_tried_until_one_gets_smaller() {
        let compression = RowCompression::default();
        let mut noise = vec![0; 400];
        Rng::new(1).fill(&mut noise);
        let plain = [7; 400];
        assert!(compression.pack(&plain).is_some());
        assert!((0..FAILURES_MAX).all(|_| compression.pack(&noise).is_none()));
        let tried = (0..10 * TRY_ONE_IN).filter(|_| compression.is_tried()).count();
        assert_eq!(tried, 10);
        // The next value that is tried gets smaller: from then on all are tried.
        let untried = (0..=TRY_ONE_IN).take_while(|_| compression.pack(&plain).is_none()).count();
        assert!(untried <= TRY_ONE_IN as usize);
        assert!((0..100).all(|_| compression.pack(&plain).is_some()));
        assert!(compression.pack(&[7; VALUE_BYTES_MAX + 1]).is_none());
    }
}

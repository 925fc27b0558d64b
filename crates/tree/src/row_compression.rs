//! Values of rows packed where memory is short, so that it holds more of them.
//!
//! A hit then costs a decompression, a fraction of a microsecond, and each row more that is in memory saves
//! reads of tens of them. Where rows have memory to spare, or most are not let in, they lie as they are.
//! Values that do not pack are noticed: then one in [`SELDOM`] is tried.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cache::RowCache;
use table::pack_value;

/// So many values in a row that gained nothing, and the next are hardly tried.
const FAILURES_MAX: u32 = 32;

/// Of values that hardly gain, one in so many is tried.
const SELDOM: u32 = 16;

/// Longer values are not tried, bytes: a row holds half as much.
const VALUE_BYTES_MAX: usize = 4096;

/// Whether packing gained lately.
#[derive(Debug, Default)]
pub struct RowCompression {
    /// Values that gained nothing, one after the other; counted on while they are passed by.
    failures: AtomicU32,
}

impl RowCompression {
    /// As `RowCompression::pack`, where memory of `rows` is short.
    pub fn form(&self, rows: &RowCache, value: &[u8]) -> Option<Vec<u8>> {
        if rows.is_tight() { self.pack(value) } else { None }
    }

    /// The packed form of `value`, where that is worth it, for [`table::unpack_value`].
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

    /// Counts a try that may fail; false for one that is passed by.
    fn is_tried(&self) -> bool {
        let failures = self.failures.fetch_add(1, Relaxed);
        failures < FAILURES_MAX || failures.is_multiple_of(SELDOM)
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    #[test]
    fn values_that_gain_nothing_are_hardly_tried_until_one_gains() {
        let compression = RowCompression::default();
        let mut noise = vec![0; 400];
        Rng::new(1).fill(&mut noise);
        let plain = [7; 400];
        assert!(compression.pack(&plain).is_some());
        assert!((0..FAILURES_MAX).all(|_| compression.pack(&noise).is_none()));
        let tried = (0..10 * SELDOM).filter(|_| compression.is_tried()).count();
        assert_eq!(tried, 10);
        // The next one tried gains: from then on all are.
        let passed_by = (0..=SELDOM).take_while(|_| compression.pack(&plain).is_none()).count();
        assert!(passed_by <= SELDOM as usize);
        assert!((0..100).all(|_| compression.pack(&plain).is_some()));
        assert!(compression.pack(&[7; VALUE_BYTES_MAX + 1]).is_none());
    }
}

//! Filter bits of the runs of a hashed keyspace.

use table::FILTER_BITS_MAX;

/// Useless reads of a lookup, by all filters that it asks together.
const USELESS_READS_MAX: f64 = 0.01;

/// Filter bits of a run's tables, if a lookup asks the filters of `runs` runs: enough for a hundredth of a
/// useless read in all.
#[must_use]
pub fn run_filter_bits(runs: f64) -> u8 {
    let bits = (runs.max(1.0) / USELESS_READS_MAX).log2().ceil();
    // The cast saturates.
    (bits as u8).min(FILTER_BITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_of_all_runs_together_fail_once_in_a_hundred_lookups() {
        for (runs, bits) in
            [(0.0, 7), (1.0, 7), (1.28, 7), (1.3, 8), (15.0, 11), (32.5, 12), (65.0, 13)]
        {
            assert_eq!(run_filter_bits(runs), bits, "{runs}");
            assert!(runs * 2f64.powi(-i32::from(bits)) <= USELESS_READS_MAX);
        }
        assert_eq!(run_filter_bits(1e9), FILTER_BITS_MAX);
        assert_eq!(run_filter_bits(f64::NAN), 7);
    }
}

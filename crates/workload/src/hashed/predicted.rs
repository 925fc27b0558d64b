//! The figures that the formulas of a `keep` keyspace predict.
//!
//! Inputs are the sizes that the store itself decides: the bytes of an entry in a table and of a flushed
//! table. All else follows from the schedule. *d* is the planner's share of runs at which a slice is merged:
//! on average the runs hold *d* / 2 of the base, and each byte is merged 1 / *d* times.

use compact::plan::hashed::{keep, run_filter_bits};
use serde::Serialize;

/// Bits of the index for each page: Elias-Fano with about 64 bins a page takes 2 + log2(64) bits, and a
/// quarter of a bit for its search.
const INDEX_BITS_PER_PAGE: f64 = 8.25;

/// A filter takes this many times its bits for each entry.
const FILTER_OVERHEAD: f64 = 1.045;

const PAGE_BYTES: f64 = base::limits::PAGE_BYTES as f64;

/// The sizes from which the figures follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sizes {
    /// Bytes of an entry in the base: page fill included.
    pub(crate) stored: f64,
    /// Bytes of an entry as the user wrote it.
    pub(crate) user: f64,
    /// Bytes of the base.
    pub(crate) base: f64,
    /// Bytes of a flushed table.
    pub(crate) flush: f64,
}

/// The figures that the formulas predict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Bytes of index and filters for each entry.
    pub dram_bytes_per_entry: f64,
    /// Filter bits for each entry of a run.
    pub filter_bits: u8,
    /// Runs above a key.
    pub runs: f64,
    /// Device reads of a hit.
    pub device_reads_per_hit: f64,
    /// Device reads of a miss.
    pub device_reads_per_miss: f64,
    /// Device reads of a miss that a filter did not exclude.
    pub useless_reads_per_miss: f64,
    /// Bytes written by flushes and merges for each byte that the user wrote.
    pub table_write_amplification: f64,
}

impl Predicted {
    pub(crate) fn of(sizes: Sizes) -> Self {
        let share = keep::Options::default().run_share;
        let runs = share / 2.0 * sizes.base / sizes.flush.max(1.0);
        let filter_bits = run_filter_bits(runs);
        let filter = f64::from(filter_bits) * FILTER_OVERHEAD;
        let index = INDEX_BITS_PER_PAGE * sizes.stored / PAGE_BYTES;
        let useless = runs * 2f64.powi(-i32::from(filter_bits));
        let written = sizes.stored + filter / 8.0;
        Self {
            dram_bytes_per_entry: (index * (1.0 + share / 2.0) + filter * share / 2.0) / 8.0,
            filter_bits,
            runs,
            device_reads_per_hit: 1.0 + useless,
            device_reads_per_miss: 1.0 + useless,
            useless_reads_per_miss: useless,
            table_write_amplification: (written + written / share) / sizes.user.max(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The design's row of 256 B entries in a compact block: flushes of 0.4 % of the base.
    #[test]
    fn the_formulas_give_the_figures_of_the_design() {
        let stored = 261.0 / 0.95;
        let base = 20e6 * stored;
        let sizes = Sizes { stored, user: 256.0, base, flush: base * 0.004 };
        let Predicted { dram_bytes_per_entry, filter_bits, runs, .. } = Predicted::of(sizes);
        assert_eq!(filter_bits, 12);
        assert!((runs - 33.75).abs() < 0.01, "{runs}");
        assert!((dram_bytes_per_entry - 0.288).abs() < 0.01, "{dram_bytes_per_entry}");
        let Predicted { table_write_amplification, useless_reads_per_miss, .. } =
            Predicted::of(sizes);
        assert!((table_write_amplification - 5.08).abs() < 0.1, "{table_write_amplification}");
        assert!(useless_reads_per_miss < 0.01);
    }
}

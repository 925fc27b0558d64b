//! Parameters of the planner's policy, chosen by measuring tree shapes: docs/decisions/005-compaction.md.

/// The tree shape that the planner aims for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Pieces of one level in a column that trigger a merge into the next level.
    pub fanout: usize,
    /// Most pieces in a column of a settled tree.
    pub settled_runs: usize,
    /// Space amplification that triggers merges in a tree with writes: stored bytes over live bytes.
    pub space_max: f64,
    /// Space amplification of a settled tree: stored bytes over bytes in the oldest runs, as if all newer
    /// runs were garbage.
    pub settled_space: f64,
    /// Share of tombstones among a column's entries that triggers a merge.
    pub deletes_share: f64,
    /// Share of dead bytes in a value file above which it is collected.
    pub dead_values_max: f64,
    /// Approximate input bytes of one job in a tree of up to 64 times as many. In a larger tree a job takes
    /// 1/64 of it, but at most eight times this, which bounds the number of tables and jobs.
    pub slice_bytes: u64,
    /// Most input runs of one job.
    pub runs_max: usize,
    /// Filter bits of the base of a hashed keyspace; 0: none.
    pub base_filter_bits: u8,
    /// Bytes of a flushed table; `None`: half of a full memtable. For tests with small data.
    pub unit_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fanout: 12,
            settled_runs: 4,
            space_max: 1.5,
            settled_space: 1.25,
            deletes_share: 0.2,
            dead_values_max: 0.4,
            slice_bytes: 64 << 20,
            runs_max: 64,
            base_filter_bits: 0,
            unit_bytes: None,
        }
    }
}

/// Filter bits per key of an output. A get of a missing key asks every filter in its column, so the few keys
/// of newer runs get more bits than the many keys of the oldest run ("Monkey", Dayan et al., 2017).
///
/// `oldest`: no older piece lies below.
#[must_use]
pub fn filter_bits(oldest: bool) -> f32 {
    // Ribbon filters with false-positive rates of 0.3 % and 0.03 %.
    if oldest { 9.0 } else { 12.0 }
}

impl Options {
    /// Approximate input bytes of one job in a tree of `bytes`.
    pub(super) fn slice_of(&self, bytes: u64) -> u64 {
        let least = self.slice_bytes.max(1);
        (bytes / 64).clamp(least, least.saturating_mul(8))
    }
}

/// Maximum table length for slices of `slice` bytes. Tables above the oldest run are a quarter as long, so
/// that a slice leaves little of the files at its ends.
pub(super) fn table_bytes(slice: u64, oldest: bool) -> u64 {
    (slice / if oldest { 2 } else { 8 }).max(1)
}

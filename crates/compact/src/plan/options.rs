//! The numbers of the policy. Found by measuring shapes: docs/performance.md.

/// What layout the tree is kept in.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Pieces of one level in a column that are merged into one of the next.
    pub fanout: usize,
    /// The most pieces in a column of a settled tree.
    pub settled_runs: usize,
    /// Stored bytes over the content's, in a tree that is written to.
    pub space_max: f64,
    /// Stored bytes over the content's, in a settled tree, if all that newer runs hold were garbage.
    pub settled_space: f64,
    /// The share of deletes among the entries of a column above which it is merged down.
    pub deletes_share: f64,
    /// The share of a value file that is dead above which it is collected.
    pub dead_values_max: f64,
    /// About how much one job takes in, bytes, of a tree of up to 64 times as much; of a larger one a 64th,
    /// up to eight times as much, so that tables and jobs do not become too many.
    pub slice_bytes: u64,
    /// The most runs one job takes in.
    pub runs_max: usize,
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
        }
    }
}

/// Filter bits for each key of a run: a missing key asks every filter of its column, so the few keys of
/// newer runs get more bits than the many of the oldest ("Monkey", Dayan et al., 2017).
///
/// `oldest`: nothing older lies below.
#[must_use]
pub fn filter_bits(oldest: bool) -> f32 {
    // Ribbon filters: 0.3 % and 0.03 % false positives.
    if oldest { 9.0 } else { 12.0 }
}

impl Options {
    /// About how much one job of a tree of `bytes` takes in, bytes.
    pub(super) fn slice_of(&self, bytes: u64) -> u64 {
        let least = self.slice_bytes.max(1);
        (bytes / 64).clamp(least, least.saturating_mul(8))
    }
}

/// The longest table, bytes, where jobs take in `slice`: above the oldest run a quarter as long, so
/// that a slice leaves little behind of the files that it cuts.
pub(super) fn table_bytes(slice: u64, oldest: bool) -> u64 {
    (slice / if oldest { 2 } else { 8 }).max(1)
}

//! How much of what newer runs hold supersedes older versions: learned from merges.
//!
//! Nobody can tell garbage from new keys without reading both. But every merge down to the oldest run
//! tells how much of what it took in was superseded, and the next one will find about the same. A load
//! of new keys is so told from overwriting, and is not merged again and again for space that it does
//! not waste. What was learned fades as more is written, so that a change of habits is noticed after a
//! fraction of the tree: a tree of which nothing is known is input_bytes to be all garbage above the oldest
//! run, and a slice or two is merged to find out.

/// A moving average of what merges found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turnover {
    /// Bytes that newer runs newer_bytes to merges down to the oldest run, faded.
    newer_bytes: f64,
    /// What of these superseded older versions, bytes.
    superseding_bytes: f64,
    /// The tree's size when last told, bytes.
    tree_bytes: f64,
}

/// What was learned fades to half while this share of the tree's size is written.
const HALF_LIFE: f64 = 0.1;
/// The weight of knowing nothing, as a share of the tree's size.
const PRIOR: f64 = 0.002;

impl Turnover {
    /// A flush wrote a table of `bytes` to a tree of `tree_bytes`.
    pub fn flushed(&mut self, bytes: u64, tree_bytes: u64) {
        self.tree_bytes = tree_bytes.max(bytes) as f64;
        if self.tree_bytes > 0.0 {
            let kept = 0.5f64.powf(bytes as f64 / (self.tree_bytes * HALF_LIFE));
            self.newer_bytes *= kept;
            self.superseding_bytes *= kept;
        }
    }

    /// A merge down to the oldest run took `newer_bytes` from newer runs and `oldest_bytes` from the
    /// oldest, and wrote `out_bytes`.
    pub fn merged(&mut self, newer_bytes: u64, oldest_bytes: u64, out_bytes: u64) {
        let newer = newer_bytes as f64;
        let lost = (newer + oldest_bytes as f64 - out_bytes as f64).clamp(0.0, newer);
        self.newer_bytes += newer;
        self.superseding_bytes += lost;
    }

    /// The share of what newer runs hold that supersedes older versions, 0 to 1.
    #[must_use]
    pub fn superseding(&self) -> f64 {
        let prior = (self.tree_bytes * PRIOR).max(1.0);
        (self.superseding_bytes + prior) / (self.newer_bytes + prior)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_merges_find_is_believed_for_a_while() {
        let mut turnover = Turnover::default();
        assert!(turnover.superseding() > 0.99, "nothing is known");
        turnover.flushed(10, 10_000);
        turnover.merged(500, 500, 1000);
        assert!(turnover.superseding() < 0.1, "all keys were new");
        let mut shares = Vec::new();
        for _ in 0..1000 {
            turnover.flushed(10, 10_000);
            shares.push(turnover.superseding());
        }
        assert!(shares.is_sorted(), "it fades");
        assert!(shares.last().is_some_and(|share| *share > 0.9));
        turnover.merged(500, 500, 500);
        assert!(turnover.superseding() > 0.9, "all of it superseded");
        // More out than in, by padding: never less than nothing.
        turnover.merged(5_000_000, 0, 6_000_000);
        assert!((0.0..0.01).contains(&turnover.superseding()));
    }
}

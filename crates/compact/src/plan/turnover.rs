//! Turnover: the share of newer runs' bytes that supersede older versions, learned from past merges.
//!
//! Garbage cannot be told from new keys without reading both. But every merge down to the oldest run measures
//! which part of its newer inputs superseded older versions, and the next merge will find a similar part. So
//! a load of new keys is told from overwrites, and is not merged again and again for space that it does not
//! waste. Old measurements fade as more is written, so a changed workload is noticed after a fraction of the
//! tree is written. Without any measurement, all bytes above the oldest run are assumed to be garbage; one or
//! two slices then measure the share.

/// A fading average over past merges.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turnover {
    /// Bytes from newer runs in merges down to the oldest run, faded.
    newer_bytes: f64,
    /// The part of `newer_bytes` that superseded older versions.
    superseding_bytes: f64,
    /// Size of the tree at the last flush, bytes.
    tree_bytes: f64,
}

/// Measurements fade to half while this share of the tree's size is written.
const HALF_LIFE: f64 = 0.1;
/// Weight of the assumption that everything is superseded, as a share of the tree's size.
const PRIOR: f64 = 0.002;

impl Turnover {
    /// Records a flush of `bytes` into a tree of `tree_bytes`.
    pub fn flushed(&mut self, bytes: u64, tree_bytes: u64) {
        self.tree_bytes = tree_bytes.max(bytes) as f64;
        if self.tree_bytes > 0.0 {
            let kept = 0.5f64.powf(bytes as f64 / (self.tree_bytes * HALF_LIFE));
            self.newer_bytes *= kept;
            self.superseding_bytes *= kept;
        }
    }

    /// Records a merge down to the oldest run: its input bytes from newer runs and from the oldest run, and
    /// its output bytes.
    pub fn merged(&mut self, newer_bytes: u64, oldest_bytes: u64, out_bytes: u64) {
        let newer = newer_bytes as f64;
        let lost = (newer + oldest_bytes as f64 - out_bytes as f64).clamp(0.0, newer);
        self.newer_bytes += newer;
        self.superseding_bytes += lost;
        // Both sums decay by the same factor; rounding may differ in the last bits.
        debug_assert!(self.superseding_bytes <= self.newer_bytes * 1.000_001, "{self:?}");
    }

    /// The share of bytes in newer runs that supersede older versions, 0 to 1.
    #[must_use]
    pub fn superseding(&self) -> f64 {
        let prior = (self.tree_bytes * PRIOR).max(1.0);
        ((self.superseding_bytes + prior) / (self.newer_bytes + prior)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_turnover_fades_as_more_is_written() {
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
        // Padding may make outputs longer than inputs: that counts as nothing superseded.
        turnover.merged(5_000_000, 0, 6_000_000);
        assert!((0.0..0.01).contains(&turnover.superseding()));
    }
}

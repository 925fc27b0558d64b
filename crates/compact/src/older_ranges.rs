//! Key ranges that tables older than a job's inputs may hold. Tombstones over these keys must stay (I5).

use crate::KeyRange;

/// The union of the key ranges of older tables.
///
/// Questions may come in any order. Each costs one or two comparisons if the keys ascend.
#[derive(Clone, Debug, Default)]
pub struct OlderRanges {
    /// Disjoint and ascending; adjacent ranges are joined.
    ranges: Vec<KeyRange>,
    /// Every range before this index ends at or before the key of the last question.
    at: usize,
}

impl OlderRanges {
    /// No older tables: a tombstone is dropped once no read is older than it.
    #[must_use]
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Older tables may hold any key: every tombstone stays.
    #[must_use]
    pub fn everything() -> Self {
        Self { ranges: vec![KeyRange::all()], at: 0 }
    }

    /// The union of `ranges`, which may overlap and come in any order.
    #[must_use]
    pub fn new(mut ranges: Vec<KeyRange>) -> Self {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by(|a, b| a.first.cmp(&b.first));
        let mut merged: Vec<KeyRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.reaches(&range.first) => last.extend_to(range.end),
                _ => merged.push(range),
            }
        }
        debug_assert!(
            merged.is_sorted_by(|a, b| a.end.as_ref().is_some_and(|end| *end < b.first)),
            "joined ranges leave gaps: {merged:?}"
        );
        Self { ranges: merged, at: 0 }
    }

    /// The ranges, disjoint and ascending.
    #[must_use]
    pub fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }

    /// Whether an older table may hold `key`.
    pub fn may_hold(&mut self, key: &[u8]) -> bool {
        self.advance(key);
        self.ranges.get(self.at).is_some_and(|range| *range.first <= *key)
    }

    /// Whether an older table may hold a key from `start` (included) to `end` (excluded; `None`: no upper
    /// bound).
    pub fn overlaps(&mut self, start: &[u8], end: Option<&[u8]>) -> bool {
        self.advance(start);
        self.ranges.get(self.at).is_some_and(|range| end.is_none_or(|end| *range.first < *end))
    }

    /// Moves to the first range that ends after `key`.
    fn advance(&mut self, key: &[u8]) {
        let ends_before = |range: &KeyRange| range.end.as_ref().is_some_and(|end| **end <= *key);
        let before = self.at.checked_sub(1).and_then(|before| self.ranges.get(before));
        if before.is_some_and(|before| !ends_before(before)) {
            self.at = 0;
        }
        while self.ranges.get(self.at).is_some_and(ends_before) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, end: Option<&str>) -> KeyRange {
        KeyRange::new(first.as_bytes(), end.map(str::as_bytes))
    }

    #[test]
    fn overlapping_ranges_are_joined_and_queried_in_any_order() {
        let mut below = OlderRanges::new(vec![
            range("m", Some("p")),
            range("b", Some("d")),
            range("c", Some("e")),
            range("e", Some("f")),
            range("x", Some("x")),
        ]);
        assert_eq!(below.ranges(), [range("b", Some("f")), range("m", Some("p"))]);
        for (key, held) in [("a", false), ("b", true), ("ez", true), ("f", false), ("o", true)] {
            assert_eq!(below.may_hold(key.as_bytes()), held, "{key}");
        }
        assert!(!below.may_hold(b"p") && below.may_hold(b"c") && below.may_hold(b"m"));
        assert!(!below.overlaps(b"f", Some(b"m")) && below.overlaps(b"f", Some(b"n")));
        assert!(!below.overlaps(b"p", None) && below.overlaps(b"a", None));
        assert!(OlderRanges::everything().may_hold(b"") && !OlderRanges::nothing().may_hold(b"a"));
    }

    #[test]
    fn a_range_without_end_joins_all_later_ranges() {
        let below =
            OlderRanges::new(vec![range("c", None), range("d", Some("e")), range("a", Some("b"))]);
        assert_eq!(below.ranges(), [range("a", Some("b")), range("c", None)]);
    }
}

//! Where a log begins, which whoever opens it remembers.
//!
//! A removed segment may come back with a power cut, alone and beside segments that were removed
//! after it. So before a segment is removed it is recorded, durably and apart from the log, that the
//! log begins behind it: recovery reads nothing before that, and removes it once more.

use std::collections::BTreeMap;

use base::{LaneId, SegmentId};

/// Of each lane, the oldest segment that some keyspace may need. What lies before it is dead for
/// good: no id below it is ever given out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start(BTreeMap<LaneId, SegmentId>);

impl Start {
    /// A log of which nothing was removed.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The oldest segment of `lane` that counts.
    #[must_use]
    pub fn of(&self, lane: LaneId) -> SegmentId {
        self.0.get(&lane).copied().unwrap_or_default()
    }

    /// From now on `lane` begins with `segment`, unless it begins later already.
    pub fn raise(&mut self, lane: LaneId, segment: SegmentId) {
        let of = self.0.entry(lane).or_default();
        *of = segment.max(*of);
    }

    /// The lanes of which segments were removed, and where each begins.
    pub fn iter(&self) -> impl Iterator<Item = (LaneId, SegmentId)> {
        self.0.iter().map(|(lane, segment)| (*lane, *segment))
    }

    /// True where nothing was removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_only_begins_later() {
        let mut start = Start::new();
        assert_eq!(start.of(LaneId(1)), SegmentId(0));
        for (segment, expected) in [(4, 4), (2, 4), (9, 9)] {
            start.raise(LaneId(1), SegmentId(segment));
            assert_eq!(start.of(LaneId(1)), SegmentId(expected));
        }
        assert_eq!(start.iter().collect::<Vec<_>>(), [(LaneId(1), SegmentId(9))]);
    }
}

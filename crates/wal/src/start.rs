//! The start of a log, recorded outside the log.
//!
//! A removed segment may come back with a power cut, alone or beside segments that were removed after
//! it. So before a segment is removed, the caller durably records that the log begins after it. Recovery
//! does not read segments before the start, and removes them again.

use std::collections::BTreeMap;

use base::{LaneId, SegmentId};

/// The oldest segment of each lane that some keyspace may need. Earlier segments are dead for good: no
/// id below the start is assigned again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start(BTreeMap<LaneId, SegmentId>);

impl Start {
    /// The start of a log from which no segment was removed.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The first segment of `lane`.
    #[must_use]
    pub fn of(&self, lane: LaneId) -> SegmentId {
        self.0.get(&lane).copied().unwrap_or_default()
    }

    /// Moves the start of `lane` to `segment` unless it is later already.
    pub fn raise(&mut self, lane: LaneId, segment: SegmentId) {
        let of = self.0.entry(lane).or_default();
        *of = segment.max(*of);
    }

    /// The lanes from which segments were removed, and the first segment of each.
    pub fn iter(&self) -> impl Iterator<Item = (LaneId, SegmentId)> {
        self.0.iter().map(|(lane, segment)| (*lane, *segment))
    }

    /// Whether no segment was removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_lane_never_moves_back() {
        let mut start = Start::new();
        assert_eq!(start.of(LaneId(1)), SegmentId(0));
        for (segment, expected) in [(4, 4), (2, 4), (9, 9)] {
            start.raise(LaneId(1), SegmentId(segment));
            assert_eq!(start.of(LaneId(1)), SegmentId(expected));
        }
        assert_eq!(start.iter().collect::<Vec<_>>(), [(LaneId(1), SegmentId(9))]);
    }
}

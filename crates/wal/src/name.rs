//! The names of segment files: `log-<lane>-<segment>`.

use base::{LaneId, SegmentId};

/// The name of a segment's file.
#[must_use]
pub fn segment_name(lane: LaneId, segment: SegmentId) -> String {
    format!("log-{}-{:010}", lane.0, segment.0)
}

/// The lane and segment of a segment's file name; `None` for any other name.
#[must_use]
pub fn parse_segment_name(name: &str) -> Option<(LaneId, SegmentId)> {
    let (lane, segment) = name.strip_prefix("log-")?.split_once('-')?;
    let (lane, segment) = (LaneId(lane.parse().ok()?), SegmentId(segment.parse().ok()?));
    // One file, one name: `log-00-1` names no segment.
    (segment_name(lane, segment) == name).then_some((lane, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_round_trip_and_have_one_form() {
        let name = segment_name(LaneId(3), SegmentId(17));
        assert_eq!(name, "log-3-0000000017");
        assert_eq!(parse_segment_name(&name), Some((LaneId(3), SegmentId(17))));
        let largest = segment_name(LaneId(u16::MAX), SegmentId(u64::MAX));
        assert_eq!(parse_segment_name(&largest), Some((LaneId(u16::MAX), SegmentId(u64::MAX))));
        for other in ["log-0-1", "log-00-0000000001", "log-0-0000000001.old", "log-", "MANIFEST"] {
            assert_eq!(parse_segment_name(other), None, "{other}");
        }
    }
}

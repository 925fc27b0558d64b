//! Which segment of the log to collect next: a pure function of what the lanes hold.
//!
//! The segments of a lane are freed oldest first, so only the oldest one of a lane can be collected with
//! effect. A fully live one may stand before dead ones: a lane is judged by the best prefix of its
//! segments, by benefit over cost as in a log-structured file system (Rosenblum and Ousterhout): the dead
//! bytes, times their age, over the bytes that are read and written again. Old segments with few dead bytes
//! are taken at last: what is left in them stays.
//!
//! Nothing is collected while less than a third of the log is dead: at two thirds full each user byte costs
//! about one more byte.
//!
//! On a full device a twentieth suffices, and bytes count as dead only if a move gives them back: a copy of
//! an entry is longer than its record in a batch, and shorter than a record by itself. A prefix is moved only
//! if all of it gives bytes back, and no part of it takes more than are kept for moved records.

use base::{LaneId, SegmentId};

/// The share of the log that may be dead, in parts of 60.
const DEAD_MAX: u64 = 20;

/// As [`DEAD_MAX`], on a full device.
const DEAD_MAX_FULL: u64 = 3;

/// The least number of segments' lengths that are dead before anything is moved.
const DEAD_SEGMENTS_MIN: u64 = 4;

/// The longest prefix that is judged.
const PREFIX_MAX: usize = 64;

/// A full segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub segment: SegmentId,
    pub bytes: u64,
    /// Bytes of its live entries; at most `bytes`.
    pub live_bytes: u64,
    /// Bytes that copies of its live entries take.
    pub moved_bytes: u64,
    /// Whether an index points into it.
    pub has_live: bool,
    /// Writes since its first record.
    pub age: u64,
    /// Whether all of its entries are in the index.
    pub is_ready: bool,
}

impl Candidate {
    /// The bytes that are dead.
    fn dead(&self, is_full: bool) -> u64 {
        self.bytes.saturating_sub(if is_full { self.moved_bytes } else { self.live_bytes })
    }
}

/// The full segments of a lane, oldest first.
#[derive(Clone, Debug)]
pub(super) struct LaneState {
    pub lane: LaneId,
    pub segments: Vec<Candidate>,
}

/// Whether enough of the log is dead.
fn is_due(lanes: &[LaneState], segment_bytes: u64, is_full: bool) -> bool {
    let all = || lanes.iter().flat_map(|lane| &lane.segments);
    let (bytes, dead) =
        all().fold((0, 0), |(bytes, dead), one| (bytes + one.bytes, dead + one.dead(is_full)));
    let (share, least) = match is_full {
        true => (DEAD_MAX_FULL, 1),
        false => (DEAD_MAX, DEAD_SEGMENTS_MIN * segment_bytes),
    };
    dead > 0 && dead >= least && dead.saturating_mul(60) >= bytes.saturating_mul(share)
}

/// The segment to collect next, if one is worth it.
pub(super) fn choose(
    lanes: &[LaneState],
    segment_bytes: u64,
    is_full: bool,
) -> Option<(LaneId, SegmentId)> {
    if !is_due(lanes, segment_bytes, is_full) {
        return None;
    }
    let mut best: Option<(u128, LaneId, SegmentId)> = None;
    for lane in lanes {
        let ready = lane.segments.iter().take(PREFIX_MAX).take_while(|one| one.is_ready);
        let mut first = None;
        let (mut benefit, mut cost) = (0u128, 1u128);
        let (mut taken, mut given) = (0u64, 0u64);
        for one in ready {
            if one.has_live {
                first = first.or(Some(one.segment));
                cost += u128::from(one.bytes) + u128::from(one.live_bytes);
            }
            benefit += u128::from(one.dead(is_full)) * u128::from(one.age.max(1));
            (taken, given) = (taken + one.moved_bytes, given + one.bytes);
            if is_full && taken > given + segment_bytes / 2 {
                break;
            }
            let Some(segment) = first.filter(|_| !is_full || taken < given) else { continue };
            // Scaled, so that small ratios differ.
            let score = benefit.saturating_mul(1 << 20) / cost;
            if score > 0 && best.is_none_or(|(most, ..)| score > most) {
                best = Some((score, lane.lane, segment));
            }
        }
    }
    best.map(|(_, lane, segment)| (lane, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1 << 20;

    /// A lane of segments of which so many percent are live, oldest first, from `age` on.
    fn lane(number: u16, age: u64, live: &[u64]) -> LaneState {
        let of = |(at, live): (u64, &u64)| Candidate {
            segment: SegmentId(at),
            bytes: SEGMENT,
            live_bytes: SEGMENT * live / 100,
            moved_bytes: SEGMENT * live / 98,
            has_live: *live > 0,
            age: age - at,
            is_ready: true,
        };
        LaneState { lane: LaneId(number), segments: (0..).zip(live).map(of).collect() }
    }

    fn chosen(lanes: &[LaneState], is_full: bool) -> Option<(u16, u64)> {
        choose(lanes, SEGMENT, is_full).map(|(lane, segment)| (lane.0, segment.0))
    }

    #[test]
    fn nothing_is_moved_while_most_is_live() {
        assert_eq!(chosen(&[lane(1, 100, &[90; 20])], false), None);
        assert_eq!(chosen(&[lane(1, 100, &[70; 20])], false), None);
        assert_eq!(chosen(&[lane(1, 100, &[60; 20])], false), Some((1, 0)));
        // A full device is collected earlier, but not for nothing.
        assert_eq!(chosen(&[lane(1, 100, &[90; 20])], true), Some((1, 0)));
        assert_eq!(chosen(&[lane(1, 100, &[99; 20])], true), None);
        assert_eq!(chosen(&[lane(1, 100, &[100; 20])], true), None);
        assert_eq!(chosen(&[], true), None);
        // A few segments are not worth it, whatever their state.
        assert_eq!(chosen(&[lane(1, 100, &[50; 3])], false), None);
    }

    #[test]
    fn the_emptier_or_the_older_lane_is_collected_first() {
        let lanes = [lane(1, 100, &[80; 10]), lane(2, 100, &[20; 10])];
        assert_eq!(chosen(&lanes, false), Some((2, 0)));
        let lanes = [lane(1, 1000, &[50; 10]), lane(2, 100, &[50; 10])];
        assert_eq!(chosen(&lanes, false), Some((1, 0)));
        // Old survivors are collected although they are fuller, once they are old enough.
        let lanes = [lane(1, 100_000, &[75; 10]), lane(2, 100, &[30; 10])];
        assert_eq!(chosen(&lanes, false), Some((1, 0)));
    }

    #[test]
    fn live_segments_before_dead_ones_are_moved() {
        let lanes = [lane(1, 100, &[100, 0, 0, 0, 0, 0, 0, 0]), lane(2, 100, &[95; 8])];
        assert_eq!(chosen(&lanes, false), Some((1, 0)));
        // Those without a live entry are freed without a move.
        let lanes = [lane(1, 100, &[0, 0, 0, 0, 100, 0, 0, 0])];
        assert_eq!(chosen(&lanes, false), Some((1, 4)));
    }

    #[test]
    fn segments_with_unflushed_writes_wait() {
        let mut waiting = lane(1, 100, &[10; 10]);
        waiting.segments[0].is_ready = false;
        assert_eq!(chosen(&[waiting.clone()], true), None);
        assert_eq!(chosen(&[waiting, lane(2, 100, &[90; 2])], true), Some((2, 0)));
    }
}

//! Summaries of full segments, by which an open need not read them.
//!
//! A caller that keeps what the records of a segment say, and the segment's summary, gives the summary back
//! at the next open ([`crate::Options::summaries`]). Then the oldest segments of a lane that have one are not
//! read: replay of the lane begins behind them.

use std::collections::BTreeMap;

use base::{Charge, KeyspaceId, LaneId, Result, SegmentId, Seqno, invariant};
use media::Medium;

use crate::name::parse_segment_name;
use crate::pins::Pins;
use crate::retention::SealedSegment;
use crate::start::Start;

/// A full segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its lane, and its number there.
    pub lane: LaneId,
    /// Its number.
    pub segment: SegmentId,
    /// The lane sequence of its Begin.
    pub begin: u64,
    /// No record has a seqno below this one.
    pub first: Seqno,
    /// Written bytes.
    pub bytes: u64,
    /// The keyspaces with records in it, and the seqno after their last one.
    pub pins: Vec<(KeyspaceId, Seqno)>,
}

impl SegmentSummary {
    pub(crate) fn of(lane: LaneId, sealed: &SealedSegment) -> Self {
        Self {
            lane,
            segment: sealed.id,
            begin: sealed.begin,
            first: Seqno::new(sealed.first),
            bytes: sealed.bytes,
            pins: sealed.pins.alive(|_| Seqno::ZERO).collect(),
        }
    }

    pub(crate) fn sealed(&self, charge: Charge) -> SealedSegment {
        let Self { segment, begin, first, bytes, pins: ends, .. } = self;
        let mut pins = Pins::default();
        ends.iter().for_each(|(keyspace, end)| pins.pin(*keyspace, *end));
        let (id, first) = (*segment, first.get());
        SealedSegment { id, begin: *begin, first, bytes: *bytes, pins, charge }
    }
}

/// Of `summaries`, those of the oldest segments of each lane on `medium`, from `start` on, as far as all of
/// them are there. The newest segment of a lane is not among them. None of a lane in which one is missing: a
/// replay of all of them finds that.
///
/// # Errors
/// Those of listing the medium.
pub fn skippable(
    medium: &dyn Medium,
    start: &Start,
    summaries: &[SegmentSummary],
) -> Result<Vec<SegmentSummary>> {
    let mut listed = BTreeMap::<LaneId, BTreeMap<SegmentId, u64>>::new();
    for file in medium.list()? {
        if let Some((lane, segment)) = parse_segment_name(&file.name)
            && segment >= start.of(lane)
        {
            listed.entry(lane).or_default().insert(segment, file.len);
        }
    }
    let mut skipped = Vec::new();
    for (lane, mut segments) in listed {
        segments.pop_last();
        let known = summaries.iter().filter(|it| it.lane == lane && it.segment >= start.of(lane));
        let known: BTreeMap<_, _> = known.map(|it| (it.segment, it)).collect();
        let pairs = segments.iter().zip(&known);
        let there = pairs.map_while(|((id, len), (known, summary))| {
            (id == known && *len >= summary.bytes).then(|| (*summary).clone())
        });
        let there: Vec<_> = there.collect();
        debug_assert!(there.len() <= segments.len(), "only segments that are listed are skipped");
        let next = (segments.keys().nth(there.len()), known.keys().nth(there.len()));
        if !matches!(next, (Some(listed), Some(known)) if known < listed) {
            skipped.extend(there);
        }
    }
    Ok(skipped)
}

/// Where replay begins, if the segments of `summaries` are not read.
pub(crate) fn start_behind(
    medium: &dyn Medium,
    start: &Start,
    summaries: &[SegmentSummary],
) -> Result<Start> {
    let mut behind = start.clone();
    for summary in summaries {
        behind.raise(summary.lane, SegmentId(summary.segment.0 + 1));
    }
    let mut first = BTreeMap::<LaneId, SegmentId>::new();
    for file in medium.list()? {
        if let Some((lane, segment)) = parse_segment_name(&file.name)
            && segment >= behind.of(lane)
        {
            let of = first.entry(lane).or_insert(segment);
            *of = segment.min(*of);
        }
    }
    for lane in summaries.iter().map(|summary| summary.lane) {
        // There is one, unless it was removed meanwhile: then replay says that it is missing.
        let first = first.get(&lane).copied().unwrap_or_else(|| behind.of(lane));
        behind.raise(lane, first);
    }
    invariant!(
        summaries.iter().all(|summary| summary.segment < behind.of(summary.lane)),
        "replay begins behind the segments that are not read"
    );
    Ok(behind)
}

#[cfg(test)]
mod tests {
    use media::{Access, MemoryMedium};

    use super::*;
    use crate::name::segment_name;

    const LANE: LaneId = LaneId(3);

    fn summary(segment: u64) -> SegmentSummary {
        SegmentSummary {
            lane: LANE,
            segment: SegmentId(segment),
            begin: 0,
            first: Seqno::ZERO,
            bytes: 100,
            pins: Vec::new(),
        }
    }

    /// The numbers of the segments that are skipped, and the one at which replay begins.
    fn skipped(listed: &[(u64, u64)], known: &[u64], start: u64) -> (Vec<u64>, u64) {
        let medium = MemoryMedium::new();
        for (segment, len) in listed {
            medium.create(&segment_name(LANE, SegmentId(*segment)), Access::Bytes, *len).unwrap();
        }
        let mut from = Start::new();
        from.raise(LANE, SegmentId(start));
        let known: Vec<_> = known.iter().map(|segment| summary(*segment)).collect();
        let found = skippable(&medium, &from, &known).unwrap();
        let behind = start_behind(&medium, &from, &found).unwrap();
        (found.iter().map(|it| it.segment.0).collect(), behind.of(LANE).0)
    }

    #[test]
    fn the_oldest_known_segments_are_skipped() {
        let listed = [(3, 100), (4, 200), (6, 100), (7, 100)];
        assert_eq!(skipped(&listed, &[2, 3, 4, 6], 3), (vec![3, 4, 6], 7));
        assert_eq!(skipped(&listed, &[3, 4], 3), (vec![3, 4], 6));
        assert_eq!(skipped(&listed, &[3, 4, 6], 4), (vec![4, 6], 7));
        // The newest one is read whatever is known of it.
        assert_eq!(skipped(&listed, &[3, 4, 6, 7], 3), (vec![3, 4, 6], 7));
        assert_eq!(skipped(&listed, &[], 3), (vec![], 3));
        assert_eq!(skipped(&listed, &[4, 6], 3), (vec![], 3));
    }

    #[test]
    fn a_segment_that_is_missing_or_cut_is_left_to_replay() {
        let listed = [(3, 100), (6, 100), (7, 100)];
        assert_eq!(skipped(&listed, &[3, 4, 6], 3), (vec![], 3));
        let listed = [(3, 100), (4, 99), (6, 100), (7, 100)];
        assert_eq!(skipped(&listed, &[3, 4, 6], 3), (vec![3], 4));
    }
}

//! What is known of a log from outside it, and the damage that only this shows.
//!
//! A segment that was cut to nothing, zeroed or removed is no different from a segment that was made ahead
//! of need, or never made, if nothing in the log follows it. The manifest and the tables know more: where
//! the log begins, that it has begun, how far it was durable at a recent time, and a sequence number that it
//! reaches. This is the one place with these rules: an open, a check and a repair all apply them through
//! [`crate::recover`], before anything is written.

use base::{Error, LaneId, Seqno};

use crate::name::segment_name;
use crate::position::{Cut, LANE, Reached};
use crate::scan::{SegmentScan, SegmentState};
use crate::start::Start;

/// See the module.
#[derive(Clone, Debug)]
pub struct Known {
    /// The start of the log, as it was last recorded ([`crate::Log::free`]).
    pub start: Start,
    /// The largest seqno in tables of keyspaces whose writes are all logged. The log is synced up to a write
    /// before a table has it.
    pub logged: Seqno,
    /// The store has keyspaces, or had some. The log has a segment, begun durably, before there is one.
    pub has_keyspaces: bool,
    /// How far the log was durable when that was last recorded. It is recorded once each segment is begun
    /// durably, so the loss of a whole segment is noticed.
    pub reached: Option<Reached>,
    /// The lanes that receive appends.
    pub lanes: Vec<LaneId>,
}

impl Default for Known {
    /// Nothing is known; the log has the lane of flash.
    fn default() -> Self {
        let (start, logged, has_keyspaces, reached) = Default::default();
        Self { start, logged, has_keyspaces, reached, lanes: vec![LANE] }
    }
}

impl Known {
    /// The damage at the beginning of `lane`, given its segments from the start on.
    ///
    /// The segment that a log starts with is begun durably before it is recorded as the start, and stays
    /// until a later one is recorded. From a log without a recorded start, no segment was removed. Other
    /// lanes may end before their start, because nothing is appended to them.
    pub(crate) fn missing_start(&self, lane: LaneId, segments: &[SegmentScan]) -> Option<Error> {
        let first = segments.first().filter(|_| self.lanes.contains(&lane))?;
        let error = |segment| Error::corrupt("commit log").at(segment_name(lane, segment));
        let name = segment_name(lane, first.id);
        match self.start.iter().find(|(of, _)| *of == lane) {
            Some((_, start)) if first.id != start => Some(
                error(start)
                    .expected("the segment that it begins with")
                    .got(format_args!("`{name}`")),
            ),
            Some((_, start)) if is_empty(first) => {
                Some(error(start).expected("the records that the log begins with").got("none"))
            }
            Some(_) => None,
            None => {
                let (begun, begin) = segments.iter().find_map(|it| Some((it.id, it.first?)))?;
                let is_later = self.has_keyspaces && begin.begin.is_some() && begin.sequence > 0;
                is_later.then(|| {
                    error(begun)
                        .expected("an earlier segment, with the first records")
                        .got(format_args!("records from {} on", begin.sequence))
                })
            }
        }
    }

    /// The damage of a lane with records up to `end`, if it is known to have reached a later point.
    pub(crate) fn lost_end(&self, end: &Cut) -> Option<(Error, Reached)> {
        let reached =
            self.reached.filter(|it| it.lane == end.lane && it.sequence > end.sequence)?;
        let error = Error::corrupt("end of the log (I11)")
            .at(segment_name(reached.lane, reached.segment))
            .expected(format_args!("records below {}, which were durable", reached.sequence))
            .got(format_args!("records below {}", end.sequence));
        Some((error, reached))
    }

    /// The damage of a log without a trace in it: `has_begun` says whether each lane that receives appends
    /// has a segment with a Begin, `last` is the last seqno that could be read.
    pub(crate) fn hidden_damage(&self, has_begun: bool, last: Seqno) -> Option<Error> {
        if !self.has_keyspaces {
            return None;
        }
        if !has_begun {
            return Some(match self.lanes.len() {
                1 => Error::corrupt("commit log").expected("a segment").got("none"),
                lanes => Error::corrupt("commit log")
                    .expected(format_args!("a segment in each of {lanes} lanes"))
                    .got("none in one of them"),
            });
        }
        (last < self.logged).then(|| {
            Error::corrupt("end of the log (I11)")
                .expected(format_args!("sequence number {}, which tables hold", self.logged))
                .got(last)
        })
    }
}

/// Whether no record of the segment is left, and none may have been there.
const fn is_empty(found: &SegmentScan) -> bool {
    matches!(found.state, SegmentState::Blank | SegmentState::Unmade(_))
}

//! Moved records: copies of live entries of resident keyspaces, by which old segments become free.
//!
//! They are appended to the last lane, if there are several: the other lanes then hold what writers wrote,
//! and that lane what survived. Entries that are overwritten soon and entries that stay do not share
//! segments, so that fewer bytes are moved.
//!
//! A full device. Segments are kept for this lane, enough for all entries of any segment. Once one of them is
//! used, no other segment is made before there is another in its place ([`Log::reserve`]): the segment that
//! becomes free is that one. Puts leave a twentieth of the device to deletes, which then make segments
//! collectable (`crate::supply`).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use base::{ErrorKind, LaneId, Result, SegmentId, Seqno, broken_invariant};

use super::{LaneOfLog, Log};
use crate::address::Appended;
use crate::group::encoded_bytes;
use crate::options::Batch;
use crate::retention::FullSegment;
use crate::statistics::{LaneStatistics, Statistics};
use crate::summary::SegmentSummary;

/// Writers of the same lane may use up the room that was made for a moved record this often.
const ROOMS_MAX: usize = 3;

impl Log {
    /// Appends moved operations: as [`Log::append_at`], and from the segments that [`Log::reserve`] keeps.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_moved(&self, batch: Batch<'_>) -> Result<Appended> {
        base::unbroken()?;
        batch.check()?;
        self.begin_lacking()?;
        let lane = self.survivors()?;
        let bytes = encoded_bytes(&batch) as u64;
        let mut written = None;
        for _ in 0..ROOMS_MAX {
            lane.combiner.with(|writer| writer.make_reserved_room(bytes))?;
            match lane.combiner.append(&batch) {
                Err(error) if error.kind() == ErrorKind::NoSpace => {}
                appended => {
                    written = Some(appended?);
                    break;
                }
            }
        }
        let written = match written {
            Some(written) => written,
            None => lane.combiner.append(&batch)?,
        };
        self.acknowledge(lane.id, written, &batch)
    }

    /// Does `append`. If it is refused because segments for moved records are made first, makes those, and
    /// does it again.
    pub(super) fn after_reserve<R>(&self, mut append: impl FnMut() -> Result<R>) -> Result<R> {
        for _ in 0..ROOMS_MAX {
            match append() {
                Err(error) if error.kind() == ErrorKind::NoSpace && self.lacks_reserve() => {
                    self.survivors()?.supply.refill_reserve()?;
                }
                appended => return appended,
            }
        }
        append()
    }

    fn lacks_reserve(&self) -> bool {
        self.shared.lacks_reserve.load(Ordering::Relaxed)
    }

    /// The lane of moved records.
    fn survivors(&self) -> Result<&LaneOfLog> {
        self.lanes.last().ok_or_else(|| broken_invariant!("a log has lanes"))
    }

    /// The lane that has only moved records, if the log has several lanes and a resident keyspace.
    #[must_use]
    pub fn lane_of_survivors(&self) -> Option<LaneId> {
        (self.writers_lanes() < self.lanes.len()).then(|| self.lanes.last().map(|lane| lane.id))?
    }

    /// The number of lanes that writers append to.
    pub(super) fn writers_lanes(&self) -> usize {
        let lanes = self.lanes.len();
        lanes - usize::from(lanes > 1 && self.shared.has_resident.load(Ordering::Relaxed))
    }

    /// Keeps segments ready for moved records, with room for all entries of any full segment. While there are
    /// fewer and no space for more, writers get no segment either.
    ///
    /// # Errors
    /// As [`Log::append`]; `NoSpace` without space for them.
    pub fn reserve(&self) -> Result<()> {
        /// A copy of the shortest entry has 20 bytes for 12, and the end of a segment stays unused.
        const COPIES: u64 = 2;
        self.begin_lacking()?;
        let supply = &self.survivors()?.supply;
        let longest = self.retention.longest().div_ceil(supply.segment_bytes()).max(1);
        supply.reserve((COPIES * longest) as usize)
    }

    /// Summaries of the full segments, lane by lane, oldest first.
    #[must_use]
    pub fn summaries(&self) -> Vec<SegmentSummary> {
        self.retention.summaries()
    }

    /// The full segments of each lane, oldest first.
    #[must_use]
    pub fn full_segments(&self) -> BTreeMap<LaneId, Vec<FullSegment>> {
        self.retention.full()
    }

    /// The lanes that receive appends, in the order of their numbers.
    #[must_use]
    pub fn lane_statistics(&self) -> Vec<LaneStatistics> {
        let full = self.retention.full();
        let survivors = self.lane_of_survivors();
        let of = |lane: &LaneOfLog| {
            let mut sum = Statistics::default();
            lane.shared.add_to(&mut sum);
            let full = full.get(&lane.id).map(Vec::as_slice).unwrap_or_default();
            LaneStatistics {
                lane: lane.id,
                is_of_survivors: survivors == Some(lane.id),
                segments: full.len() as u64 + sum.segments_live,
                bytes: full.iter().map(|it| it.bytes).sum::<u64>() + lane.shared.active_bytes(),
                ready: lane.supply.ahead() as u64,
                records: sum.records,
                groups: sum.groups,
                queue: lane.combiner.waiting() as u64,
            }
        };
        self.lanes.iter().map(of).collect()
    }

    /// No record of another segment than the full `segment` of `lane` has a seqno below this one.
    #[must_use]
    pub fn first_except(&self, lane: LaneId, segment: SegmentId) -> Seqno {
        let mut held = self.hold();
        let written = held.writers().map(|writer| writer.first()).min().unwrap_or(u64::MAX);
        let next = self.shared.numbers.next();
        Seqno::new(written.min(next).min(self.retention.first_except(lane, segment)))
    }
}

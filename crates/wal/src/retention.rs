//! Retention: which segments are still needed (I7).
//!
//! The segments of a lane are freed oldest first. So the records of a lane have no gaps, and recovery
//! recognises a segment missing from the middle as damage.
//!
//! The records of a resident keyspace are its only copy of its entries. They keep their segment until the
//! caller has moved the entries to newer records ([`Retention::collected`]), or the keyspace is dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use base::{Charge, KeyspaceId, LaneId, SegmentId, Seqno, invariant};
use parking_lot::Mutex;

use crate::pins::Pins;
use crate::summary::SegmentSummary;

/// A segment that is no longer written.
#[derive(Debug)]
pub(crate) struct SealedSegment {
    pub(crate) id: SegmentId,
    /// The lane sequence of its Begin.
    pub(crate) begin: u64,
    /// No record has a seqno below this one.
    pub(crate) first: u64,
    /// Written bytes.
    pub(crate) bytes: u64,
    pub(crate) pins: Pins,
    /// Given back when the segment is freed.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) charge: Charge,
}

/// The state of a segment with records of resident keyspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentUse {
    /// It is being written.
    Active,
    /// It gets no more records. Those of resident keyspaces have seqnos below this one.
    Full(Seqno),
    /// It was freed.
    Freed,
}

/// A segment that gets no more records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullSegment {
    /// Its number.
    pub segment: SegmentId,
    /// No record has a seqno below this one.
    pub first: Seqno,
    /// The records of resident keyspaces have seqnos below this one; 0 if there are none.
    pub resident_end: Seqno,
    /// Written bytes.
    pub bytes: u64,
    /// Whether no record of a resident keyspace in it is needed: it waits for older ones of its lane.
    pub is_collected: bool,
}

/// See the module. Its lock is a leaf: no other lock is taken and no I/O is done under it.
#[derive(Debug, Default)]
pub(crate) struct Retention(Mutex<RetentionState>);

#[derive(Debug, Default)]
struct RetentionState {
    /// Per lane, oldest first.
    sealed: BTreeMap<LaneId, VecDeque<SealedSegment>>,
    /// The seqno below which a keyspace's records are dead.
    below: HashMap<KeyspaceId, Seqno>,
    /// The keyspaces whose entries stay in the log.
    resident: BTreeSet<KeyspaceId>,
    /// The sealed segments of which no resident keyspace needs a record.
    collected: BTreeSet<(LaneId, SegmentId)>,
}

impl RetentionState {
    fn below(&self, keyspace: KeyspaceId) -> Seqno {
        self.below.get(&keyspace).copied().unwrap_or(Seqno::ZERO)
    }

    /// Whether no resident keyspace needs a record of the segment.
    fn is_collected(&self, lane: LaneId, segment: SegmentId) -> bool {
        self.collected.contains(&(lane, segment))
    }
}

impl Retention {
    /// Adds a lane's newest sealed segment.
    pub(crate) fn add(&self, lane: LaneId, segment: SealedSegment) {
        let mut state = self.0.lock();
        let segments = state.sealed.entry(lane).or_default();
        invariant!(
            segments.back().is_none_or(|newest| newest.id < segment.id),
            "a lane's segments are sealed in the order of their ids"
        );
        segments.push_back(segment);
    }

    /// The entries of `keyspace` stay in the log.
    pub(crate) fn keep(&self, keyspace: KeyspaceId) {
        self.0.lock().resident.insert(keyspace);
    }

    /// No resident keyspace needs a record of the sealed `segment` any more.
    pub(crate) fn collected(&self, lane: LaneId, segment: SegmentId) {
        let mut state = self.0.lock();
        let segments = state.sealed.get(&lane);
        let is_sealed = segments.is_some_and(|it| it.iter().any(|sealed| sealed.id == segment));
        if is_sealed {
            state.collected.insert((lane, segment));
        }
    }

    /// The state of a segment that is not being written.
    pub(crate) fn state_of(&self, lane: LaneId, segment: SegmentId) -> SegmentUse {
        let state = self.0.lock();
        let mut segments = state.sealed.get(&lane).into_iter().flatten();
        let Some(sealed) = segments.find(|sealed| sealed.id == segment) else {
            return SegmentUse::Freed;
        };
        let pins = sealed.pins.alive(|_| Seqno::ZERO);
        let resident = pins.filter(|(keyspace, _)| state.resident.contains(keyspace));
        SegmentUse::Full(resident.map(|(_, end)| end).max().unwrap_or_default())
    }

    /// The full segments of each lane, oldest first.
    pub(crate) fn full(&self) -> BTreeMap<LaneId, Vec<FullSegment>> {
        let state = self.0.lock();
        let of = |lane: LaneId, sealed: &SealedSegment| {
            let pins = sealed.pins.alive(|keyspace| state.below(keyspace));
            let resident = pins.filter(|(keyspace, _)| state.resident.contains(keyspace));
            FullSegment {
                segment: sealed.id,
                first: Seqno::new(sealed.first),
                resident_end: resident.map(|(_, end)| end).max().unwrap_or_default(),
                bytes: sealed.bytes,
                is_collected: state.collected.contains(&(lane, sealed.id)),
            }
        };
        let lanes = state.sealed.iter();
        let of_lane = |(lane, segments): (&LaneId, &VecDeque<SealedSegment>)| {
            (*lane, segments.iter().map(|sealed| of(*lane, sealed)).collect())
        };
        lanes.map(of_lane).collect()
    }

    /// The sealed segments of each lane, oldest first.
    pub(crate) fn summaries(&self) -> Vec<SegmentSummary> {
        let state = self.0.lock();
        let lanes = state.sealed.iter();
        let of = |(lane, sealed): (&LaneId, &VecDeque<SealedSegment>)| -> Vec<_> {
            sealed.iter().map(|sealed| SegmentSummary::of(*lane, sealed)).collect()
        };
        lanes.flat_map(of).collect()
    }

    /// Written bytes of the longest sealed segment.
    pub(crate) fn longest(&self) -> u64 {
        let state = self.0.lock();
        state.sealed.values().flatten().map(|sealed| sealed.bytes).max().unwrap_or(0)
    }

    /// No record of another full segment than `segment` of `lane` has a seqno below this one.
    pub(crate) fn first_except(&self, lane: LaneId, segment: SegmentId) -> u64 {
        let state = self.0.lock();
        let all = state.sealed.iter().flat_map(|(lane, it)| it.iter().map(move |one| (*lane, one)));
        let others = all.filter(|(of, one)| (*of, one.id) != (lane, segment));
        others.map(|(_, one)| one.first).min().unwrap_or(u64::MAX)
    }

    /// The records of `keyspace` below `below` are dead. Those of a resident keyspace die only with it.
    pub(crate) fn flushed(&self, keyspace: KeyspaceId, below: Seqno) {
        let mut state = self.0.lock();
        if state.resident.contains(&keyspace) && below < Seqno::MAX {
            return;
        }
        let old = state.below.entry(keyspace).or_default();
        *old = below.max(*old);
    }

    /// For each lane whose oldest segment is dead: the segment at which the lane could begin, and the
    /// lane sequence of its Begin, which must be durable first. `flushed` is a flush to assume as done.
    /// `active` has each lane that receives appends, with the segment being written; without one, the lane's
    /// newest sealed segment is still needed.
    pub(crate) fn starts(
        &self,
        active: &[(LaneId, Option<(SegmentId, u64)>)],
        flushed: Option<(KeyspaceId, Seqno)>,
    ) -> Vec<(LaneId, SegmentId, u64)> {
        let state = self.0.lock();
        let below = |keyspace| {
            let coming = flushed.filter(|(flushed, _)| *flushed == keyspace);
            coming.map_or(Seqno::ZERO, |(_, below)| below).max(state.below(keyspace))
        };
        let newest = |lane: &LaneId| state.sealed.get(lane).and_then(VecDeque::back);
        let is_newer = |(lane, active): &(LaneId, Option<(SegmentId, u64)>)| {
            active.is_none_or(|(active, _)| newest(lane).is_none_or(|newest| newest.id < active))
        };
        invariant!(
            active.iter().all(is_newer),
            "the segment being written is newer than the sealed ones of its lane"
        );
        let mut starts = Vec::new();
        for (lane, segments) in &state.sealed {
            let is_alive = |sealed: &SealedSegment| {
                let is_collected = state.is_collected(*lane, sealed.id);
                let below = |keyspace| match is_collected && state.resident.contains(&keyspace) {
                    true => Seqno::MAX,
                    false => below(keyspace),
                };
                sealed.pins.alive(below).next().is_some()
            };
            let position = |sealed: &SealedSegment| (sealed.id, sealed.begin);
            let begin = segments.iter().find(|sealed| is_alive(sealed)).map(position);
            let appended = active.iter().find(|(appended, _)| appended == lane);
            let begin = begin.or_else(|| match (segments.back(), appended) {
                (newest, Some((_, active))) => active.or_else(|| newest.map(position)),
                // The lane receives no appends.
                (newest, None) => newest.map(|newest| (SegmentId(newest.id.0 + 1), 0)),
            });
            let is_later =
                |(id, _): &(SegmentId, u64)| segments.front().is_some_and(|oldest| oldest.id < *id);
            invariant!(begin.is_some() || segments.is_empty(), "a lane with segments has a start");
            starts.extend(begin.filter(is_later).map(|(id, begin)| (*lane, id, begin)));
        }
        starts
    }

    /// The oldest sealed segment of `lane`, and the lane sequence of its Begin.
    pub(crate) fn oldest(&self, lane: LaneId) -> Option<(SegmentId, u64)> {
        let state = self.0.lock();
        state.sealed.get(&lane)?.front().map(|sealed| (sealed.id, sealed.begin))
    }

    /// The lane's oldest segment if it is before `start`.
    pub(crate) fn oldest_before(&self, lane: LaneId, start: SegmentId) -> Option<SegmentId> {
        let state = self.0.lock();
        let oldest = state.sealed.get(&lane)?.front()?.id;
        (oldest < start).then_some(oldest)
    }

    /// Notes that `segment`, the oldest of its lane, was removed.
    pub(crate) fn freed(&self, lane: LaneId, segment: SegmentId) {
        let mut state = self.0.lock();
        state.collected.remove(&(lane, segment));
        let oldest = state.sealed.get_mut(&lane).and_then(VecDeque::pop_front);
        invariant!(
            oldest.is_some_and(|oldest| oldest.id == segment),
            "a lane's segments are freed oldest first"
        );
    }

    /// The pins of each lane's oldest segment that are alive, with the seqno up to which to flush. The
    /// pins of `active`, the segments being written, if no segment is sealed. Without those of resident
    /// keyspaces, which a flush does not free.
    pub(crate) fn pinning<'a>(
        &self,
        active: impl IntoIterator<Item = &'a Pins>,
    ) -> Vec<(KeyspaceId, Seqno)> {
        let state = self.0.lock();
        let mut all = Pins::default();
        let mut add = |pins: &Pins| {
            for (keyspace, end) in pins.alive(|keyspace| state.below(keyspace)) {
                if !state.resident.contains(&keyspace) {
                    all.pin(keyspace, end);
                }
            }
        };
        state.sealed.values().filter_map(VecDeque::front).for_each(|oldest| add(&oldest.pins));
        if state.sealed.values().all(VecDeque::is_empty) {
            active.into_iter().for_each(add);
        }
        all.alive(|_| Seqno::ZERO).collect()
    }

    /// The number of sealed segments that are not freed, and their written bytes.
    pub(crate) fn sealed(&self) -> (u64, u64) {
        let state = self.0.lock();
        let segments = state.sealed.values().flatten();
        segments.fold((0, 0), |(count, bytes), segment| (count + 1, bytes + segment.bytes))
    }
}

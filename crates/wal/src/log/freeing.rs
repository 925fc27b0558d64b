//! Removal of the segments that hold no live record, oldest first.

use std::sync::atomic::Ordering;

use base::limits::PAGE_BYTES;
use base::{KeyspaceId, LaneId, Result, SegmentId, Seqno, invariant};

use super::{LaneOfLog, Log};
use crate::name::segment_name;
use crate::retention::SegmentUse;
use crate::shared::{LaneShared, count};
use crate::start::Start;

impl Log {
    /// Notes that the records of `keyspace` below `below` are in tables, and so dead.
    pub fn flushed(&self, keyspace: KeyspaceId, below: Seqno) {
        self.retention.flushed(keyspace, below);
    }

    /// Notes that the entries of `keyspace` stay in the log: no flush makes its records dead. Of several
    /// lanes, the last one gets no record of a writer any more.
    pub fn keep_resident(&self, keyspace: KeyspaceId) {
        self.retention.keep(keyspace);
        self.shared.has_resident.store(true, Ordering::Relaxed);
    }

    /// Notes that no resident keyspace needs a record of `segment` any more: each of its live entries has a
    /// newer record, which is durable. No effect for a segment that is being written.
    pub fn collected(&self, lane: LaneId, segment: SegmentId) {
        self.retention.collected(lane, segment);
    }

    /// The state of `segment` of `lane`.
    #[must_use]
    pub fn use_of(&self, lane: LaneId, segment: SegmentId) -> SegmentUse {
        let writer = self.lanes.iter().find(|it| it.id == lane);
        // A segment that is full in this moment is not taken for a freed one.
        let state = |active: Option<(SegmentId, u64)>| match active {
            Some((active, _)) if active == segment => SegmentUse::Active,
            _ => self.retention.state_of(lane, segment),
        };
        match writer {
            Some(lane) => lane.combiner.with(|writer| state(writer.active_segment())),
            None => state(None),
        }
    }

    /// Notes that the keyspace was dropped: all its records are dead.
    pub fn forget(&self, keyspace: KeyspaceId) {
        self.retention.flushed(keyspace, Seqno::MAX);
    }

    /// The log's start if the records of `keyspace` below `below` were dead, so that a caller can record
    /// the start together with the flush that makes them dead. Empty if no segment could be removed, or
    /// if the Begin at the new start is not durable yet.
    #[must_use]
    pub fn start_once_flushed(&self, keyspace: KeyspaceId, below: Seqno) -> Start {
        let mut start = Start::new();
        for (lane, segment, begin) in self.starts(Some((keyspace, below))) {
            if self.shared_of(lane).is_none_or(|shared| shared.durable_sequence() > begin) {
                start.raise(lane, segment);
            }
        }
        start
    }

    /// As `Retention::starts`.
    fn starts(&self, flushed: Option<(KeyspaceId, Seqno)>) -> Vec<(LaneId, SegmentId, u64)> {
        // The retention must not change between the look at the lanes and the look at it.
        let mut held = self.hold();
        let ids = self.lanes.iter().map(|lane| lane.id);
        let active: Vec<_> = ids.zip(held.writers().map(|lane| lane.active_segment())).collect();
        self.retention.starts(&active, flushed)
    }

    /// The part of the lane `id` that callers read; `None` if it receives no appends.
    fn shared_of(&self, id: LaneId) -> Option<&LaneShared> {
        self.lanes.iter().find(|lane| lane.id == id).map(|lane| &*lane.shared)
    }

    /// The oldest segment in use of a lane, and the lane sequence of its Begin. `None` if there is no
    /// segment.
    fn begins(&self, lane: &LaneOfLog) -> Option<(SegmentId, u64)> {
        lane.combiner
            .with(|writer| self.retention.oldest(lane.id).or_else(|| writer.active_segment()))
    }

    /// Removes the oldest segments as long as every record in them is dead (I7), and returns their
    /// number. Never removes the segment being written; [`Log::rotate`] makes it an older one first.
    ///
    /// Before any removal `record` gets each new start of a lane. It must make the
    /// start durable before it returns, and the next open must get it ([`crate::Options::start`]): a removed
    /// segment may come back with a power cut, and recovery must not read it.
    ///
    /// # Errors
    /// The device's, and those of `record`. Segments removed before the error stay removed; the rest are
    /// kept.
    pub fn free(&self, record: &dyn Fn(&Start) -> Result<()>) -> Result<usize> {
        let mut freeing = self.freeing.lock();
        if freeing.is_damaged || !freeing.stale.is_empty() {
            let mut start = Start::new();
            for lane in &self.lanes {
                if let Some((id, begin)) = self.begins(lane) {
                    self.sync_until(|| lane.shared.durable_sequence() > begin)?;
                    start.raise(lane.id, id);
                }
            }
            if !start.is_empty() {
                record(&start)?;
                freeing.is_damaged = false;
            }
        }
        self.remove_stale(&mut freeing.stale)?;
        let mut start = Start::new();
        for (lane, segment, begin) in self.starts(None) {
            if let Some(shared) = self.shared_of(lane) {
                // The lane always has a durable Begin, so that a missing Begin is damage.
                self.sync_until(|| shared.durable_sequence() > begin)?;
            }
            start.raise(lane, segment);
        }
        if start.is_empty() {
            return Ok(0);
        }
        record(&start)?;
        let mut freed = 0;
        for (lane, start) in start.iter() {
            while let Some(oldest) = self.retention.oldest_before(lane, start) {
                invariant!(
                    oldest < start,
                    "a segment that is removed lies before the log's start (I7)"
                );
                self.medium.remove(&segment_name(lane, oldest))?;
                self.retention.freed(lane, oldest);
                let counted = self.shared_of(lane).or(self.lanes.first().map(|lane| &*lane.shared));
                counted.inspect(|shared| count(&shared.counters.segments_freed, 1));
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// Continues in a new segment, so that the old one can be freed once its records are dead. Returns
    /// the old one's unused space to the device. No effect if nothing was appended to the segment.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn rotate(&self) -> Result<()> {
        self.lanes.iter().try_for_each(|lane| self.rotate_lane(lane))
    }

    fn rotate_lane(&self, lane: &LaneOfLog) -> Result<()> {
        let left = lane.combiner.with(|writer| match writer.begin() {
            Some(_) if writer.is_blank() => Ok(None),
            _ => writer.rotate(0),
        })?;
        let Some(left) = left else { return Ok(()) };
        // Until the next segment's Begin is durable, a shortened segment looks damaged.
        let begin = lane.combiner.with(|writer| writer.begin());
        self.sync_until(|| begin.is_none_or(|begin| lane.shared.durable_sequence() > begin))?;
        left.file.set_len(left.used.next_multiple_of(PAGE_BYTES as u64))
    }

    /// Removes the files that recovery cut off, once the segment that states the cut is durable. A file
    /// that comes back with a power cut is not read: that segment still states the cut, or lies before
    /// the log's start itself.
    pub(crate) fn remove_stale(&self, stale: &mut Vec<String>) -> Result<()> {
        let has_begun = |lane: &LaneOfLog| lane.combiner.with(|writer| writer.begin()).is_some();
        if stale.is_empty() || !self.lanes.iter().all(has_begun) {
            return Ok(());
        }
        while let Some(name) = stale.last() {
            self.medium.remove(name)?;
            stale.pop();
        }
        self.medium.sync_names(&[])
    }
}

//! A lane: the append log of one device, and the segment that is being written.
//!
//! Only the combiner's leader has access. Flow of a group: make room (rotate to the next segment if the
//! group does not fit), store a Mark if one is due, store the group. After [`Lane::sync_point`] the next
//! record begins a new page, so that a written page that holds synced records is never written again
//! (I11).
//!
//! A failed store poisons the log: its effect on the device is unknown until the next recovery. If a
//! segment cannot be made, the group fails before any of its bytes is written, and the next group tries
//! again.

mod full_device;

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{LaneId, Result, SegmentId, Seqno, broken_invariant, invariant};
use media::{File, Purpose};

use crate::combiner::Writer;
use crate::group::Group;
use crate::options::{Batch, Observer};
use crate::pins::Pins;
use crate::position::LogEnd;
use crate::record::{Begin, GAP_BYTES, MARK_BYTES, begin, gap_record, mark};
use crate::retention::{Retention, SealedSegment};
use crate::shared::{Shared, count_exclusive};
use crate::supply::{FreshSegment, Supply};

const PAGE: u64 = PAGE_BYTES as u64;

/// Stores are prepared in steps of this many bytes. The growth listener is called each time a quarter of
/// a step was written.
pub(crate) const PREPARE_STEP_BYTES: u64 = 1 << 20;

/// With fewer bytes than this between two syncs, a sync costs so much more than its store that writing
/// ahead pays.
const FREQUENT_SYNC_BYTES: u64 = 2 * PAGE;

/// Bytes that are written ahead of syncs: at least this many, at most twice as many. A sync that
/// overlaps with the writing ahead waits for it, a few hundred microseconds.
pub(crate) const WRITE_AHEAD_BYTES: u64 = 256 << 10;

/// The preparation that the next stores into a file need, from an offset on.
#[derive(Debug)]
pub(crate) enum Preparation {
    /// Many stores follow.
    Stores(Arc<dyn File>, u64),
    /// Frequent syncs follow.
    Syncs(Arc<dyn File>, u64),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    id: LaneId,
    supply: Arc<Supply>,
    shared: Arc<Shared>,
    retention: Arc<Retention>,
    /// `None` until the first segment after the open is made.
    active: Option<Segment>,
    /// The lane sequence of the next record.
    sequence: u64,
    /// The next seqno.
    next: u64,
    /// The number of seqnos just below `next` that no record covers yet: unlogged batches took them since the
    /// last record, or before the open. The next Batch is stored behind a Gap that covers them, or in a
    /// segment whose Begin does.
    unlogged: u64,
    /// The durable lane sequence that the latest Mark or Begin states.
    marked: u64,
    /// Files of full segments that were written after their last sync.
    unsynced: Vec<Arc<dyn File>>,
    /// Bytes stored since the last sync point.
    unsynced_bytes: u64,
    /// Whether fewer than [`FREQUENT_SYNC_BYTES`] were stored between the last two sync points.
    is_synced_often: bool,
    /// Sees every batch when it is assigned its seqnos.
    observer: Option<Arc<dyn Observer>>,
}

/// The segment being written.
#[derive(Debug)]
struct Segment {
    fresh: FreshSegment,
    /// The lane sequence of its Begin.
    begin: u64,
    /// Offset of the next record.
    tail: u64,
    /// Whether records were stored since the last sync point.
    dirty: bool,
    /// The file is written ahead of syncs up to this offset, or is about to be.
    written_ahead: u64,
    pins: Pins,
}

impl Segment {
    const fn needs_write_ahead(&self) -> bool {
        self.written_ahead < self.tail + WRITE_AHEAD_BYTES
    }
}

/// A segment that receives no more records.
#[derive(Debug)]
pub(crate) struct SegmentTail {
    pub(crate) file: Arc<dyn File>,
    /// Used length of the file, bytes.
    pub(crate) used: u64,
}

/// Syncing these files makes every record before the point durable.
#[derive(Debug)]
pub(crate) struct SyncPoint {
    pub(crate) files: Vec<Arc<dyn File>>,
    pub(crate) sequence: u64,
    pub(crate) last: u64,
}

impl Lane {
    /// A lane whose next record has the lane sequence `sequence` and whose next seqno is `next`. All
    /// earlier records are durable, and hold the seqnos below `stored`. The first Begin covers those between,
    /// which tables may have.
    pub(crate) fn new(
        id: LaneId,
        supply: Supply,
        shared: Arc<Shared>,
        retention: &Arc<Retention>,
        sequence: u64,
        (stored, next): (u64, u64),
    ) -> Self {
        invariant!(stored <= next, "the next seqno is above those of the records");
        Self {
            id,
            supply: Arc::new(supply),
            shared,
            retention: Arc::clone(retention),
            active: None,
            sequence,
            next,
            unlogged: next.saturating_sub(stored),
            marked: 0,
            unsynced: Vec::new(),
            unsynced_bytes: 0,
            is_synced_often: false,
            observer: None,
        }
    }

    /// Makes `observer` see every batch from the next one on.
    pub(crate) fn set_observer(&mut self, observer: Option<Arc<dyn Observer>>) {
        self.observer = observer;
    }

    /// The next seqno.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The seqno of the next Gap or Batch.
    pub(crate) const fn next_stored(&self) -> u64 {
        self.next - self.unlogged
    }

    /// Lets batches go unlogged: continues in a segment that may have Gaps.
    pub(crate) fn allow_gaps(&mut self) -> Result<()> {
        self.shared.check()?;
        if !self.supply.has_gaps() {
            self.supply.allow_gaps()?;
        }
        match &self.active {
            Some(segment) if !segment.fresh.has_gaps => self.rotate(0).map(drop),
            _ => Ok(()),
        }
    }

    /// Assigns seqnos to `batch` without storing it. Returns the first one.
    pub(crate) fn assign(&mut self, batch: &Batch<'_>) -> Result<Seqno> {
        self.shared.check()?;
        let ops = u64::from(batch.ops);
        let first = Seqno::try_from(self.next)?;
        Seqno::try_from(self.next + ops)?;
        invariant!(
            self.active.as_ref().is_none_or(|segment| segment.fresh.has_gaps),
            "a batch goes unlogged only if the segment may have Gaps"
        );
        self.next += ops;
        self.unlogged += ops;
        self.shared.set_last(self.next - 1);
        if let Some(observer) = &self.observer {
            observer.appended(first, batch.body);
        }
        count_exclusive(&self.shared.counters.unlogged_ops, ops);
        Ok(first)
    }

    /// Counts the unlogged batches since the last record as durable if every record is: they have none.
    pub(crate) fn pass_unlogged(&mut self) {
        if self.shared.durable().get() + 1 >= self.next_stored() {
            self.shared.set_durable(0, self.next - 1);
        }
    }

    /// The lane sequence of the segment's Begin; `None` if the lane has no segment yet.
    pub(crate) fn begin(&self) -> Option<u64> {
        self.active.as_ref().map(|segment| segment.begin)
    }

    /// The segment being written, and the lane sequence of its Begin.
    pub(crate) fn active_segment(&self) -> Option<(SegmentId, u64)> {
        self.active.as_ref().map(|segment| (segment.fresh.id, segment.begin))
    }

    /// Leaves seqnos to other lanes.
    #[cfg(test)]
    pub(crate) const fn skip_to(&mut self, next: u64) {
        self.next = next;
    }

    /// The supply of the lane's segments.
    pub(crate) fn supply(&self) -> Arc<Supply> {
        Arc::clone(&self.supply)
    }

    /// Retires the segment without a next one.
    pub(crate) fn close(mut self) {
        if let Some(old) = self.active.take() {
            self.retire(old);
        }
    }

    /// The end of the records appended so far.
    pub(crate) fn end(&self) -> Option<LogEnd> {
        let segment = self.active.as_ref()?;
        invariant!(segment.tail <= segment.fresh.capacity, "a segment's records end in its file");
        Some(LogEnd {
            lane: self.id,
            segment: segment.fresh.id,
            bytes: segment.tail,
            capacity: segment.fresh.capacity,
            last: Seqno::new(self.next_stored() - 1),
        })
    }

    /// The preparation that the next stores need. `None` in the range between many bytes per sync and
    /// few: there a sync would write the pages prepared for stores before they hold records.
    pub(crate) fn preparation(&mut self) -> Option<Preparation> {
        let segment = self.active.as_mut()?;
        let file = Arc::clone(&segment.fresh.file);
        if self.unsynced_bytes >= PREPARE_STEP_BYTES {
            return Some(Preparation::Stores(file, segment.tail));
        }
        (self.is_synced_often && segment.needs_write_ahead()).then(|| {
            segment.written_ahead = segment.tail + 2 * WRITE_AHEAD_BYTES;
            Preparation::Syncs(file, segment.tail)
        })
    }

    /// The pins of the segment being written.
    pub(crate) fn pins(&self) -> Option<&Pins> {
        self.active.as_ref().map(|segment| &segment.pins)
    }

    /// Whether the segment holds only its Begin and Marks.
    pub(crate) fn is_blank(&self) -> bool {
        self.active.as_ref().is_none_or(|segment| segment.pins.is_empty())
    }

    /// Continues in a new segment with room for `bytes`. Returns the old segment's tail.
    ///
    /// The first segment after an open states, durably and before any append, the lane sequence at which
    /// recovery ended. So records that recovery cut off cannot come back, though their seqnos are
    /// assigned again.
    pub(crate) fn rotate(&mut self, bytes: u64) -> Result<Option<SegmentTail>> {
        self.shared.check()?;
        // The header, the Begin, a Mark with the bytes, and a Mark after them.
        let bytes = (MARK_BYTES as u64 + bytes).next_multiple_of(PAGE);
        let fresh = self.supply.take(3 * PAGE + bytes)?;
        self.begin_segment(fresh)
    }

    fn begin_segment(&mut self, fresh: FreshSegment) -> Result<Option<SegmentTail>> {
        invariant!(
            self.active.as_ref().is_none_or(|old| old.fresh.id < fresh.id),
            "segment ids grow in the order of use"
        );
        let opened = self.active.is_none();
        let durable = self.shared.durable_sequence();
        invariant!(durable <= self.sequence, "a Begin vouches for earlier records only");
        let first = Begin { sequence: self.sequence, durable, opened };
        // After an open the log continues behind every seqno that is in use, without a Gap.
        let seqno = if opened { self.next } else { self.next_stored() };
        let record = begin(fresh.seed, seqno, first);
        self.try_store(&fresh, PAGE, &record)?;
        if opened {
            fresh.file.sync(Purpose::Log).map_err(|error| self.shared.poisoned_by(error))?;
            self.unlogged = 0;
            self.shared.set_durable(self.sequence + 1, 0);
        }
        let next = Segment {
            fresh,
            begin: self.sequence,
            // Synced records have their pages to themselves.
            tail: if opened { 2 * PAGE } else { PAGE + record.len() as u64 },
            dirty: !opened,
            written_ahead: 0,
            pins: Pins::default(),
        };
        self.sequence += 1;
        // No record vouches yet for records that became durable since the Begin was encoded: a Mark is
        // due.
        self.marked = if opened { self.shared.durable_sequence() } else { durable };
        self.shared.set_active_bytes(next.tail);
        Ok(self.active.replace(next).map(|old| self.retire(old)))
    }

    fn retire(&mut self, old: Segment) -> SegmentTail {
        let Segment {
            fresh: FreshSegment { id, file, charge, .. }, begin, tail, dirty, pins, ..
        } = old;
        if dirty {
            self.unsynced.push(Arc::clone(&file));
        }
        // No stores follow.
        file.prepare_stores(u64::MAX);
        self.retention.add(self.id, SealedSegment { id, begin, bytes: tail, pins, charge });
        SegmentTail { file, used: tail }
    }

    /// The point up to which every record is stored. The next record begins a new page.
    pub(crate) fn sync_point(&mut self) -> SyncPoint {
        let bytes = std::mem::take(&mut self.unsynced_bytes);
        self.is_synced_often = bytes < FREQUENT_SYNC_BYTES;
        let mut files = std::mem::take(&mut self.unsynced);
        if let Some(segment) = self.active.as_mut().filter(|segment| segment.dirty) {
            files.push(Arc::clone(&segment.fresh.file));
            let page = segment.tail.next_multiple_of(PAGE);
            count_exclusive(&self.shared.counters.padding_bytes, page - segment.tail);
            segment.tail = page;
            segment.dirty = false;
            if self.is_synced_often && segment.needs_write_ahead() {
                self.shared.growth.notify();
            }
        }
        SyncPoint { files, sequence: self.sequence, last: self.next - 1 }
    }

    /// Stores a Mark if a new page begins and the lane is durable beyond the last Mark or Begin.
    pub(crate) fn mark(&mut self) -> Result<()> {
        let durable = self.shared.durable_sequence();
        let Some(segment) = self.active.as_ref() else { return Ok(()) };
        if durable <= self.marked || !segment.tail.is_multiple_of(PAGE) {
            return Ok(());
        }
        self.shared.check()?;
        invariant!(durable <= self.sequence, "a Mark vouches for earlier records only");
        let record = mark(segment.fresh.seed, self.sequence, self.next_stored(), durable);
        self.store(&record, &[])?;
        self.sequence += 1;
        self.marked = durable;
        count_exclusive(&self.shared.counters.marks, 1);
        Ok(())
    }

    /// Stores a Gap for the seqnos of the unlogged batches since the last record, if there are some.
    fn close_gap(&mut self) -> Result<()> {
        let Some(segment) = self.active.as_ref().filter(|_| self.unlogged > 0) else {
            return Ok(());
        };
        let (seed, seqno) = (segment.fresh.seed, self.next_stored());
        self.store(&gap_record(seed, self.sequence, seqno, self.unlogged), &[])?;
        self.sequence += 1;
        self.unlogged = 0;
        count_exclusive(&self.shared.counters.gaps, 1);
        Ok(())
    }

    /// Stores `record`, then `rest`, at the tail.
    fn store(&mut self, record: &[u8], rest: &[u8]) -> Result<()> {
        let Some(segment) = self.active.as_ref() else {
            return Err(broken_invariant!("a record is stored into a segment"));
        };
        let tail = segment.tail;
        let end = tail + record.len() as u64;
        self.try_store(&segment.fresh, tail, record)?;
        if !rest.is_empty() {
            self.try_store(&segment.fresh, end, rest)?;
        }
        if let Some(segment) = self.active.as_mut() {
            let before = segment.tail;
            segment.tail = end + rest.len() as u64;
            self.unsynced_bytes += segment.tail - before;
            if before / (PREPARE_STEP_BYTES / 4) != segment.tail / (PREPARE_STEP_BYTES / 4) {
                self.shared.growth.notify();
            }
            segment.dirty = true;
            self.shared.set_active_bytes(segment.tail);
        }
        Ok(())
    }

    fn try_store(&self, segment: &FreshSegment, at: u64, bytes: &[u8]) -> Result<()> {
        invariant!(at + bytes.len() as u64 <= segment.capacity, "a store ends in its segment");
        let stored = segment.file.store(at, bytes, Purpose::Log);
        stored.map_err(|error| self.shared.poisoned_by(error))
    }

    /// Ensures that the segment has room for a Mark, `bytes` and, after a sync, another Mark. So a Mark
    /// can always vouch for the records synced last.
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        if self.has_room(bytes) {
            return Ok(());
        }
        self.rotate(bytes)?;
        invariant!(self.has_room(bytes), "a new segment has room for its group");
        Ok(())
    }

    /// Whether the segment has room for a Mark, `bytes` and another Mark.
    fn has_room(&self, bytes: u64) -> bool {
        let mark = MARK_BYTES as u64;
        self.active.as_ref().is_some_and(|segment| {
            (segment.tail + mark + bytes).next_multiple_of(PAGE) + mark <= segment.fresh.capacity
        })
    }
}

impl Writer for Lane {
    fn write(&mut self, group: &mut Group, rest: &[u8]) -> Result<Seqno> {
        self.shared.check()?;
        invariant!(!group.is_empty(), "a group that is written has a record");
        Seqno::try_from(self.next + group.ops())?;
        let bytes = (group.image().len() + rest.len()) as u64;
        let gap = if self.unlogged == 0 { 0 } else { GAP_BYTES as u64 };
        self.make_room(gap + bytes)?;
        self.mark()?;
        self.close_gap()?;
        let Some(segment) = self.active.as_ref() else {
            return Err(broken_invariant!("a lane with room has a segment"));
        };
        group.finish(segment.fresh.seed, self.sequence, self.next)?;
        self.store(group.image(), rest)?;
        if let Some(segment) = self.active.as_mut() {
            group.pins(self.next, |keyspace, end| segment.pins.pin(keyspace, Seqno::new(end)));
        }
        let first = Seqno::new(self.next);
        self.sequence += group.len() as u64;
        self.next += group.ops();
        self.shared.set_last(self.next - 1);
        if let Some(observer) = &self.observer {
            let see = |first, body: &[u8]| observer.appended(Seqno::new(first), body);
            group.bodies(first.get(), rest, see);
        }
        let counters = &self.shared.counters;
        count_exclusive(&counters.records, group.len() as u64);
        count_exclusive(&counters.groups, 1);
        count_exclusive(&counters.record_bytes, bytes);
        count_exclusive(&counters.body_bytes, group.body_bytes());
        Ok(first)
    }
}

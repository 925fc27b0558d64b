//! A lane: one of the log's sequences of segments on a device, and the segment that is being written.
//!
//! Only the combiner's leader has access. Flow of a group: make room (rotate to the next segment if the
//! group does not fit), store a Mark if one is due, store the group. After [`Lane::sync_point`] the next
//! record begins a new page, so that a written page that holds synced records is never written again
//! (I11).
//!
//! A fenced lane is on storage-class memory ([`fenced`]): each group begins at a write unit with a Mark, and
//! one fence behind the group makes it durable, so that there is nothing to sync.
//!
//! A failed store poisons the log: its effect on the device is unknown until the next recovery. If a
//! segment cannot be made, the group fails before any of its bytes is written, and the next group tries
//! again.

mod fenced;
mod full_device;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::limits::PAGE_BYTES;
use base::{LaneId, Result, SegmentId, Seqno, broken_invariant, invariant};
use media::{File, Purpose};

use crate::address::Written;
use crate::combiner::Writer;
use crate::group::Group;
use crate::header::UNIT_BYTES;
use crate::numbers::{Numbers, Taken};
use crate::options::Batch;
use crate::pins::Pins;
use crate::position::LogEnd;
use crate::record::{Begin, GAP_BYTES, MARK_BYTES, begin, gap_record, mark};
use crate::retention::{Retention, SealedSegment};
use crate::shared::{LaneShared, count_exclusive};
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
    is_fenced: bool,
    supply: Arc<Supply>,
    shared: Arc<LaneShared>,
    retention: Arc<Retention>,
    /// `None` until the first segment after the open is made.
    active: Option<Segment>,
    /// The lane sequence of the next record.
    sequence: u64,
    /// Above the seqnos of all records of this lane. Other lanes may have lower ones in flight.
    after: u64,
    /// The durable lane sequence that the latest Mark or Begin states.
    marked: u64,
    /// Files of full segments that were written after their last sync.
    unsynced: Vec<Arc<dyn File>>,
    /// Bytes stored since the last sync point.
    unsynced_bytes: u64,
    /// Whether fewer than [`FREQUENT_SYNC_BYTES`] were stored between the last two sync points.
    is_synced_often: bool,
}

/// The segment being written.
#[derive(Debug)]
struct Segment {
    fresh: FreshSegment,
    /// The lane sequence of its Begin.
    begin: u64,
    /// No record has a seqno below this one.
    first: u64,
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
    /// A lane whose next record has the lane sequence `sequence`. All earlier records are durable.
    pub(crate) fn new(
        id: LaneId,
        supply: Supply,
        shared: Arc<LaneShared>,
        retention: &Arc<Retention>,
        sequence: u64,
    ) -> Self {
        Self {
            id,
            is_fenced: supply.is_fenced(),
            supply: Arc::new(supply),
            after: shared.log.numbers.next(),
            shared,
            retention: Arc::clone(retention),
            active: None,
            sequence,
            marked: 0,
            unsynced: Vec::new(),
            unsynced_bytes: 0,
            is_synced_often: false,
        }
    }

    fn numbers(&self) -> &Numbers {
        &self.shared.log.numbers
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
        invariant!(
            self.active.as_ref().is_none_or(|segment| segment.fresh.has_gaps),
            "a batch goes unlogged only if the segment may have Gaps"
        );
        let first = self.numbers().assign(ops, batch.body)?;
        count_exclusive(&self.shared.counters.unlogged_ops, ops);
        Ok(first)
    }

    /// Counts the unlogged batches since the last record as durable if every record is: they have none.
    pub(crate) fn pass_unlogged(&mut self) {
        let numbers = self.numbers();
        if numbers.durable().get() + 1 >= numbers.next_stored() {
            numbers.set_durable(numbers.next() - 1);
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
            last: Seqno::new(self.numbers().next_stored() - 1),
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

    /// No record of the segment being written has a seqno below this one; `u64::MAX` if it has none.
    pub(crate) fn first(&self) -> u64 {
        let written = self.active.as_ref().filter(|segment| !segment.pins.is_empty());
        written.map_or(u64::MAX, |segment| segment.first)
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
        // After an open the log continues behind every seqno that is in use, without a Gap. A lane that
        // begins later must not state that groups in flight in other lanes are settled.
        let seqno = if opened { self.numbers().stored_up_to() + 1 } else { self.after };
        let record = begin(fresh.seed, seqno, first);
        self.try_store(&fresh, PAGE, &record)?;
        let is_durable = opened || self.is_fenced;
        if is_durable {
            fresh.file.sync(Purpose::Log).map_err(|error| self.shared.poisoned_by(error))?;
            if opened {
                self.after = self.after.max(seqno);
                self.numbers().cover(seqno);
            }
            self.shared.set_durable_sequence(self.sequence + 1);
        }
        let next = Segment {
            fresh,
            begin: self.sequence,
            first: seqno,
            // Synced records have their pages, or units, to themselves.
            tail: match (self.is_fenced, opened) {
                (true, _) => PAGE + UNIT_BYTES,
                (false, true) => 2 * PAGE,
                (false, false) => PAGE + record.len() as u64,
            },
            dirty: !is_durable,
            written_ahead: 0,
            pins: Pins::default(),
        };
        self.shared.is_for_deletes.store(false, Ordering::Relaxed);
        self.sequence += 1;
        // No record vouches yet for records that became durable since the Begin was encoded: a Mark is
        // due.
        self.marked = if opened { self.shared.durable_sequence() } else { durable };
        self.shared.set_active_bytes(next.tail);
        Ok(self.active.replace(next).map(|old| self.retire(old)))
    }

    fn retire(&mut self, old: Segment) -> SegmentTail {
        let Segment {
            fresh: FreshSegment { id, file, charge, .. },
            begin,
            first,
            tail,
            dirty,
            pins,
            ..
        } = old;
        if dirty {
            self.unsynced.push(Arc::clone(&file));
        }
        // No stores follow.
        file.prepare_stores(u64::MAX);
        self.retention.add(self.id, SealedSegment { id, begin, first, bytes: tail, pins, charge });
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
                self.shared.log.growth.notify();
            }
        }
        SyncPoint { files, sequence: self.sequence, last: self.numbers().next() - 1 }
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
        let record = mark(segment.fresh.seed, self.sequence, self.after, durable);
        self.store(&record, &[])?;
        self.sequence += 1;
        self.marked = durable;
        count_exclusive(&self.shared.counters.marks, 1);
        Ok(())
    }

    /// Stores a Gap for the seqnos of the unlogged batches since the last record, if there are some.
    fn close_gap(&mut self, taken: Taken) -> Result<()> {
        let Some(segment) = self.active.as_ref().filter(|_| taken.unlogged > 0) else {
            return Ok(());
        };
        let (seed, seqno) = (segment.fresh.seed, taken.first_stored());
        self.store(&gap_record(seed, self.sequence, seqno, taken.unlogged), &[])?;
        self.sequence += 1;
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
                self.shared.log.growth.notify();
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
            let end = segment.tail + mark + bytes;
            // The Mark of the next group of a fenced lane may be in another segment.
            let end = if self.is_fenced { end } else { end.next_multiple_of(PAGE) + mark };
            end <= segment.fresh.capacity
        })
    }
}

impl Lane {
    /// Stores the group with the seqnos `taken`. Returns its first record.
    fn store_group(&mut self, group: &mut Group, rest: &[u8], taken: Taken) -> Result<Written> {
        if self.is_fenced {
            self.vouch(taken)?;
        }
        self.close_gap(taken)?;
        let Some(segment) = self.active.as_ref() else {
            return Err(broken_invariant!("a lane with room has a segment"));
        };
        let first = Seqno::new(taken.first);
        let written = Written { first, segment: segment.fresh.id, offset: segment.tail };
        group.finish(segment.fresh.seed, self.sequence, taken.first)?;
        self.store(group.image(), rest)?;
        if let Some(segment) = self.active.as_mut() {
            group.pins(taken.first, |keyspace, end| segment.pins.pin(keyspace, Seqno::new(end)));
        }
        self.sequence += group.len() as u64;
        self.after = taken.first + group.ops();
        if self.is_fenced {
            self.fence()?;
        }
        Ok(written)
    }
}

impl Writer for Lane {
    fn write(&mut self, group: &mut Group, rest: &[u8]) -> Result<Written> {
        self.shared.check()?;
        invariant!(!group.is_empty(), "a group that is written has a record");
        let bytes = (group.image().len() + rest.len()) as u64;
        let gap = if self.supply.has_gaps() { GAP_BYTES as u64 } else { 0 };
        self.make_room(gap + bytes)?;
        if !self.is_fenced {
            self.mark()?;
        }
        let taken = self.numbers().take(self.shared.index, group.ops(), |first, observer| {
            let see = |first, body: &[u8]| observer.appended(Seqno::new(first), body);
            group.bodies(first, rest, see);
        })?;
        // The seqnos are in flight: if the group is not stored, nothing after it counts.
        let stored = self.store_group(group, rest, taken);
        let written = stored.map_err(|error| {
            let error = self.shared.poisoned_by(error);
            self.numbers().lose(taken, group.ops());
            error
        })?;
        self.numbers().stored(self.shared.index);
        let counters = &self.shared.counters;
        count_exclusive(&counters.records, group.len() as u64);
        count_exclusive(&counters.groups, 1);
        count_exclusive(&counters.record_bytes, bytes);
        count_exclusive(&counters.body_bytes, group.body_bytes());
        Ok(written)
    }
}

//! The collector of the log: moves live entries of resident keyspaces out of old segments, which then are
//! free.
//!
//! A segment is read front to back. Its live entries become records of the lane of survivors; they are
//! durable when the append returns. Then the indexes get their new places, and the segment has no live
//! entry left (`give_up_dead_segments`). A crash at any step leaves the old record, or both: a replay takes
//! the last copy of the newest version (`docs/format/batch.md`).
//!
//! A damaged segment does not stop its lane. What can be read of it is moved at once. If the rest cannot be
//! read by a second collection some time later either, lost entries are written in its place, and the
//! segment is freed like any other.
//!
//! A step of the flush task, between two flushes. It reads at most [`STEP_BYTES`] of records, and a few steps
//! take a millisecond of work each; a flush that waits is done between two steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, ErrorKind, LaneId, Problem, Result, SegmentId, Seqno, invariant};
use tree::events::Event;
use tree::{LogSegment, Moves, TreeContext, Trees};
use wal::{Log, SegmentRecords, SegmentUse};

use super::collect_plan::{Candidate, LaneState, choose};
use super::counters::BackgroundCounters;
use crate::buffers::Buffers;

/// Bytes of records that a step reads, at least one record.
const STEP_BYTES: u64 = 512 << 10;

/// A record of moved entries has about this many bytes.
const RECORD_BYTES: usize = 64 << 10;

/// A lane with a segment that cannot be read is left alone for so many looks.
const LOOKS_AFTER_FAILURE: u32 = 50;

/// See the module.
pub(crate) struct Collector {
    log: Arc<Log>,
    counters: Arc<BackgroundCounters>,
    /// The records of earlier opens are below this seqno.
    opened: Seqno,
    current: Option<Collecting>,
    /// Length of a segment, bytes.
    segment_bytes: u64,
    /// Looks until a failed collection is tried again.
    wait: u32,
    /// The lanes whose collection failed.
    failed: BTreeSet<LaneId>,
    /// The damaged segments that were collected once.
    damaged: BTreeSet<(LaneId, SegmentId)>,
}

/// A segment that is being collected.
struct Collecting {
    records: SegmentRecords,
    segment: Arc<LogSegment>,
    /// Every record that may have an older version than a tombstone of the segment is below this seqno.
    tombstones_end: Seqno,
    gives_up_tombstones: bool,
    /// No version of a resident keyspace in the segment is from here on.
    end: Seqno,
}

impl Collector {
    pub(crate) fn new(
        log: &Arc<Log>,
        segment_bytes: u64,
        counters: &Arc<BackgroundCounters>,
    ) -> Self {
        Self {
            log: Arc::clone(log),
            counters: Arc::clone(counters),
            opened: log.last().plus(1),
            segment_bytes,
            current: None,
            wait: 0,
            failed: BTreeSet::new(),
            damaged: BTreeSet::new(),
        }
    }

    /// Does a step of work. Returns whether there is more.
    pub(crate) fn step(&mut self, context: &TreeContext, trees: &Trees, buffers: &Buffers) -> bool {
        if !trees.all().iter().any(|tree| tree.kind().is_resident()) {
            self.current = None;
            return false;
        }
        // An error is that of a full device, or poisons the log, which every writer then reports.
        let _ = self.log.reserve();
        if self.wait > 0 {
            self.wait -= 1;
        }
        let stepped = match self.current.take() {
            Some(current) => self.collect(current, context, trees),
            None => self.begin(context, trees, buffers),
        };
        stepped.unwrap_or_else(|error| {
            self.counters.collect_failures.add(1);
            if error.kind() != ErrorKind::NoSpace {
                self.wait = LOOKS_AFTER_FAILURE;
            }
            false
        })
    }

    /// Begins with the segment that the plan chooses.
    fn begin(&mut self, context: &TreeContext, trees: &Trees, buffers: &Buffers) -> Result<bool> {
        if self.wait == 0 {
            self.failed.clear();
        }
        let (is_full, segment_bytes) = (self.log.is_full(), self.segment_bytes);
        let lanes = self.lanes(context, trees);
        let chosen = choose(&lanes, segment_bytes, is_full);
        let Some((lane, id)) = chosen else {
            if is_full {
                // What memtables overwrite and delete is dead once they are flushed.
                seal_resident(trees, buffers);
            }
            return Ok(false);
        };
        let Some(segment) = context.segments.of(lane, id) else { return Ok(false) };
        invariant!(segment.id() == (lane, id), "the segment that is collected is the chosen one");
        let bytes = lanes.iter().filter(|it| it.lane == lane).flat_map(|it| &it.segments);
        let bytes = bytes.filter(|it| it.segment == id).map(|it| it.bytes).next().unwrap_or(0);
        let account = context.segments.account();
        let medium = &context.medium;
        let records = SegmentRecords::open(medium, context.store, lane, id, bytes, account)
            .inspect_err(|_| self.note_failed(lane))?;
        let (tombstones_end, gives_up_tombstones) = self.tombstones(lane, id, &segment);
        let SegmentUse::Full(end) = self.log.use_of(lane, id) else { return Ok(false) };
        self.current =
            Some(Collecting { records, segment, tombstones_end, gives_up_tombstones, end });
        Ok(true)
    }

    /// The end below which every older version of a key with a tombstone in the segment is, and whether there
    /// is none left in another segment.
    fn tombstones(&self, lane: LaneId, id: SegmentId, segment: &LogSegment) -> (Seqno, bool) {
        // Those of a replay were in the index before the store was open.
        let end = segment.tombstones_end().unwrap_or(self.opened);
        (end, self.log.first_except(lane, id) >= end)
    }

    /// The full segments of all lanes but a failed one.
    fn lanes(&self, context: &TreeContext, trees: &Trees) -> Vec<LaneState> {
        let flushed_end = flushed_end(context, trees);
        let next = self.log.last().get() + 1;
        let segment_bytes = self.segment_bytes.max(1);
        let full = self.log.full_segments().into_iter();
        let of = |(lane, segments): (LaneId, Vec<wal::FullSegment>)| {
            let candidate = |full: wal::FullSegment| {
                let segment = context.segments.of(lane, full.segment);
                let live = segment.as_ref().map_or(0, |it| it.live_bytes());
                let copies = segment.as_ref().map_or(0, |it| it.copied_bytes());
                // The end of a segment without room for another record stays unused.
                let unused = copies.saturating_mul(RECORD_BYTES as u64) / segment_bytes;
                Candidate {
                    segment: full.segment,
                    bytes: full.bytes,
                    live_bytes: live.min(full.bytes),
                    moved_bytes: copies + unused,
                    has_live: segment.is_some_and(|it| it.live() > 0),
                    age: next.saturating_sub(full.first.get()),
                    is_ready: full.resident_end <= flushed_end && !self.failed.contains(&lane),
                }
            };
            LaneState { lane, segments: segments.into_iter().map(candidate).collect() }
        };
        full.map(of).collect()
    }

    /// Reads some records of the segment, and moves their live entries.
    fn collect(
        &mut self,
        mut current: Collecting,
        context: &TreeContext,
        trees: &Trees,
    ) -> Result<bool> {
        let (lane, id) = current.segment.id();
        if current.segment.live() == 0 || self.log.use_of(lane, id) == SegmentUse::Freed {
            self.counters.collected_segments.add(1);
            return Ok(true);
        }
        let resident_of = |keyspace| {
            let tree = trees.get(keyspace).filter(|tree| !tree.is_dropped())?;
            tree.view().read_context.resident().cloned()
        };
        let begin = current.records.at();
        let mut is_over = false;
        while current.records.at() < begin + STEP_BYTES && !is_over {
            let gives_up = current.gives_up_tombstones;
            let Some(mut moves) = Moves::new(&context.segments, &current.segment, gives_up) else {
                return Ok(true);
            };
            while moves.bytes() < RECORD_BYTES && current.records.at() < begin + STEP_BYTES {
                let Some(batch) =
                    current.records.next_batch().inspect_err(|_| self.note_failed(lane))?
                else {
                    is_over = true;
                    break;
                };
                moves.add(&batch, resident_of)?;
            }
            self.counters.dropped_tombstones.add(moves.given_up());
            self.append(moves, current.tombstones_end, context)?;
        }
        if is_over {
            if current.segment.live() > 0 {
                self.leave_over(&current, context, trees)?;
            }
            self.counters.collected_segments.add(1);
            return Ok(true);
        }
        self.current = Some(current);
        Ok(true)
    }

    /// A segment that was read to its end still has live entries, which are damaged.
    fn leave_over(
        &mut self,
        current: &Collecting,
        context: &TreeContext,
        trees: &Trees,
    ) -> Result<()> {
        let (lane, id) = current.segment.id();
        if self.damaged.insert((lane, id)) {
            let error = left_over(current);
            self.counters.damaged_segments.add(1);
            let problem = Problem::of(&wal::segment_name(lane, id), error.clone());
            context.events.tell(|| Event::DamageFound { problem });
            self.note_failed(lane);
            return Err(error);
        }
        let residents = trees.all().into_iter().filter(|tree| !tree.is_dropped());
        let residents: Vec<_> =
            residents.filter_map(|tree| tree.view().read_context.resident().cloned()).collect();
        let moves = || Moves::new(&context.segments, &current.segment, false);
        let left = moves().map(|it| it.left_over(residents.into_iter())).unwrap_or_default();
        let mut left = left.into_iter().peekable();
        while left.peek().is_some() {
            let Some(mut moves) = moves() else { return Ok(()) };
            while moves.bytes() < RECORD_BYTES
                && let Some(one) = left.next()
            {
                let is_lost = moves.add_left(one, current.end)?;
                self.counters.lost_entries.add(u64::from(is_lost));
            }
            self.append(moves, current.tombstones_end, context)?;
        }
        self.damaged.remove(&(lane, id));
        Ok(())
    }

    fn note_failed(&mut self, lane: LaneId) {
        self.failed.insert(lane);
    }

    /// Appends a record of moved entries, and brings their places into the indexes.
    fn append(&self, moves: Moves, end: Seqno, context: &TreeContext) -> Result<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let (bytes, ops) = (moves.bytes() as u64, moves.batch().ops);
        invariant!(ops > 0, "a record of moved entries has one");
        let appended = self.log.append_moved(moves.batch())?;
        // Every later writer waits for these seqnos.
        context.ring.publish(appended.first, u64::from(ops));
        let moved = moves.install(appended, end)?;
        self.counters.moved_entries.add(moved.entries);
        self.counters.moved_bytes.add(bytes);
        Ok(())
    }
}

/// Why a segment that was read to its end still has live entries.
#[cold]
fn left_over(current: &Collecting) -> Error {
    let (lane, id) = current.segment.id();
    let error = Error::corrupt("log segment")
        .at(wal::segment_name(lane, id))
        .expected("every entry that an index points to");
    let live = current.segment.live();
    match current.records.damage() {
        Some(why) => error.got(format_args!("{live} that cannot be read ({why})")),
        None => error.got(format_args!("{live} not found")),
    }
}

/// Every write to a resident keyspace below this seqno is in its index.
pub(super) fn flushed_end(context: &TreeContext, trees: &Trees) -> Seqno {
    // First: a visible write is in its memtable.
    let mut end = context.ring.visible().plus(1);
    for tree in trees.all().iter().filter(|tree| tree.kind().is_resident() && !tree.is_dropped()) {
        let view = tree.view();
        let unflushed = view.memtables().filter(|memtable| !memtable.is_empty());
        end = unflushed.map(|memtable| memtable.first()).fold(end, Seqno::min);
    }
    end
}

/// Seals the memtables of resident keyspaces: a full device keeps writers from filling them, and segments
/// whose entries are not in an index cannot be collected.
fn seal_resident(trees: &Trees, buffers: &Buffers) {
    for tree in trees.all().iter().filter(|tree| tree.kind().is_resident()) {
        if !tree.view().active.is_empty() {
            // An error means that there is no memory for the next memtable: the next look tries again.
            let _ = buffers.seal(tree);
        }
    }
}

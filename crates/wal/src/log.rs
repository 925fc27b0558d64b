//! The write-ahead log: its lanes, their callers, and its public operations.
//!
//! A log on flash has one lane: callers share its stores and its syncs. A log on storage-class memory has
//! many fenced lanes, because one thread cannot keep such a device busy. A thread appends to the lane of its
//! number. The lanes share the counter of seqnos, and an append returns once every earlier record of every
//! lane is fenced: so acknowledgements are in seqno order, and the end of an acknowledged prefix is durable.
//!
//! Invariants: I1, the record of a batch is in memory that outlives the process before `append` returns.
//! I7, a segment is removed only after every record in it is dead. I11, records that `sync` acknowledged
//! survive any crash, and a batch is whole or absent.
//!
//! Concurrency: any thread may call any method. Lock order: freeing, syncing, lanes in the order of their
//! numbers (see [`crate::combiner`]), supply, retention.
//!
//! Cost: an append is one checksum over the body, one encoding and one store, about the same in total
//! with many threads. It does not allocate. A sync costs one page of padding and one Mark.

mod acknowledge;
mod begin;
mod collecting;
mod freeing;
mod full_device;
mod open;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, KeyspaceId, LaneId, Result, Seqno, broken_invariant, invariant};
use media::{File, Medium, Purpose};
use parking_lot::Mutex;

use crate::address::Appended;
use crate::combiner::{Combiner, Held};
use crate::lane::{Lane, PREPARE_STEP_BYTES, Preparation, SyncPoint, WRITE_AHEAD_BYTES};
use crate::options::{Batch, Observer};
use crate::position::{LogEnd, Reached};
use crate::retention::Retention;
use crate::shared::{LaneShared, Shared, count};
use crate::statistics::Statistics;
use crate::supply::Supply;
use crate::syncer::Syncer;

/// Stores are prepared this many steps ahead: 20 ms of writes at 130 MB/s, during which the background
/// task need not be scheduled.
const PREPARE_STEPS: u64 = 3;

/// See the module.
pub struct Log {
    medium: Arc<dyn Medium>,
    shared: Arc<Shared>,
    retention: Arc<Retention>,
    /// At least one.
    lanes: Box<[LaneOfLog]>,
    is_fenced: bool,
    /// Some of several lanes may have no segment yet, because a device was full at the open. A hint.
    lacks_segments: AtomicBool,
    syncer: Syncer,
    /// Held while segments are removed.
    freeing: Mutex<Freeing>,
    /// Memory of the leader's group and of the records in slots.
    _groups: Charge,
}

/// The work that recovery left to do.
#[derive(Debug)]
struct Freeing {
    /// Names of files to remove.
    stale: Vec<String>,
    /// Whether records were lost to damage, perhaps the first ones: the start must be recorded, or the next
    /// open misses them.
    is_damaged: bool,
}

/// A lane that receives appends.
struct LaneOfLog {
    id: LaneId,
    shared: Arc<LaneShared>,
    supply: Arc<Supply>,
    combiner: Combiner<Lane>,
}

/// All lanes, held in the order of their numbers: nothing is appended, and no seqno is taken.
struct HeldLanes<'a>(Vec<Held<'a, Lane>>);

impl HeldLanes<'_> {
    /// The lanes' writers.
    fn writers(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.0.iter_mut().filter_map(|held| held.writer().ok())
    }
}

impl Log {
    /// Appends a batch, and returns its first seqno. On return the record survives the death of the
    /// process. It survives a power cut once [`Log::durable`] has reached its last seqno.
    ///
    /// # Errors
    /// `Invalid` for a batch outside the limits. `NoSpace` or `Retry` if a new segment is needed and
    /// cannot be made: nothing is written, and a later append may succeed. `Poisoned` if this or an
    /// earlier write failed: the next open replays the batch whole or not at all.
    pub fn append(&self, batch: Batch<'_>) -> Result<Seqno> {
        self.append_at(batch).map(|appended| appended.first)
    }

    /// As [`Log::append`]; returns the address of the record too.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_at(&self, batch: Batch<'_>) -> Result<Appended> {
        base::unbroken()?;
        batch.check()?;
        self.begin_lacking()?;
        let lane = self.lane()?;
        let written = self.after_reserve(|| {
            lane.check_put()?;
            lane.combiner.append(&batch)
        })?;
        self.acknowledge(lane.id, written, &batch)
    }

    /// The lane of the calling thread.
    fn lane(&self) -> Result<&LaneOfLog> {
        self.lanes.get(self.home()).ok_or_else(|| broken_invariant!("a log has lanes"))
    }

    /// The position of the lane of the calling thread.
    fn home(&self) -> usize {
        let lanes = self.writers_lanes();
        if lanes <= 1 { 0 } else { home() % lanes }
    }

    /// Holds all lanes.
    fn hold(&self) -> HeldLanes<'_> {
        HeldLanes(self.lanes.iter().map(|lane| lane.combiner.hold()).collect())
    }

    /// As [`Log::append`], but only if `check` succeeds. `check` gets the seqno that the batch would
    /// have, and nothing is appended between the check and the batch. `check` must be quick and must not
    /// use the log.
    ///
    /// # Errors
    /// As [`Log::append`]. The error of `check`, after which nothing was appended.
    pub fn append_if(
        &self,
        batch: Batch<'_>,
        check: &mut dyn FnMut(Seqno) -> Result<()>,
    ) -> Result<Appended> {
        base::unbroken()?;
        batch.check()?;
        self.begin_lacking()?;
        let (lane, written) = self.after_reserve(|| {
            self.lanes.first().map_or(Ok(()), LaneOfLog::check_put)?;
            let mut held = self.hold();
            // Before the check: it would refuse the batch for seqnos that never become visible.
            self.shared.check()?;
            let next = Seqno::new(self.shared.numbers.next());
            check(next)?;
            let (lane, writer) = (self.lanes.first(), held.0.first_mut());
            let (lane, writer) =
                lane.zip(writer).ok_or_else(|| broken_invariant!("a log has lanes"))?;
            let written = writer.append(&batch)?;
            debug_assert_eq!(written.first, next, "a batch gets the seqno that its check saw");
            Ok((lane.id, written))
        })?;
        self.acknowledge(lane, written, &batch)
    }

    /// Lets batches go unlogged ([`Log::assign`]), from the next segment on, in which the log continues.
    /// Versions before Gaps refuse such a segment as one of a newer version.
    ///
    /// # Errors
    /// As [`Log::append`], and those of the removal of segments made ahead of need.
    pub fn allow_gaps(&self) -> Result<()> {
        self.lanes.iter().try_for_each(|lane| lane.combiner.with(Lane::allow_gaps))
    }

    /// Assigns seqnos to `batch` without logging it, and returns the first one. The batch does not survive
    /// the death of the process. It costs no byte of the log; the next batch that is logged costs one Gap
    /// record more. [`Log::allow_gaps`] must have been called, or its option set.
    ///
    /// # Errors
    /// `Invalid` for a batch outside the limits. `Poisoned` as for [`Log::append`].
    pub fn assign(&self, batch: Batch<'_>) -> Result<Seqno> {
        self.assign_if(batch, &mut |_| Ok(()))
    }

    /// As [`Log::assign`], but only if `check` succeeds; as [`Log::append_if`].
    ///
    /// # Errors
    /// As [`Log::assign`]. The error of `check`, after which nothing was assigned.
    pub fn assign_if(
        &self,
        batch: Batch<'_>,
        check: &mut dyn FnMut(Seqno) -> Result<()>,
    ) -> Result<Seqno> {
        base::unbroken()?;
        batch.check()?;
        let mut held = self.hold();
        self.shared.check()?;
        check(Seqno::new(self.shared.numbers.next()))?;
        let lane = held.0.first_mut();
        lane.ok_or_else(|| broken_invariant!("a log has lanes"))?.writer()?.assign(&batch)
    }

    /// Makes `observer` see every batch from the next one on, in place of the previous observer. Returns
    /// the first seqno of the next batch. Without an observer an append pays one branch.
    pub fn observe(&self, observer: Option<Arc<dyn Observer>>) -> Seqno {
        let _held = self.hold();
        // The next seqno is in range: the last one was.
        self.shared.numbers.observe(observer).unwrap_or(Seqno::MAX)
    }

    /// Returns once every record up to `upto` is durable. Concurrent callers share one device sync.
    ///
    /// # Errors
    /// `Invalid` if `upto` was not appended, `Poisoned` if the log is: a failed sync is final.
    pub fn sync(&self, upto: Seqno) -> Result<()> {
        if upto > self.last() {
            return Err(Error::invalid("seqno to sync")
                .expected(format_args!("at most {}", self.last()))
                .got(upto));
        }
        if self.is_fenced {
            return self.wait_until_stored(upto);
        }
        if self.durable() < upto {
            self.lane()?.combiner.with(|lane| lane.pass_unlogged());
        }
        self.sync_until(|| self.durable() >= upto)
    }

    /// Every record up to this seqno is durable; unlogged batches have none.
    #[must_use]
    pub fn durable(&self) -> Seqno {
        let numbers = &self.shared.numbers;
        if self.is_fenced {
            numbers.set_durable(numbers.stored_up_to());
        }
        numbers.durable()
    }

    /// The durable position, to be recorded outside the log ([`crate::Options::reached`]). `None` while the
    /// Begin of the segment being written is not durable, and for fenced lanes. Costs no sync.
    #[must_use]
    pub fn reached(&self) -> Option<Reached> {
        // Read first: a segment that is begun meanwhile does not change that this one is durable.
        let lane = self.lanes.first().filter(|_| !self.is_fenced)?;
        let (segment, begin) = lane.combiner.with(|writer| writer.active_segment())?;
        let (sequence, last) = (lane.shared.durable_sequence(), self.durable());
        invariant!(last <= self.last(), "only assigned seqnos are durable");
        (sequence > begin).then_some(Reached { lane: lane.id, segment, sequence, last })
    }

    /// The last seqno assigned.
    #[must_use]
    pub fn last(&self) -> Seqno {
        self.shared.numbers.last()
    }

    /// Runs `f` with the next seqno while nothing is being appended: every earlier append has seqnos
    /// below it, every later one at or above it. `f` must not use the log.
    pub fn barrier(&self, f: &mut dyn FnMut(Seqno)) {
        let _held = self.hold();
        f(Seqno::new(self.shared.numbers.next()));
    }

    /// The seqno after the last record: below it, everything is in the log or was unlogged.
    #[must_use]
    pub fn stored_below(&self) -> Seqno {
        let _held = self.hold();
        Seqno::new(self.shared.numbers.next_stored())
    }

    /// The end of the records appended so far, in each lane. A lane without a segment to append to has none:
    /// every record of it lies in a full segment.
    #[must_use]
    pub fn ends(&self) -> Vec<LogEnd> {
        self.hold().writers().filter_map(|lane| lane.end()).collect()
    }

    /// Makes the next segment of each lane ahead of need unless `ahead` are ready. Returns whether it made
    /// one. The engine's background task calls it after [`Log::bytes`] has grown.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn prepare(&self, ahead: usize) -> Result<bool> {
        self.begin_lanes()?;
        let lanes = || self.lanes.iter().take(self.writers_lanes());
        self.after_reserve(|| {
            lanes().try_fold(false, |made, lane| Ok(lane.supply.prepare(ahead)? | made))
        })
    }

    /// Number of segments made ahead of writers' need, in the lane with most of them.
    #[must_use]
    pub fn prepared(&self) -> usize {
        let lanes = self.lanes.iter().take(self.writers_lanes());
        lanes.map(|lane| lane.supply.ahead_of_writers()).max().unwrap_or(0)
    }

    /// The length of the next segment unless a record needs more, bytes, in the lane with the longest.
    #[must_use]
    pub fn next_segment_bytes(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.supply.next_bytes()).max().unwrap_or(0)
    }

    /// Removes the segments made ahead of need beyond the first `ahead` of each lane. Returns the number
    /// removed.
    ///
    /// # Errors
    /// The device's; segments that could not be removed stay ready.
    pub fn give_back(&self, ahead: usize) -> Result<usize> {
        self.lanes.iter().try_fold(0, |removed, lane| Ok(removed + lane.supply.give_back(ahead)?))
    }

    /// Prepares the range after the log's end, as far as the device supports it: a store there then
    /// costs no more than a copy, and, if the log is synced often, a sync there no more than the write.
    /// For a background task that [`Log::on_growth`] wakes. A failure poisons the log.
    pub fn prepare_stores(&self) {
        // Segments of fenced lanes are mapped as a whole when they are made, and need no sync.
        for lane in self.lanes.iter().filter(|_| !self.is_fenced) {
            self.prepare_stores_of(lane);
        }
    }

    fn prepare_stores_of(&self, lane: &LaneOfLog) {
        match lane.combiner.with(Lane::preparation) {
            None => {}
            Some(Preparation::Stores(file, at)) => {
                for step in 1..=PREPARE_STEPS {
                    file.prepare_stores(at + step * PREPARE_STEP_BYTES);
                }
                lane.supply.prepare_stores();
            }
            Some(Preparation::Syncs(file, at)) => {
                self.write_ahead(&*file, at, 2 * WRITE_AHEAD_BYTES);
                if let Some(next) = lane.supply.next() {
                    self.write_ahead(&*next, PAGE_BYTES as u64, WRITE_AHEAD_BYTES);
                }
            }
        }
    }

    /// Writes ahead and syncs, so that the writers' syncs need not wait for those bytes.
    fn write_ahead(&self, file: &dyn File, at: u64, len: u64) {
        if file.write_ahead(at, len, Purpose::Log) == 0 {
            return;
        }
        self.syncer.sync_ahead(|| {
            if let Err(error) = file.sync(Purpose::Log) {
                // The bytes that failed to reach the device may include a record.
                self.shared.poisoned_by(error);
            }
        });
    }

    /// Makes the log call `listener` each time it has grown by some hundred kilobytes, a segment was begun
    /// durably, or the log begins to be synced often. The listener must be quick and must not use the log.
    /// Only the first caller's listener counts.
    pub fn on_growth(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.shared.growth.listen(listener);
    }

    /// The keyspaces that keep the oldest segment alive, each with the seqno up to which it must flush.
    #[must_use]
    pub fn pinning(&self) -> Vec<(KeyspaceId, Seqno)> {
        let mut held = self.hold();
        self.retention.pinning(held.writers().filter_map(|lane| lane.pins()))
    }

    /// Written bytes of the segments in use: the bytes that recovery would read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let active = self.lanes.iter().map(|lane| lane.shared.active_bytes());
        self.retention.sealed().1 + active.sum::<u64>()
    }

    /// Whether a lane on storage-class memory found no space for its last segment. Flushes free some: tables
    /// are on another device.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_fenced && self.lanes.iter().any(|lane| lane.supply.is_full())
    }

    /// Whether puts were refused a segment for lack of space, and there are sealed segments that flushes can
    /// free.
    #[must_use]
    pub fn is_refused_space(&self) -> bool {
        self.lanes.iter().any(|lane| lane.supply.is_full()) && self.retention.sealed().0 > 0
    }

    /// Free bytes on the log's device if that is no storage-class memory; `None` if that is not known.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        if self.is_fenced {
            return None;
        }
        let spaces = self.lanes.iter().filter_map(|lane| lane.supply.space().ok().flatten());
        spaces.map(|space| space.free).min()
    }

    /// Whether the lanes are on storage-class memory.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// Counters since the log was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let sealed = self.retention.sealed().0;
        let mut sum = Statistics { segments_live: sealed, ..Statistics::default() };
        self.lanes.iter().for_each(|lane| lane.shared.add_to(&mut sum));
        sum
    }

    /// The failure that ended writing, if there was one.
    #[must_use]
    pub fn poisoned(&self) -> Option<Error> {
        self.shared.poison().cloned()
    }

    fn sync_until(&self, reached: impl Fn() -> bool) -> Result<()> {
        let settled = || if reached() { Some(Ok(())) } else { self.shared.check().err().map(Err) };
        self.syncer.sync(settled, || self.sync_once(), |point| self.synced(&point))?;
        invariant!(reached(), "a sync makes every record appended before it durable");
        Ok(())
    }

    /// Syncs everything appended so far.
    fn sync_once(&self) -> Result<SyncPoint> {
        invariant!(!self.is_fenced, "a fenced lane is durable once it is stored");
        let lane = self.lane()?;
        let point = lane.combiner.with(Lane::sync_point);
        for file in &point.files {
            file.sync(Purpose::Log).map_err(|error| self.shared.poisoned_by(error))?;
            count(&lane.shared.counters.syncs, 1);
        }
        Ok(point)
    }

    fn synced(&self, point: &SyncPoint) -> Result<()> {
        // If a sync ahead failed, the lost bytes may lie before `point`.
        self.shared.check()?;
        invariant!(Seqno::new(point.last) <= self.last(), "only appended records become durable");
        let lane = self.lane()?;
        let before = lane.shared.durable_sequence();
        lane.shared.set_durable_sequence(point.sequence);
        self.shared.numbers.set_durable(point.last);
        let begin = lane.combiner.with(|writer| {
            // The callers' records are durable whether or not the Mark is written. A Mark that fails poisons
            // the log, and the next append reports that.
            let _ = writer.mark();
            writer.begin()
        });
        if begin.is_some_and(|begin| (before..point.sequence).contains(&begin)) {
            // The listener records that the log has reached another segment.
            self.shared.growth.notify();
        }
        Ok(())
    }
}

/// The number by which the calling thread chooses its lane.
fn home() -> usize {
    #[cfg(test)]
    if let Some(home) = tests::HOME.get() {
        return home;
    }
    base::thread_number()
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("last", &self.last()).field("durable", &self.durable()).finish()
    }
}

/// Lets a test thread append to any lane.
#[cfg(test)]
pub(crate) mod tests {
    thread_local! {
        pub(crate) static HOME: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
    }
}

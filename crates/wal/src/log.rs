//! The write-ahead log: one lane, its callers, and its public operations.
//!
//! Invariants: I1, the record of a batch is in memory that outlives the process before `append` returns.
//! I7, a segment is removed only after every record in it is dead. I11, records that `sync` acknowledged
//! survive any crash, and a batch is whole or absent.
//!
//! Concurrency: any thread may call any method. Lock order: freeing, syncing, lane (see
//! [`crate::combiner`]), supply, retention.
//!
//! Cost: an append is one checksum over the body, one encoding and one store, about the same in total
//! with many threads. It does not allocate. A sync costs one page of padding and one Mark.

mod open;

use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, ErrorKind, KeyspaceId, Result, SegmentId, Seqno, invariant};
use media::{File, Medium, Purpose};
use parking_lot::Mutex;

use crate::combiner::Combiner;
use crate::lane::{Lane, PREPARE_STEP_BYTES, Preparation, SyncPoint, WRITE_AHEAD_BYTES};
use crate::name::segment_name;
use crate::options::{Batch, Observer};
use crate::position::{LANE, LogEnd, Reached};
use crate::retention::Retention;
use crate::shared::{Shared, count};
use crate::start::Start;
use crate::statistics::Statistics;
use crate::supply::Supply;
use crate::syncer::Syncer;

/// Stores are prepared this many steps ahead: 20 ms of writes at 130 MB/s, during which the background
/// task need not be scheduled.
const PREPARE_STEPS: u64 = 3;

/// Other writers may use up the room that was made for deletes this often.
const SHORT_ROOMS_MAX: usize = 3;

/// See the module.
pub struct Log {
    medium: Arc<dyn Medium>,
    shared: Arc<Shared>,
    supply: Arc<Supply>,
    retention: Arc<Retention>,
    combiner: Combiner<Lane>,
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

impl Log {
    /// Appends a batch, and returns its first seqno. On return the record survives the death of the
    /// process. It survives a power cut once [`Log::durable`] has reached its last seqno.
    ///
    /// # Errors
    /// `Invalid` for a batch outside the limits. `NoSpace` or `Retry` if a new segment is needed and
    /// cannot be made: nothing is written, and a later append may succeed. `Poisoned` if this or an
    /// earlier write failed: the next open replays the batch whole or not at all.
    pub fn append(&self, batch: Batch<'_>) -> Result<Seqno> {
        base::unbroken()?;
        batch.check()?;
        self.combiner.append(&batch)
    }

    /// As [`Log::append`], of a batch that only deletes: on a full device it may take half of the space that
    /// segments leave free for flushes ([`crate::Options::leave_bytes`]).
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_deletes(&self, batch: Batch<'_>) -> Result<Seqno> {
        let bytes = batch.body.len() + 5 * (2 + batch.keyspaces.len());
        for _ in 0..SHORT_ROOMS_MAX {
            match self.append(batch) {
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    self.combiner.with(|lane| lane.make_short_room(bytes as u64))?;
                }
                appended => return appended,
            }
        }
        self.append(batch)
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
    ) -> Result<Seqno> {
        base::unbroken()?;
        batch.check()?;
        self.combiner.append_if(&batch, |lane| check(Seqno::new(lane.next())))
    }

    /// Lets batches go unlogged ([`Log::assign`]), from the next segment on, in which the log continues.
    /// Versions before Gaps refuse such a segment as one of a newer version.
    ///
    /// # Errors
    /// As [`Log::append`], and those of the removal of segments made ahead of need.
    pub fn allow_gaps(&self) -> Result<()> {
        self.combiner.with(Lane::allow_gaps)
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
        self.combiner.with(|lane| {
            check(Seqno::new(lane.next()))?;
            lane.assign(&batch)
        })
    }

    /// Makes `observer` see every batch from the next one on, in place of the previous observer. Returns
    /// the first seqno of the next batch. Without an observer an append pays one branch.
    pub fn observe(&self, observer: Option<Arc<dyn Observer>>) -> Seqno {
        self.combiner.with(|lane| {
            lane.set_observer(observer);
            Seqno::new(lane.next())
        })
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
        if self.durable() < upto {
            self.combiner.with(|lane| lane.pass_unlogged());
        }
        self.sync_until(|| self.durable() >= upto)
    }

    /// Every record up to this seqno is durable; unlogged batches have none.
    #[must_use]
    pub fn durable(&self) -> Seqno {
        self.shared.durable()
    }

    /// The durable position, to be recorded outside the log ([`crate::Options::reached`]). `None` while the
    /// Begin of the segment being written is not durable. Costs no sync.
    #[must_use]
    pub fn reached(&self) -> Option<Reached> {
        // Read first: a segment that is begun meanwhile does not change that this one is durable.
        let (segment, begin) = self.combiner.with(|lane| lane.active_segment())?;
        let (sequence, last) = (self.shared.durable_sequence(), self.durable());
        invariant!(last <= self.last(), "only assigned seqnos are durable");
        (sequence > begin).then_some(Reached { lane: LANE, segment, sequence, last })
    }

    /// The last seqno assigned.
    #[must_use]
    pub fn last(&self) -> Seqno {
        self.shared.last()
    }

    /// Runs `f` with the next seqno while nothing is being appended: every earlier append has seqnos
    /// below it, every later one at or above it. `f` must not use the log.
    pub fn barrier(&self, f: &mut dyn FnMut(Seqno)) {
        self.combiner.with(|lane| f(Seqno::new(lane.next())));
    }

    /// The seqno after the last record: below it, everything is in the log or was unlogged.
    #[must_use]
    pub fn stored_below(&self) -> Seqno {
        self.combiner.with(|lane| Seqno::new(lane.next_stored()))
    }

    /// The end of the records appended so far. `None` while the log has no segment to append to, so that
    /// every record lies in a full segment.
    #[must_use]
    pub fn end(&self) -> Option<LogEnd> {
        self.combiner.with(|lane| lane.end())
    }

    /// Notes that the records of `keyspace` below `below` are in tables, and so dead.
    pub fn flushed(&self, keyspace: KeyspaceId, below: Seqno) {
        self.retention.flushed(keyspace, below);
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
        let starts = self
            .combiner
            .with(|lane| self.retention.starts(lane.active_segment(), Some((keyspace, below))));
        let mut start = Start::new();
        for (lane, segment, begin) in starts {
            if lane != LANE || self.shared.durable_sequence() > begin {
                start.raise(lane, segment);
            }
        }
        start
    }

    /// The oldest segment in use, and the lane sequence of its Begin. `None` if there is no segment.
    fn begins(&self) -> Option<(SegmentId, u64)> {
        self.combiner.with(|lane| self.retention.oldest().or_else(|| lane.active_segment()))
    }

    /// Removes the oldest segments as long as every record in them is dead (I7), and returns their
    /// number. Never removes the segment being written; [`Log::rotate`] makes it an older one first.
    ///
    /// Before any removal `record` gets the new start of each lane whose start changes. It must make the
    /// start durable before it returns, and the next open must get it ([`crate::Options::start`]): a removed
    /// segment may come back with a power cut, and recovery must not read it.
    ///
    /// # Errors
    /// The device's, and those of `record`. Segments removed before the error stay removed; the rest are
    /// kept.
    pub fn free(&self, record: &dyn Fn(&Start) -> Result<()>) -> Result<usize> {
        let mut freeing = self.freeing.lock();
        let moves_start = freeing.is_damaged || !freeing.stale.is_empty();
        if let Some((id, begin)) = self.begins().filter(|_| moves_start) {
            self.sync_until(|| self.shared.durable_sequence() > begin)?;
            let mut start = Start::new();
            start.raise(LANE, id);
            record(&start)?;
            freeing.is_damaged = false;
        }
        self.remove_stale(&mut freeing.stale)?;
        let starts = self.combiner.with(|lane| self.retention.starts(lane.active_segment(), None));
        let mut start = Start::new();
        for (lane, segment, begin) in starts {
            if lane == LANE {
                // The log always has a durable Begin, so that a missing Begin is damage.
                self.sync_until(|| self.shared.durable_sequence() > begin)?;
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
                self.medium.remove(&segment_name(lane, oldest))?;
                self.retention.freed(lane, oldest);
                count(&self.shared.counters.segments_freed, 1);
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
        let left = self.combiner.with(|lane| match lane.begin() {
            Some(_) if lane.is_blank() => Ok(None),
            _ => lane.rotate(0),
        })?;
        let Some(left) = left else { return Ok(()) };
        // Until the next segment's Begin is durable, a shortened segment looks damaged.
        let begin = self.combiner.with(|lane| lane.begin());
        self.sync_until(|| begin.is_none_or(|begin| self.shared.durable_sequence() > begin))?;
        left.file.set_len(left.used.next_multiple_of(PAGE_BYTES as u64))
    }

    /// Makes the next segment ahead of need unless `ahead` are ready. Returns whether it made one. The
    /// engine's background task calls it after [`Log::bytes`] has grown.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn prepare(&self, ahead: usize) -> Result<bool> {
        self.combiner.with(|lane| match lane.begin() {
            Some(_) => Ok(()),
            None => lane.rotate(0).map(drop),
        })?;
        self.supply.prepare(ahead)
    }

    /// Number of segments made ahead of need.
    #[must_use]
    pub fn prepared(&self) -> usize {
        self.supply.ahead()
    }

    /// Removes the segments made ahead of need beyond the first `ahead`. Returns the number removed.
    ///
    /// # Errors
    /// The device's; segments that could not be removed stay ready.
    pub fn give_back(&self, ahead: usize) -> Result<usize> {
        self.supply.give_back(ahead)
    }

    /// Prepares the range after the log's end, as far as the device supports it: a store there then
    /// costs no more than a copy, and, if the log is synced often, a sync there no more than the write.
    /// For a background task that [`Log::on_growth`] wakes. A failure poisons the log.
    pub fn prepare_stores(&self) {
        match self.combiner.with(Lane::preparation) {
            None => {}
            Some(Preparation::Stores(file, at)) => {
                for step in 1..=PREPARE_STEPS {
                    file.prepare_stores(at + step * PREPARE_STEP_BYTES);
                }
                self.supply.prepare_stores();
            }
            Some(Preparation::Syncs(file, at)) => {
                self.write_ahead(&*file, at, 2 * WRITE_AHEAD_BYTES);
                if let Some(next) = self.supply.next() {
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
        self.combiner.with(|lane| self.retention.pinning(lane.pins()))
    }

    /// Written bytes of the segments in use: the bytes that recovery would read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.retention.sealed().1 + self.shared.active_bytes()
    }

    /// Counters since the log was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics(self.retention.sealed().0)
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
        let point = self.combiner.with(Lane::sync_point);
        for file in &point.files {
            file.sync(Purpose::Log).map_err(|error| self.shared.poisoned_by(error))?;
            count(&self.shared.counters.syncs, 1);
        }
        Ok(point)
    }

    fn synced(&self, point: &SyncPoint) -> Result<()> {
        // If a sync ahead failed, the lost bytes may lie before `point`.
        self.shared.check()?;
        invariant!(Seqno::new(point.last) <= self.last(), "only appended records become durable");
        let before = self.shared.durable_sequence();
        self.shared.set_durable(point.sequence, point.last);
        let begin = self.combiner.with(|lane| {
            // The callers' records are durable. If the Mark fails, it poisons the log, and the next append
            // reports that.
            let _ = lane.mark();
            lane.begin()
        });
        if begin.is_some_and(|begin| (before..point.sequence).contains(&begin)) {
            // The listener records that the log has reached another segment.
            self.shared.growth.notify();
        }
        Ok(())
    }

    /// Removes the files that recovery cut off, once the segment that states the cut is durable. A file
    /// that comes back with a power cut is not read: that segment still states the cut, or lies before
    /// the log's start itself.
    fn remove_stale(&self, stale: &mut Vec<String>) -> Result<()> {
        if stale.is_empty() || self.combiner.with(|lane| lane.begin()).is_none() {
            return Ok(());
        }
        while let Some(name) = stale.last() {
            self.medium.remove(name)?;
            stale.pop();
        }
        self.medium.sync_names(&[])
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("last", &self.last()).field("durable", &self.durable()).finish()
    }
}

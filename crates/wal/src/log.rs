//! The commit log: one lane, its callers, and what they may ask.
//!
//! Invariants: I1, the record of a batch is in memory that outlives the process before `append`
//! returns. I7, a segment is removed only when every record in it is dead. I11, what `sync`
//! acknowledged survives any crash, and a batch is whole or absent.
//!
//! Concurrency: every method may be called from any thread. Lock order: freeing, syncing, lane
//! (see [`crate::combiner`]), supply, retention.
//!
//! Cost: an append is one checksum over the body, one encoding and one store, about as much for
//! many threads as for one; nothing is allocated. A sync costs one page of padding and one Mark.

use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, ErrorKind, KeyspaceId, LaneId, Result, SegmentId, Seqno};
use media::{File, Medium, Purpose};
use parking_lot::Mutex;

use crate::chain::Source;
use crate::combiner::Combiner;
use crate::lane::{AHEAD_BYTES, Ahead, Lane, SYNCS_AHEAD_BYTES, SyncPoint};
use crate::name::segment_name;
use crate::options::{Batch, Observer, Options, SEGMENT_BYTES_MIN};
use crate::recover::{self, Recovery, Replay, settle, trim};
use crate::retention::Retention;
use crate::shared::{Shared, count};
use crate::start::Start;
use crate::statistics::Statistics;
use crate::supply::Supply;
use crate::syncer::Syncer;

/// Stores are prepared so many steps ahead: 20 ms of writing, at 130 MB/s, in which whoever prepares
/// them need not get a turn.
const AHEAD_STEPS: u64 = 3;

/// The lane that is appended to.
pub(crate) const LANE: LaneId = LaneId(0);

/// No segment has a larger number. A name with one was made by no log.
const SEGMENT_MAX: u64 = 1 << 62;

/// The most bytes of records copied together; a larger record is stored without a copy.
const GROUP_BYTES_MAX: u64 = 256 << 10;

/// A point in the log. What lies before it is never written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The lane that is appended to.
    pub lane: LaneId,
    /// The segment being written: those of the lane before it are full.
    pub segment: SegmentId,
    /// The bytes of it up to the point.
    pub bytes: u64,
    /// The length of its file, bytes: zeros behind the point.
    pub capacity: u64,
    /// The last sequence number before the point.
    pub last: Seqno,
}

/// See the module.
pub struct Log {
    medium: Arc<dyn Medium>,
    shared: Arc<Shared>,
    supply: Arc<Supply>,
    retention: Arc<Retention>,
    combiner: Combiner<Lane>,
    syncer: Syncer,
    /// Held while segments are removed; what recovery left to remove.
    freeing: Mutex<Vec<String>>,
    /// What the combiner copies: a group, and as much again in slots.
    _groups: Charge,
}

impl Log {
    /// Opens the log on `medium`, replaying what is there.
    ///
    /// `from` says below which seqno a keyspace's records are in tables, or that the keyspace was
    /// dropped. `replay` gets the first seqno and the body of every record that some keyspace
    /// still needs, in order.
    ///
    /// What is replayed is durable before it is replayed, and what was cut off never comes back.
    /// Where the device has no space for a new segment, the log opens all the same, and appends
    /// fail until there is.
    ///
    /// # Errors
    /// `Invalid` for segments of another store or a newer version, `Corrupt` where records that
    /// were durable are damaged and recovery is strict, whatever `replay` returns, and the
    /// device's.
    pub fn open(
        medium: Arc<dyn Medium>,
        options: Options,
        account: &Account,
        from: &dyn Fn(KeyspaceId) -> Option<Seqno>,
        replay: &mut dyn FnMut(Seqno, &[u8]) -> Result<()>,
    ) -> Result<(Self, Recovery)> {
        options.check()?;
        let group_bytes = GROUP_BYTES_MAX.min(options.segment_bytes / 4);
        // A group and what waits to be one, in vectors that may be half empty.
        let groups = account.charge(4 * group_bytes)?;
        let source = Source {
            medium: Arc::clone(&medium),
            store: Some(options.store),
            purpose: Purpose::Replay,
            account: account.clone(),
            recover: options.recover,
            start: options.start,
        };
        recover::remove_freed(&source)?;
        recover::make_durable(&source, LANE)?;
        let retention = Arc::new(Retention::default());
        let mut sink = Replay { from, record: replay, retention: &retention, below: Vec::new() };
        let (chains, mut recovery, next) = recover::replay(&source, LANE, &mut sink)?;
        let next = next.max(options.floor.get() + 1);
        // There is always a seqno behind the last.
        recovery.last = Seqno::try_from(next)?.before();

        let shared = Arc::new(Shared::default());
        shared.set_last(next - 1);
        let (mut writer, mut stale) = (None, Vec::new());
        for chain in chains {
            let newest = chain.segments.last().map_or(0, |found| found.id.0);
            let identity = (options.store, chain.lane);
            let appended = chain.lane == LANE;
            let shared = if appended { Arc::clone(&shared) } else { Arc::default() };
            let bytes = if appended { options.segment_bytes } else { SEGMENT_BYTES_MIN };
            // Far below the largest, so that there always is a next one.
            let id = newest.checked_add(1).filter(|id| *id <= SEGMENT_MAX).ok_or_else(|| {
                Error::corrupt("log segment's number")
                    .expected(format_args!("one below {SEGMENT_MAX}"))
                    .got(newest)
            })?;
            // Behind the start even where all of the log was lost: what lies before is not read.
            let id = id.max(source.start.of(chain.lane).0);
            let bytes = (bytes, options.leave_bytes);
            let supply = Supply::new(&medium, identity, bytes, id, account, &shared);
            let sequence = chain.sequence();
            let torn = chain.torn().is_some();
            let mut unused = Vec::new();
            let mut tail = settle(chain, &source, &retention, &mut stale, &mut unused)?;
            // After damage the rest stays where it is, for whoever wants to look at it.
            if recovery.damage.is_some() {
                tail = None;
            }
            shared.set_durable(sequence, next - 1);
            let mut lane = Lane::new(identity.1, supply, shared, &retention, sequence, next);
            let mut started = lane.start();
            let is_full = |started: &Result<()>| {
                started.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace)
            };
            if is_full(&started) && recovery.damage.is_none() && !unused.is_empty() {
                // Nothing of them can come back but themselves, as empty as they are.
                unused.retain(|name| medium.remove(name).is_err());
                started = lane.start();
            }
            stale.append(&mut unused);
            if is_full(&started)
                && let Some(last) = tail.take_if(|_| !torn)
                && lane.end_short(&last)?
            {
                // What the last segment did not use may be enough.
                started = lane.start();
            }
            match started {
                Ok(()) => trim(tail)?,
                Err(error) if appended && error.kind() == ErrorKind::NoSpace => {}
                Err(error) => return Err(error),
            }
            if appended {
                writer = Some(lane);
            } else {
                // Nothing is appended to other lanes: they only learn where they end.
                lane.close();
            }
        }
        let Some(writer) = writer else {
            return Err(Error::closed("commit log without a lane"));
        };
        let log = Self {
            medium,
            shared,
            supply: writer.supply(),
            retention,
            combiner: Combiner::new(writer, usize::try_from(group_bytes).unwrap_or(usize::MAX)),
            syncer: Syncer::default(),
            freeing: Mutex::new(stale),
            _groups: groups,
        };
        // What is damaged goes with what was replayed, once that is in tables.
        if recovery.damage.is_none() {
            log.remove_stale(&mut log.freeing.lock())?;
        }
        Ok((log, recovery))
    }

    /// Appends a batch; its first seqno. When this returns, the record survives the death of the
    /// process; it survives a power cut once [`Log::durable`] has reached its last seqno.
    ///
    /// # Errors
    /// `Invalid` for a batch outside the limits, `NoSpace` or `Retry` where a new segment is
    /// needed and cannot be made (nothing is written, a later append may succeed), `Poisoned`
    /// where this or an earlier write failed: then the batch may or may not come back after the
    /// next open, whole.
    pub fn append(&self, batch: Batch<'_>) -> Result<Seqno> {
        base::unbroken()?;
        batch.check()?;
        self.combiner.append(&batch)
    }

    /// As [`Log::append`], but only if `check` agrees: it is called with the seqno the batch would
    /// have, and nothing is appended between its answer and the batch. `check` must be quick and
    /// must not use the log.
    ///
    /// # Errors
    /// As [`Log::append`]; `check`'s, and then nothing was appended.
    pub fn append_if(
        &self,
        batch: Batch<'_>,
        check: &mut dyn FnMut(Seqno) -> Result<()>,
    ) -> Result<Seqno> {
        base::unbroken()?;
        batch.check()?;
        self.combiner.append_if(&batch, |lane| check(Seqno::new(lane.next())))
    }

    /// Has `observer` see every batch from the next on, in place of the one before; the next
    /// batch's first seqno. While there is none, an append pays one branch for it.
    pub fn observe(&self, observer: Option<Arc<dyn Observer>>) -> Seqno {
        self.combiner.with(|lane| {
            lane.set_observer(observer);
            Seqno::new(lane.next())
        })
    }

    /// Returns once everything up to `upto` is durable. Callers share one device sync.
    ///
    /// # Errors
    /// `Invalid` where `upto` was not appended, `Poisoned` where the log is: a failed sync is
    /// final.
    pub fn sync(&self, upto: Seqno) -> Result<()> {
        if upto > self.last() {
            return Err(Error::invalid("seqno to sync")
                .expected(format_args!("at most {}", self.last()))
                .got(upto));
        }
        self.sync_until(|| self.durable() >= upto)
    }

    /// Everything up to this seqno is durable.
    #[must_use]
    pub fn durable(&self) -> Seqno {
        self.shared.durable()
    }

    /// The last seqno appended.
    #[must_use]
    pub fn last(&self) -> Seqno {
        self.shared.last()
    }

    /// Runs `f` with the next seqno while nothing is being appended: every earlier append has
    /// seqnos below it, every later one at or above it. `f` must not use the log.
    pub fn barrier(&self, f: &mut dyn FnMut(Seqno)) {
        self.combiner.with(|lane| f(Seqno::new(lane.next())));
    }

    /// Where everything appended so far ends; `None` while the log has no segment to append to, and
    /// every record lies in segments that are full.
    #[must_use]
    pub fn end(&self) -> Option<LogEnd> {
        self.combiner.with(|lane| lane.end())
    }

    /// The records of `keyspace` below `below` are in tables: they are dead.
    pub fn flushed(&self, keyspace: KeyspaceId, below: Seqno) {
        self.retention.flushed(keyspace, below);
    }

    /// The keyspace was dropped: all its records are dead.
    pub fn forget(&self, keyspace: KeyspaceId) {
        self.retention.flushed(keyspace, Seqno::MAX);
    }

    /// Where the log could begin once [`Log::flushed`] was told that the records of `keyspace` below
    /// `below` are dead: for whoever is about to record that, to record this with it. Empty where
    /// nothing could go, and where what it would begin with is not durable yet.
    #[must_use]
    pub fn start_once_flushed(&self, keyspace: KeyspaceId, below: Seqno) -> Start {
        let starts =
            self.combiner.with(|lane| self.retention.starts(lane.begun(), Some((keyspace, below))));
        let mut start = Start::new();
        for (lane, segment, begin) in starts {
            if lane != LANE || self.shared.durable_sequence() > begin {
                start.raise(lane, segment);
            }
        }
        start
    }

    /// The oldest segment that is kept, and the lane sequence of its Begin; none while there is none.
    fn begins(&self) -> Option<(SegmentId, u64)> {
        self.combiner.with(|lane| self.retention.oldest().or_else(|| lane.begun()))
    }

    /// Removes the oldest segments as long as every record in them is dead (I7); how many. Never
    /// the one being written: [`Log::rotate`] makes it an older one.
    ///
    /// `record` is told before anything is removed where the log then begins, of the lanes where it
    /// changes. When it returns, that is durable, and the next open is told ([`Options::start`]): a
    /// removed segment may come back with a power cut, and is not read then.
    ///
    /// # Errors
    /// The device's, and `record`'s. What was removed stays counted, the rest is kept.
    pub fn free(&self, record: &dyn Fn(&Start) -> Result<()>) -> Result<usize> {
        let mut stale = self.freeing.lock();
        if let Some((id, begin)) = self.begins().filter(|_| !stale.is_empty()) {
            self.sync_until(|| self.shared.durable_sequence() > begin)?;
            let mut start = Start::new();
            start.raise(LANE, id);
            record(&start)?;
        }
        self.remove_stale(&mut stale)?;
        let starts = self.combiner.with(|lane| self.retention.starts(lane.begun(), None));
        let mut start = Start::new();
        for (lane, segment, begin) in starts {
            if lane == LANE {
                // The log never is without a durable Begin, so that a missing one is damage.
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
                self.retention.freed(lane);
                count(&self.shared.counters.segments_freed, 1);
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// Goes on in a new segment, so that the old one can be freed once its records are dead. No
    /// effect where nothing was appended to it. Gives back the space that it had left.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn rotate(&self) -> Result<()> {
        let left = self.combiner.with(|lane| match lane.begin() {
            Some(_) if lane.is_blank() => Ok(None),
            _ => lane.rotate(0),
        })?;
        let Some((file, tail)) = left else { return Ok(()) };
        // Until the next segment's Begin is durable, a short one would look damaged.
        let begin = self.combiner.with(|lane| lane.begin());
        self.sync_until(|| begin.is_none_or(|begin| self.shared.durable_sequence() > begin))?;
        file.set_len(tail.next_multiple_of(PAGE_BYTES as u64))
    }

    /// Makes the next segment ahead of need, unless `ahead` are there already; whether it did. The
    /// engine calls it from a background task when [`Log::bytes`] has grown.
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

    /// How many segments are made ahead of need.
    #[must_use]
    pub fn prepared(&self) -> usize {
        self.supply.ahead()
    }

    /// Removes the segments made ahead of need beyond the first `ahead`, and returns their space; how many.
    ///
    /// # Errors
    /// The device's; what could not be removed stays ahead.
    pub fn give_back(&self, ahead: usize) -> Result<usize> {
        self.supply.give_back(ahead)
    }

    /// Has stores in front of the log's end cost no more than a copy, or syncs of them no more than
    /// writing them where the log is synced often, as far as the device can do something about it. For
    /// a background task that [`Log::on_growth`] wakes. What fails poisons the log.
    pub fn prepare_stores(&self) {
        match self.combiner.with(Lane::ahead) {
            None => {}
            Some(Ahead::Stores(file, at)) => {
                for step in 1..=AHEAD_STEPS {
                    file.prepare_stores(at + step * AHEAD_BYTES);
                }
                self.supply.prepare_stores();
            }
            Some(Ahead::Syncs(file, at)) => {
                self.write_ahead(&*file, at, 2 * SYNCS_AHEAD_BYTES);
                if let Some(next) = self.supply.next() {
                    self.write_ahead(&*next, PAGE_BYTES as u64, SYNCS_AHEAD_BYTES);
                }
            }
        }
    }

    /// Synced here, so that the writers' syncs wait for little of it.
    fn write_ahead(&self, file: &dyn File, at: u64, len: u64) {
        if file.write_ahead(at, len, Purpose::Log) == 0 {
            return;
        }
        self.syncer.sync_ahead(|| {
            if let Err(error) = file.sync(Purpose::Log) {
                // What failed to reach the device may have been a record.
                self.shared.poisoned_by(error);
            }
        });
    }

    /// Has `tell` called whenever the log has grown by some hundred kilobytes, or begins to be synced often:
    /// it must be quick, and must not use the log. The first caller's stays.
    pub fn on_growth(&self, tell: Box<dyn Fn() + Send + Sync>) {
        self.shared.ahead.set(tell);
    }

    /// The keyspaces that keep the oldest segment alive, each with the seqno to flush below.
    #[must_use]
    pub fn pinning(&self) -> Vec<(KeyspaceId, Seqno)> {
        self.combiner.with(|lane| self.retention.pinning(lane.pins()))
    }

    /// Written bytes of the segments in use: what recovery would read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.retention.sealed().1 + self.shared.active_bytes()
    }

    /// Counters since the log was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics(self.retention.sealed().0)
    }

    /// The failure that ended writing, if one did.
    #[must_use]
    pub fn poisoned(&self) -> Option<Error> {
        self.shared.poison().cloned()
    }

    fn sync_until(&self, reached: impl Fn() -> bool) -> Result<()> {
        let settled = || if reached() { Some(Ok(())) } else { self.shared.check().err().map(Err) };
        self.syncer.sync(settled, || self.sync_once(), |point| self.synced(&point))
    }

    /// Syncs everything appended so far.
    fn sync_once(&self) -> Result<SyncPoint> {
        let point = self.combiner.with(Lane::seal);
        for file in &point.files {
            file.sync(Purpose::Log).map_err(|error| self.shared.poisoned_by(error))?;
            count(&self.shared.counters.syncs, 1);
        }
        Ok(point)
    }

    fn synced(&self, point: &SyncPoint) -> Result<()> {
        // Where a sync ahead failed, what was lost may be of before `point`.
        self.shared.check()?;
        self.shared.set_durable(point.sequence, point.last);
        // The callers have what they asked for. Should the Mark fail, the log is poisoned by it,
        // and the next append says so.
        let _ = self.combiner.with(Lane::mark);
        Ok(())
    }

    /// Removes what recovery cut off, once the segment that says so is durable. What comes back with a power
    /// cut is not read, as that segment still says so or lies before the log's start itself.
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

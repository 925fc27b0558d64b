//! The open of a log: replays every lane, then begins a new segment in each.
//!
//! The new segment's Begin states, durably, the lane sequence at which replay ended (I11). If the device
//! has no space for the segment, the open removes empty segments made ahead of need, then cuts the segment
//! in which replay ended to its used length. If there is still no space, the log opens without a segment
//! to append to.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::{Account, Error, ErrorKind, KeyspaceId, Result, Seqno, broken_invariant, invariant};
use media::{Medium, Purpose};
use parking_lot::Mutex;

use super::{Freeing, LaneOfLog, Log};
use crate::address::Appended;
use crate::chain::Chain;
use crate::combiner::Combiner;
use crate::lane::{Lane, SegmentTail};
use crate::options::{Options, SEGMENT_BYTES_MIN};
use crate::recover::{self, Recovery, ReplaySink, settle, trim};
use crate::retention::Retention;
use crate::shared::{LaneShared, Shared};
use crate::source::Source;
use crate::summary::start_behind;
use crate::supply::{SEGMENT_MEMORY, SegmentSpec, Supply};
use crate::syncer::Syncer;

/// No segment has a larger number: no log creates a file named so.
const SEGMENT_MAX: u64 = 1 << 62;

/// Most bytes of records that are copied into one group; a larger record is stored without a copy.
const GROUP_BYTES_MAX: u64 = 256 << 10;

impl Log {
    /// Opens the log on `medium`, and replays its records.
    ///
    /// `from` returns the seqno below which a keyspace's records are in tables, or `None` if the keyspace
    /// was dropped. `replay` gets the first seqno, the address and the body of every record that some
    /// keyspace still needs, in seqno order.
    ///
    /// Records are made durable before they are replayed, and a tail that was cut off never comes back. If
    /// the device has no space for a new segment, the log opens all the same, and appends fail until there
    /// is space.
    ///
    /// # Errors
    /// `Invalid` for segments of another store or a newer version, `Corrupt` if durable records are
    /// damaged and recovery is strict, the errors of `replay`, and the device's.
    pub fn open(
        medium: Arc<dyn Medium>,
        options: Options,
        account: &Account,
        from: &dyn Fn(KeyspaceId) -> Option<Seqno>,
        replay: &mut dyn FnMut(Appended, &[u8]) -> Result<()>,
    ) -> Result<(Self, Recovery)> {
        options.check()?;
        let group_bytes = GROUP_BYTES_MAX.min(options.segment_bytes / 4);
        // Each leader's group and the records in slots, in vectors that may be half empty.
        let groups = account.charge(4 * group_bytes * options.lanes.len() as u64)?;
        let mut source = Source {
            medium: Arc::clone(&medium),
            store: Some(options.store),
            purpose: Purpose::Replay,
            account: account.clone(),
            recover: options.recover,
            known: options.known(),
        };
        recover::remove_freed(&source)?;
        source.known.start = start_behind(&*medium, &options.start, &options.summaries)?;
        recover::make_durable(&source)?;
        let retention = Arc::new(Retention::default());
        let mut sink =
            ReplaySink { from, record: replay, retention: &retention, below: Vec::new() };
        options.summaries.iter().flat_map(|it| &it.pins).for_each(|(keyspace, _)| {
            sink.below(*keyspace);
        });
        let (chains, mut recovery, stored) = recover::replay(&source, &mut sink)?;
        // 0 for a log without records.
        let stored = stored.max(1);
        let next = stored.max(options.floor.get() + 1);
        // A log that used up the seqnos is refused: there must be one for the next write.
        recovery.last = Seqno::try_from(next)?.before();

        let (ids, is_fenced) = (options.lanes.clone(), options.is_fenced);
        let shared = Shared::new(ids.len(), stored, next);
        let is_damaged = recovery.damage.is_some();
        let mut opening = Opening { options, source, retention, is_damaged, stale: Vec::new() };
        let mut lanes: Vec<(usize, LaneOfLog)> = Vec::with_capacity(ids.len());
        for chain in chains {
            let Some(index) = ids.iter().position(|id| *id == chain.lane) else {
                // Other lanes receive no appends: their new segment only states where they end.
                let alone = LaneShared::new(&Shared::new(1, next, next), 0);
                opening.open_lane(chain, &alone)?.close();
                continue;
            };
            let (id, shared) = (chain.lane, LaneShared::new(&shared, index));
            let writer = opening.open_lane(chain, &shared)?;
            let supply = writer.supply();
            let bytes = usize::try_from(group_bytes).unwrap_or(usize::MAX);
            let combiner = Combiner::new(writer, bytes);
            lanes.push((index, LaneOfLog { id, shared, supply, combiner }));
        }
        if lanes.len() != ids.len() {
            return Err(broken_invariant!("replay returns a chain for each lane of appends"));
        }
        lanes.sort_by_key(|(index, _)| *index);
        let lacks_segments = lanes.len() > 1
            && lanes.iter().any(|(_, lane)| lane.combiner.with(|writer| writer.begin().is_none()));
        let log = Self {
            medium,
            shared,
            retention: opening.retention,
            lanes: lanes.into_iter().map(|(_, lane)| lane).collect(),
            is_fenced,
            lacks_segments: AtomicBool::new(lacks_segments),
            syncer: Syncer::default(),
            freeing: Mutex::new(Freeing { stale: opening.stale, is_damaged }),
            _groups: groups,
        };
        // Damaged segments are removed once the replayed records are in tables.
        if !is_damaged {
            log.remove_stale(&mut log.freeing.lock().stale)?;
        }
        Ok((log, recovery))
    }
}

/// State of an open after replay.
struct Opening {
    options: Options,
    source: Source,
    retention: Arc<Retention>,
    is_damaged: bool,
    /// Names of files to remove once the new segments are durable.
    stale: Vec<String>,
}

impl Opening {
    /// Begins a new segment in the lane of `chain`. In a lane that receives appends, a device without space
    /// for the segment is no error.
    fn open_lane(&mut self, chain: Chain, shared: &Arc<LaneShared>) -> Result<Lane> {
        let is_appended = self.options.lanes.contains(&chain.lane);
        let spec = SegmentSpec {
            store: self.options.store,
            lane: chain.lane,
            segment_bytes: if is_appended { self.options.segment_bytes } else { SEGMENT_BYTES_MIN },
            first_segment_bytes: self.options.first_segment_bytes,
            leave_bytes: self.options.leave_bytes,
            has_gaps: is_appended && self.options.has_gaps,
            is_fenced: is_appended && self.options.is_fenced,
        };
        let id = self.next_segment(&chain)?;
        let supply = Supply::new(
            &self.source.medium,
            spec,
            id,
            &self.source.account,
            shared,
            &self.retention,
        );
        let (lane, sequence, is_torn) = (chain.lane, chain.sequence(), chain.torn().is_some());
        for summary in self.options.summaries.iter().filter(|it| it.lane == lane) {
            let charge = self.source.account.charge(SEGMENT_MEMORY)?;
            self.retention.add(lane, summary.sealed(charge));
        }
        let mut unused = Vec::new();
        let tail = settle(chain, &self.source, &self.retention, &mut self.stale, &mut unused)?;
        // After damage the tail stays as it is, for inspection.
        let mut tail = tail.filter(|_| !self.is_damaged);
        shared.set_durable_sequence(sequence);
        let mut lane = Lane::new(lane, supply, Arc::clone(shared), &self.retention, sequence);
        match self.start(&mut lane, &mut tail, is_torn, unused)? {
            None => trim(tail)?,
            Some(_) if is_appended => {}
            Some(no_space) => return Err(no_space),
        }
        Ok(lane)
    }

    /// The id of the lane's next segment. It is not below the log's start even if the whole lane was lost,
    /// because recovery does not read segments before the start.
    fn next_segment(&self, chain: &Chain) -> Result<u64> {
        let newest = chain.segments.last().map_or(0, |scan| scan.id.0);
        // A segment that was lost whole had a number too.
        let reached = self.source.known.reached.filter(|it| it.lane == chain.lane);
        let newest = newest.max(reached.map_or(0, |it| it.segment.0));
        // The maximum is far below the largest number, so that there always is a next one.
        let id = newest.checked_add(1).filter(|id| *id <= SEGMENT_MAX).ok_or_else(|| {
            Error::corrupt("log segment's number")
                .expected(format_args!("one below {SEGMENT_MAX}"))
                .got(newest)
        })?;
        let id = id.max(self.source.known.start.of(chain.lane).0);
        invariant!(
            reached.is_none_or(|it| it.segment.0 < id),
            "a new segment's id is above that of a lost one"
        );
        invariant!(
            chain.segments.iter().all(|scan| scan.id.0 < id),
            "a new segment's id is above those of its lane"
        );
        Ok(id)
    }

    /// Begins the lane's new segment. On a full device first frees space: removes the `unused` segments,
    /// then cuts the tail in which replay ended. Returns the `NoSpace` error if there still is no space.
    fn start(
        &mut self,
        lane: &mut Lane,
        tail: &mut Option<SegmentTail>,
        is_torn: bool,
        mut unused: Vec<String>,
    ) -> Result<Option<Error>> {
        let mut no_space = no_space(lane.start())?;
        if no_space.is_some() && !self.is_damaged && !unused.is_empty() {
            // If a removed segment comes back with a power cut, it is as empty as it was.
            unused.retain(|name| self.source.medium.remove(name).is_err());
            no_space = self::no_space(lane.start())?;
        }
        self.stale.append(&mut unused);
        if no_space.is_some()
            && let Some(last) = tail.take_if(|_| !is_torn)
            && lane.shorten(&last)?
        {
            // The unused part of the last segment may be space enough.
            no_space = self::no_space(lane.start())?;
        }
        Ok(no_space)
    }
}

/// Separates a `NoSpace` error from the others.
fn no_space(started: Result<()>) -> Result<Option<Error>> {
    match started {
        Err(error) if error.kind() == ErrorKind::NoSpace => Ok(Some(error)),
        other => other.map(|()| None),
    }
}

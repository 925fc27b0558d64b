//! Recovery: the lanes of a log, replayed in seqno order up to the first gap.
//!
//! The flow: find every segment, order each lane's into a [`Chain`], merge the chains, and end
//! where no lane has the next seqno. Lanes become durable independently, so a later seqno may
//! exist in one lane though an earlier one was lost in another; the earlier one was then never
//! durable as a whole, and neither was the later one (I11). Past damage, a gap that the damage leaves is
//! none.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, KeyspaceId, LaneId, Result, SegmentId, Seqno};
use media::{Access, File, Purpose};

use crate::chain::{Chain, Cut, Source};
use crate::found::{self, SegmentScan, SegmentState};
use crate::loss::Loss;
use crate::name::{parse_segment_name, segment_name};
use crate::options::Recover;
use crate::reader::{Located, What};
use crate::retention::{Retention, Sealed};
use crate::supply::SEGMENT_MEMORY;

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// The next seqno at the log's oldest point: what is older was freed.
    pub first: Seqno,
    /// The last seqno in use: of the last record, or the floor asked for.
    pub last: Seqno,
    /// Records replayed.
    pub records: u64,
    /// Records not replayed, because every keyspace they write to has them flushed.
    pub skipped: u64,
    /// Bytes of log up to where replay ended.
    pub bytes: u64,
    /// Segments in use.
    pub segments: usize,
    /// Where the tail was cut off, if anything was there: what was appended but never durable.
    pub torn: Option<Cut>,
    /// The first damage, with [`crate::Recover::PastDamage`].
    pub damage: Option<Error>,
    /// What all damage costs, lane by lane, in the order of the log.
    pub losses: Vec<Loss>,
}

/// The segments of every lane of a medium, in order, from where the log begins.
fn list(source: &Source) -> Result<BTreeMap<LaneId, Vec<SegmentId>>> {
    let mut lanes = BTreeMap::<LaneId, Vec<SegmentId>>::new();
    for file in source.medium.list()? {
        if let Some((lane, segment)) = parse_segment_name(&file.name)
            && segment >= source.start.of(lane)
        {
            lanes.entry(lane).or_default().push(segment);
        }
    }
    lanes.values_mut().for_each(|segments| segments.sort_unstable());
    Ok(lanes)
}

/// Whom the records are for.
pub(crate) struct Replay<'a> {
    /// As in [`crate::Log::open`].
    pub(crate) from: &'a dyn Fn(KeyspaceId) -> Option<Seqno>,
    /// As in [`crate::Log::open`].
    pub(crate) record: &'a mut dyn FnMut(Seqno, &[u8]) -> Result<()>,
    /// Told what `from` says.
    pub(crate) retention: &'a Retention,
    /// What `from` said, by keyspace: `from` is asked once for each.
    pub(crate) below: Vec<(KeyspaceId, Seqno)>,
}

impl Replay<'_> {
    /// The seqno below which `keyspace`'s records are dead.
    fn below(&mut self, keyspace: KeyspaceId) -> Seqno {
        match self.below.binary_search_by_key(&keyspace, |(id, _)| *id) {
            Ok(at) => self.below.get(at).map_or(Seqno::ZERO, |(_, below)| *below),
            Err(at) => {
                let below = (self.from)(keyspace).unwrap_or(Seqno::MAX);
                self.retention.flushed(keyspace, below);
                self.below.insert(at, (keyspace, below));
                below
            }
        }
    }
}

/// Replays every lane of a medium, and `lane` even if it has no segment yet; the chains, what was
/// found, and the next seqno.
pub(crate) fn replay(
    source: &Source,
    lane: LaneId,
    replay: &mut Replay<'_>,
) -> Result<(Vec<Chain>, Recovery, u64)> {
    let mut lanes = list(source)?;
    lanes.entry(lane).or_default();
    let mut chains = Vec::with_capacity(lanes.len());
    for (lane, ids) in &lanes {
        chains.push(Chain::open(source, *lane, ids)?);
    }
    let (recovery, next) = merge(&mut chains, source.recover, replay)?;
    Ok((chains, recovery, next))
}

/// Replays `chains` in seqno order, leaving each at the end of what was replayed; what was found,
/// and the next seqno.
fn merge(
    chains: &mut [Chain],
    recover: Recover,
    replay: &mut Replay<'_>,
) -> Result<(Recovery, u64)> {
    let mut recovery = Recovery::default();
    let begins = || chains.iter().filter_map(Chain::begin);
    recovery.first = Seqno::try_from(begins().min().unwrap_or(0))?;
    // Below this seqno, gaps are segments that were freed, or were settled by an earlier open.
    let mut settled = begins().max().unwrap_or(0);
    let mut expected = 0;
    let mut heads = Vec::with_capacity(chains.len());
    for chain in chains.iter_mut() {
        heads.push(chain.next()?);
    }
    loop {
        // At one seqno, Begins come first: they say that what precedes it is settled.
        let key = |head: &Located| (head.seqno, matches!(head.what, What::Batch { .. }));
        let present = heads.iter().enumerate().filter_map(|(at, head)| Some((at, (*head)?)));
        let Some((at, head)) = present.min_by_key(|(_, head)| key(head)) else { break };
        let due = settled.max(expected);
        let is_lost = chains.iter().any(|chain| chain.may_have_lost(due));
        let Some(chain) = chains.get_mut(at) else { break };
        if let What::Batch { ops, .. } = head.what {
            let is_early = head.seqno < expected;
            let is_late = head.seqno > due && !is_lost;
            if is_late && heads.iter().any(Option::is_none) {
                break;
            }
            if is_early || is_late {
                chain.miss(&head, due, recover)?;
            }
            if !is_early {
                expected = head.seqno + u64::from(ops);
                consume(chain, &head, Seqno::try_from(expected)?, replay, &mut recovery)?;
            }
        } else {
            settled = settled.max(head.seqno);
        }
        let following = chain.next()?;
        if let Some(slot) = heads.get_mut(at) {
            *slot = following;
        }
    }
    for (chain, head) in chains.iter_mut().zip(&heads) {
        if let Some(head) = head {
            chain.cut(head);
        }
        recovery.losses.extend(chain.losses.iter().cloned());
        recovery.torn = recovery.torn.or(chain.torn());
        let reached = chain.reached().iter().filter_map(|at| chain.segments.get(*at));
        recovery.bytes += reached.map(|found| found.tail).sum::<u64>();
        recovery.segments += chain.reached().len();
    }
    recovery.damage = recovery.losses.first().map(|loss| loss.error.clone());
    Ok((recovery, expected.max(settled)))
}

/// Hands a record to the engine if a keyspace still needs it, and notes what it keeps alive (I7).
fn consume(
    chain: &mut Chain,
    head: &Located,
    end: Seqno,
    replay: &mut Replay<'_>,
    recovery: &mut Recovery,
) -> Result<()> {
    let Some((reader, found)) = chain.reading() else { return Ok(()) };
    let mut needed = false;
    for keyspace in reader.keyspaces(head) {
        needed |= replay.below(keyspace) < end;
        found.pins.pin(keyspace, end);
    }
    if needed {
        (replay.record)(Seqno::try_from(head.seqno)?, reader.body(head))?;
        recovery.records += 1;
    } else {
        recovery.skipped += 1;
    }
    Ok(())
}

/// The file in which replay of a lane ended, and the length of what is used of it.
pub(crate) type Tail = Option<(Arc<dyn File>, u64)>;

/// Removes what lies before the log's start, and came back or never went. What stays goes the next
/// time: nobody reads it.
pub(crate) fn remove_freed(source: &Source) -> Result<()> {
    for file in source.medium.list()? {
        if parse_segment_name(&file.name)
            .is_some_and(|(lane, segment)| segment < source.start.of(lane))
        {
            let _ = source.medium.remove(&file.name);
        }
    }
    Ok(())
}

/// Makes everything that a medium holds of the log durable: a process may have died with nothing
/// synced, or with a sync that failed. Before replay, because what is replayed may be flushed to tables, and
/// a table must not outlive the records before it. Reads the log once to know what no Mark vouches for.
pub(crate) fn make_durable(source: &Source, lane: LaneId) -> Result<()> {
    for (lane, segments) in list(source)? {
        for segment in segments {
            source.medium.open(&segment_name(lane, segment), Access::Bytes)?.sync(Purpose::Log)?;
        }
    }
    let (retention, mut nothing) = (Retention::default(), |_, _: &[u8]| Ok(()));
    let mut nobody =
        Replay { from: &|_| None, record: &mut nothing, retention: &retention, below: Vec::new() };
    for chain in replay(source, lane, &mut nobody)?.0 {
        // Past damage, what is replayed is durable once it is in tables.
        if !chain.losses.is_empty() {
            continue;
        }
        let end = chain.sequence();
        for found in chain.reached().iter().filter_map(|at| chain.segments.get(*at)) {
            if found.limit.min(end) > chain.durable {
                let begin = found.first.map_or(0, |first| first.sequence);
                store_again(source, (chain.lane, found.id), (begin, found.tail))?;
            }
        }
    }
    Ok(())
}

/// Keeps the segments that were replayed. The others are named: in `unused` those that were made ahead, and
/// hold nothing; in `stale` the rest.
pub(crate) fn settle(
    chain: Chain,
    source: &Source,
    retention: &Retention,
    stale: &mut Vec<String>,
    unused: &mut Vec<String>,
) -> Result<Tail> {
    let (lane, reached) = (chain.lane, chain.reached().to_vec());
    let mut tail = None;
    for (index, found) in chain.segments.into_iter().enumerate() {
        let (id, begin) = (found.id, found.first.map_or(0, |first| first.sequence));
        let name = segment_name(lane, id);
        if !reached.contains(&index) {
            match found.state {
                SegmentState::Blank | SegmentState::Unmade(_) => unused.push(name),
                SegmentState::Begun | SegmentState::Headless(_) | SegmentState::Damaged(_) => {
                    stale.push(name)
                }
            }
            continue;
        }
        let file = source.medium.open(&name, Access::Bytes)?;
        tail = Some((file, found.tail));
        let charge = source.account.charge(SEGMENT_MEMORY)?;
        let SegmentScan { tail: bytes, pins, .. } = found;
        retention.seal(lane, Sealed { id, begin, bytes, pins, charge });
    }
    Ok(tail)
}

/// Stores the records of a segment up to `tail` once more, from the lane sequence `begin` on, and syncs it.
///
/// After a failed sync the system may go on to show content that is on no device, and report a
/// later sync as done without writing it. No sector changes, so a power cut meanwhile costs
/// nothing that was durable: each record is verified as it is read for this, since what was read
/// wrong once would be stored so for good.
fn store_again(source: &Source, at: (LaneId, SegmentId), (begin, tail): (u64, u64)) -> Result<()> {
    const AT_ONCE_BYTES: usize = 256 << 10;
    let _charge = source.account.charge(AT_ONCE_BYTES as u64)?;
    let file = source.medium.open(&segment_name(at.0, at.1), Access::Bytes)?;
    let mut reader = found::open(source, at.0, at.1)?;
    let (mut from, mut bytes) = (0, Vec::with_capacity(AT_ONCE_BYTES));
    let mut sequence = begin;
    while reader.at() < tail {
        let Some(found) = reader.next(sequence)? else { return Err(reader.explain(sequence)) };
        if found.offset >= tail {
            break;
        }
        sequence += 1;
        let record = reader.record(&found);
        let follows = found.offset == from + bytes.len() as u64;
        let goes_on = follows && bytes.len() + record.len() <= AT_ONCE_BYTES;
        if !bytes.is_empty() && !goes_on {
            file.store(from, &bytes, Purpose::Log)?;
            bytes.clear();
        }
        if record.len() > AT_ONCE_BYTES {
            file.store(found.offset, record, Purpose::Log)?;
            continue;
        }
        if bytes.is_empty() {
            from = found.offset;
        }
        bytes.extend_from_slice(record);
    }
    if !bytes.is_empty() {
        file.store(from, &bytes, Purpose::Log)?;
    }
    file.sync(Purpose::Log)
}

/// Gives back the space behind `tail`, now that a later segment says that nothing follows.
pub(crate) fn trim(tail: Tail) -> Result<()> {
    let Some((file, bytes)) = tail else { return Ok(()) };
    let used = bytes.next_multiple_of(PAGE_BYTES as u64);
    if file.size()? > used { file.set_len(used) } else { Ok(()) }
}

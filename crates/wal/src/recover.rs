//! Recovery: replays the lanes of a log in seqno order up to the first gap.
//!
//! Flow: list every segment, order each lane's segments into a [`Chain`], merge the chains by seqno, and
//! end at the first seqno that no lane has. Lanes become durable independently, so one lane may hold a
//! later seqno although another lane lost an earlier one. The sync that would have acknowledged the
//! earlier seqno then never completed, nor did that of the later one (I11). With
//! [`Recover::PastDamage`], a gap that damage explains does not end replay.

use std::collections::BTreeMap;

use base::limits::PAGE_BYTES;
use base::{Error, KeyspaceId, LaneId, Result, SegmentId, Seqno, broken_invariant};
use media::{Access, Purpose};

use crate::address::{Appended, RecordAddress};
use crate::chain::Chain;
use crate::lane::SegmentTail;
use crate::loss::Loss;
use crate::name::{parse_segment_name, segment_name};
use crate::options::Recover;
use crate::position::{Cut, LANE};
use crate::reader::{LocatedContent, LocatedRecord};
use crate::retention::{Retention, SealedSegment};
use crate::scan::{self, SegmentScan, SegmentState};
use crate::source::Source;
use crate::supply::SEGMENT_MEMORY;

/// The result of recovery.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// The next seqno at the log's oldest point; older records were freed.
    pub first: Seqno,
    /// The last seqno in use: that of the last record, or the floor of the options.
    pub last: Seqno,
    /// Number of records replayed.
    pub records: u64,
    /// Number of records not replayed, because all their keyspaces have them flushed.
    pub skipped: u64,
    /// Bytes of log up to the end of replay.
    pub bytes: u64,
    /// Number of segments in use.
    pub segments: usize,
    /// Position at which a tail was cut off: records that were appended but never durable.
    pub torn: Option<Cut>,
    /// The first damage, with [`crate::Recover::PastDamage`].
    pub damage: Option<Error>,
    /// All losses by damage, lane by lane, in log order.
    pub losses: Vec<Loss>,
}

/// The segments of every lane on the medium, in order, from the log's start on.
fn list_segments(source: &Source) -> Result<BTreeMap<LaneId, Vec<SegmentId>>> {
    let mut lanes = BTreeMap::<LaneId, Vec<SegmentId>>::new();
    for file in source.medium.list()? {
        if let Some((lane, segment)) = parse_segment_name(&file.name)
            && segment >= source.known.start.of(lane)
        {
            lanes.entry(lane).or_default().push(segment);
        }
    }
    lanes.values_mut().for_each(|segments| segments.sort_unstable());
    Ok(lanes)
}

/// The destination of replayed records.
pub(crate) struct ReplaySink<'a> {
    /// As in [`crate::Log::open`].
    pub(crate) from: &'a dyn Fn(KeyspaceId) -> Option<Seqno>,
    /// As in [`crate::Log::open`].
    pub(crate) record: &'a mut dyn FnMut(Appended, &[u8]) -> Result<()>,
    /// Gets the answers of `from`.
    pub(crate) retention: &'a Retention,
    /// The answers of `from`, ordered by keyspace: it is called once for each.
    pub(crate) below: Vec<(KeyspaceId, Seqno)>,
}

impl ReplaySink<'_> {
    /// The seqno below which `keyspace`'s records are dead.
    pub(crate) fn below(&mut self, keyspace: KeyspaceId) -> Seqno {
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

/// Replays every lane on the medium, and those that receive appends even if they have no segment yet. Returns
/// the chains, the result, and the next seqno.
///
/// # Errors
/// `Corrupt` if recovery is strict and records are damaged, or missing according to [`crate::Known`].
pub(crate) fn replay(
    source: &Source,
    replay: &mut ReplaySink<'_>,
) -> Result<(Vec<Chain>, Recovery, u64)> {
    let mut lanes = list_segments(source)?;
    for lane in &source.known.lanes {
        lanes.entry(*lane).or_default();
    }
    let mut chains = Vec::with_capacity(lanes.len());
    for (lane, ids) in &lanes {
        chains.push(Chain::open(source, *lane, ids)?);
    }
    let (mut recovery, next) = merge(&mut chains, source.recover, replay)?;
    for chain in &mut chains {
        if let Some(loss) = chain.check_end()? {
            recovery.damage.get_or_insert_with(|| loss.error.clone());
            recovery.losses.push(loss);
        }
    }
    let has_begun =
        |lane: &LaneId| chains.iter().any(|chain| chain.lane == *lane && chain.begin().is_some());
    let has_begun = match &source.known.lanes[..] {
        // A copy of a log with other lanes has begun in those.
        [LANE] => chains.iter().any(|chain| chain.begin().is_some()),
        lanes => lanes.iter().all(has_begun),
    };
    let last = Seqno::try_from(next.saturating_sub(1))?;
    match (source.known.hidden_damage(has_begun, last), source.recover) {
        (None, _) => {}
        (Some(error), Recover::Strict) => return Err(error),
        (Some(error), Recover::PastDamage) => {
            recovery.damage.get_or_insert(error);
        }
    }
    Ok((chains, recovery, next))
}

/// Replays `chains` in seqno order, and leaves each at the end of its replayed records. Returns the
/// result and the next seqno.
fn merge(
    chains: &mut [Chain],
    recover: Recover,
    replay: &mut ReplaySink<'_>,
) -> Result<(Recovery, u64)> {
    let mut recovery = Recovery::default();
    let begins = || chains.iter().filter_map(Chain::begin);
    recovery.first = Seqno::try_from(begins().min().unwrap_or(0))?;
    // Below this seqno, a gap is a freed segment, or was settled by an earlier open.
    let mut settled = begins().max().unwrap_or(0);
    let mut expected = 0;
    let mut heads = Vec::with_capacity(chains.len());
    for chain in chains.iter_mut() {
        heads.push(chain.next()?);
    }
    loop {
        // At equal seqnos, Begins come first: they state that earlier seqnos are settled.
        let key =
            |head: &LocatedRecord| (head.seqno, !matches!(head.content, LocatedContent::Begin(_)));
        let present = heads.iter().enumerate().filter_map(|(at, head)| Some((at, (*head)?)));
        let Some((at, head)) = present.min_by_key(|(_, head)| key(head)) else { break };
        let due = settled.max(expected);
        let is_lost = chains.iter().any(|chain| chain.may_have_lost(due));
        let Some(chain) = chains.get_mut(at) else { break };
        if matches!(head.content, LocatedContent::Begin(_)) {
            settled = settled.max(head.seqno);
        } else {
            let is_early = head.seqno < expected;
            let is_late = head.seqno > due && !is_lost;
            if is_late && heads.iter().any(Option::is_none) {
                break;
            }
            if is_early || is_late {
                chain.note_gap(&head, due, recover)?;
            }
            if !is_early {
                expected = head.next_seqno();
                let end = Seqno::try_from(expected)?;
                if matches!(head.content, LocatedContent::Batch { .. }) {
                    replay_record(chain, &head, end, replay, &mut recovery)?;
                }
            }
        }
        let following = chain.next()?;
        if let Some(slot) = heads.get_mut(at) {
            *slot = following;
        }
    }
    for (chain, head) in chains.iter_mut().zip(&heads) {
        if let Some(head) = head {
            chain.cut_before(head);
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

/// Passes a record to the engine if a keyspace still needs it, and notes the keyspaces that it pins
/// (I7).
fn replay_record(
    chain: &mut Chain,
    head: &LocatedRecord,
    end: Seqno,
    replay: &mut ReplaySink<'_>,
    recovery: &mut Recovery,
) -> Result<()> {
    let lane = chain.lane;
    let Some((reader, found)) = chain.reading() else {
        return Err(broken_invariant!("a chain still reads the segment of its last record"));
    };
    let mut needed = false;
    for keyspace in reader.keyspaces(head)? {
        needed |= replay.below(keyspace) < end;
        found.pins.pin(keyspace, end);
    }
    if needed {
        let address = RecordAddress { lane, segment: found.id, offset: head.offset };
        let appended = Appended { first: Seqno::try_from(head.seqno)?, address: Some(address) };
        (replay.record)(appended, reader.body(head)?)?;
        recovery.records += 1;
    } else {
        recovery.skipped += 1;
    }
    Ok(())
}

/// Removes segments before the log's start, which a power cut brought back or a removal left. A removal
/// that fails is repeated at the next open: recovery does not read these segments.
pub(crate) fn remove_freed(source: &Source) -> Result<()> {
    for file in source.medium.list()? {
        if parse_segment_name(&file.name)
            .is_some_and(|(lane, segment)| segment < source.known.start.of(lane))
        {
            let _ = source.medium.remove(&file.name);
        }
    }
    Ok(())
}

/// Makes all of the log on the medium durable: a process may have died before a sync, or after one that
/// failed. Runs before replay, because replayed records may be flushed to tables, and a table must not
/// outlive the log records before it. Reads the log once to find the records that no Mark vouches for.
pub(crate) fn make_durable(source: &Source) -> Result<()> {
    for (lane, segments) in list_segments(source)? {
        for segment in segments {
            source.medium.open(&segment_name(lane, segment), Access::Bytes)?.sync(Purpose::Log)?;
        }
    }
    let (retention, mut nothing) = (Retention::default(), |_, _: &[u8]| Ok(()));
    let mut sink = ReplaySink {
        from: &|_| None,
        record: &mut nothing,
        retention: &retention,
        below: Vec::new(),
    };
    for chain in replay(source, &mut sink)?.0 {
        // Records replayed past damage become durable by being flushed to tables.
        if !chain.losses.is_empty() {
            continue;
        }
        let end = chain.sequence();
        for found in chain.reached().iter().filter_map(|at| chain.segments.get(*at)) {
            if found.limit.min(end) > chain.durable {
                store_again(source, chain.lane, found)?;
            }
        }
    }
    Ok(())
}

/// Keeps the segments that were replayed. Adds the names of the others to `unused` if they are empty
/// segments made ahead of need, else to `stale`. Returns the tail in which replay ended.
pub(crate) fn settle(
    chain: Chain,
    source: &Source,
    retention: &Retention,
    stale: &mut Vec<String>,
    unused: &mut Vec<String>,
) -> Result<Option<SegmentTail>> {
    let (lane, reached) = (chain.lane, chain.reached().to_vec());
    let mut tail = None;
    for (index, found) in chain.segments.into_iter().enumerate() {
        let (id, begin) = (found.id, found.first.map_or(0, |first| first.sequence));
        let first = found.first.map_or(0, |first| first.seqno);
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
        tail = Some(SegmentTail { file, used: found.tail });
        let charge = source.account.charge(SEGMENT_MEMORY)?;
        let SegmentScan { tail: bytes, pins, .. } = found;
        retention.add(lane, SealedSegment { id, begin, first, bytes, pins, charge });
    }
    Ok(tail)
}

/// Stores the records of a segment up to its tail again, and syncs it.
///
/// After a failed sync, the operating system may show content that is on no device, and may report
/// success for a later sync without writing it. The stored bytes do not change, so a power cut meanwhile
/// loses nothing durable. Each record is verified as it is read for this purpose, because a read error
/// would otherwise be stored for good.
fn store_again(source: &Source, lane: LaneId, scan: &SegmentScan) -> Result<()> {
    const AT_ONCE_BYTES: usize = 256 << 10;
    let _charge = source.account.charge(AT_ONCE_BYTES as u64)?;
    let file = source.medium.open(&segment_name(lane, scan.id), Access::Bytes)?;
    let mut reader = scan::open(source, lane, scan.id)?;
    let (mut from, mut bytes) = (0, Vec::with_capacity(AT_ONCE_BYTES));
    let mut sequence = scan.first.map_or(0, |first| first.sequence);
    while reader.at() < scan.tail {
        let Some(found) = reader.next(sequence)? else { return Err(reader.explain(sequence)) };
        if found.offset >= scan.tail {
            break;
        }
        sequence += 1;
        let record = reader.record(&found)?;
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

/// Returns the space after `tail` to the device, once a later segment states that no record follows.
pub(crate) fn trim(tail: Option<SegmentTail>) -> Result<()> {
    let Some(SegmentTail { file, used }) = tail else { return Ok(()) };
    let used = used.next_multiple_of(PAGE_BYTES as u64);
    if file.size()? > used { file.set_len(used) } else { Ok(()) }
}

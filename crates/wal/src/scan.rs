//! The scan of a segment's file at recovery: its state from the first two pages and, with
//! [`Recover::PastDamage`], the first readable record.

use base::limits::PAGE_BYTES;
use base::{Error, ErrorKind, LaneId, Result, SegmentId, invariant};

use crate::name::segment_name;
use crate::options::Recover;
use crate::pins::Pins;
use crate::reader::{LocatedContent, SegmentReader, Wanted};
use crate::record::{BEGIN_BYTES, Begin};
use crate::source::Source;

const PAGE: u64 = PAGE_BYTES as u64;

/// If only the segments after a damaged one are known, its records are searched from this many lane
/// sequences before them.
const SEARCHED_BEFORE: u64 = 1 << 23;

/// The scan of one segment.
#[derive(Debug)]
pub(crate) struct SegmentScan {
    pub(crate) id: SegmentId,
    pub(crate) state: SegmentState,
    /// The first readable record. `None` if nothing was stored or no record can be read.
    pub(crate) first: Option<First>,
    /// Replay ends before this lane sequence, at which a later segment begins.
    pub(crate) limit: u64,
    /// Offset of the end of the replayed records.
    pub(crate) tail: u64,
    pub(crate) pins: Pins,
}

/// State of a segment according to its first two pages.
#[derive(Debug)]
pub(crate) enum SegmentState {
    /// No record was ever appended.
    Blank,
    /// Nothing is stored after the header, which is damaged or states a greater length: a power cut came
    /// before the header was durable, or a segment made ahead of need was cut or zeroed.
    Unmade(Error),
    /// The header and the Begin are sound.
    Begun,
    /// Records were appended, but the Begin is missing: part of a lost tail, or damaged.
    Headless(Error),
    /// Records were appended, but the header is damaged. It was durable before them.
    Damaged(Error),
}

/// The first readable record of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
    pub(crate) seqno: u64,
    /// The Begin, if the record is one.
    pub(crate) begin: Option<Begin>,
    /// The unit of the segment ([`SegmentReader::unit`]).
    unit: u64,
}

impl First {
    const fn of_begin(begin: Begin, seqno: u64, unit: u64) -> Self {
        Self { offset: PAGE, sequence: begin.sequence, seqno, begin: Some(begin), unit }
    }

    /// The lane sequence of the segment's Begin, or of a record after it if more than the Begin is lost.
    pub(crate) fn limit(&self) -> u64 {
        let follows_begin = [PAGE + BEGIN_BYTES as u64, PAGE + self.unit].contains(&self.offset);
        // A Begin that an open wrote is alone in its unit. A Begin without an open follows a full
        // segment, of which nothing was cut off.
        self.sequence.saturating_sub(u64::from(self.begin.is_none() && follows_begin))
    }
}

/// Scans the segments `ids` of `lane`, in this order.
pub(crate) fn scan_all(
    source: &Source,
    lane: LaneId,
    ids: &[SegmentId],
) -> Result<Vec<SegmentScan>> {
    invariant!(
        ids.is_sorted_by(|one, next| one < next),
        "segments are scanned in the order of their ids"
    );
    let mut segments = Vec::with_capacity(ids.len());
    for id in ids {
        let (state, first) = scan(source, lane, *id)?;
        let (limit, tail) = (u64::MAX, PAGE);
        segments.push(SegmentScan { id: *id, state, first, limit, tail, pins: Pins::default() });
    }
    for index in 0..segments.len() {
        let first = match source.recover {
            Recover::Strict => None,
            Recover::PastDamage => find_first_record(source, lane, &segments, index)?,
        };
        if let Some(found) = segments.get_mut(index) {
            found.first = found.first.or(first);
        }
    }
    for index in 0..segments.len() {
        let opened = opened_after(&segments, index);
        if let Some(found) = segments.get_mut(index)
            && let SegmentState::Unmade(error) = &found.state
            && !opened
        {
            // A later segment was begun by the same process, so this header was durable.
            found.state = SegmentState::Damaged(error.clone());
        }
    }
    let mut limit = u64::MAX;
    for found in segments.iter_mut().rev() {
        found.limit = limit;
        limit = found.first.map_or(limit, |first| limit.min(first.limit()));
    }
    Ok(segments)
}

/// Whether an open made the next segment in use, or there is none.
fn opened_after(segments: &[SegmentScan], index: usize) -> bool {
    let mut behind = segments.iter().skip(index + 1);
    behind.find_map(|found| found.first?.begin).is_none_or(|begin| begin.opened)
}

/// A reader of a scanned segment; with [`Recover::PastDamage`] also of one whose header is damaged.
pub(crate) fn open(source: &Source, lane: LaneId, id: SegmentId) -> Result<SegmentReader> {
    let (mut reader, header) = open_any(source, lane, id)?;
    match (header, source.store) {
        (Err(error), Some(store))
            if source.recover == Recover::PastDamage && error.kind() == ErrorKind::Corrupt =>
        {
            reader.assume_identity(store, lane, id);
        }
        (header, _) => header?,
    }
    Ok(reader)
}

fn open_any(source: &Source, lane: LaneId, id: SegmentId) -> Result<(SegmentReader, Result<()>)> {
    let Source { medium, store, purpose, account, .. } = source;
    let by_page = source.recover == Recover::PastDamage;
    let (reader, header) =
        SegmentReader::open(&**medium, lane, id, *store, *purpose, by_page, account)?;
    Ok((reader, header.map(drop)))
}

fn scan(source: &Source, lane: LaneId, id: SegmentId) -> Result<(SegmentState, Option<First>)> {
    let (mut reader, header) = open_any(source, lane, id)?;
    if let Err(error) = header {
        return match error.kind() {
            ErrorKind::Corrupt if reader.survey().is_clean() => {
                Ok((SegmentState::Unmade(error), None))
            }
            ErrorKind::Corrupt => Ok((SegmentState::Damaged(error), None)),
            _ => Err(error),
        };
    }
    match reader.begin() {
        Ok(Some((begin, seqno))) => {
            return Ok((SegmentState::Begun, Some(First::of_begin(begin, seqno, reader.unit()))));
        }
        Err(error) if source.recover == Recover::Strict || error.kind() != ErrorKind::Corrupt => {
            return Err(error);
        }
        Ok(None) | Err(_) => {}
    }
    if let Some(error) = reader.shortened() {
        // A segment that was made ahead of need has nothing to lose. A Begin would be the first record, and
        // one that was durable is known from outside the log.
        reader.seek(PAGE);
        let shows_begin = reader.reaches(PAGE + BEGIN_BYTES as u64)?;
        let is_known = source.known.reached.is_some_and(|it| it.lane == lane && it.segment < id);
        let is_unused = (shows_begin || is_known) && reader.survey().is_clean();
        return Ok(match is_unused {
            true => (SegmentState::Unmade(error), None),
            false => (SegmentState::Damaged(error), None),
        });
    }
    // A Begin that a power cut tore has nothing after it.
    let error = Error::corrupt("first record of a log segment")
        .at(segment_name(lane, id))
        .expected("a Begin, which was durable");
    reader.seek(PAGE + BEGIN_BYTES as u64);
    Ok((
        if reader.survey().is_clean() {
            SegmentState::Blank
        } else {
            SegmentState::Headless(error)
        },
        None,
    ))
}

/// The first readable record of a damaged segment. It lies between the records of the segments around
/// it.
fn find_first_record(
    source: &Source,
    lane: LaneId,
    segments: &[SegmentScan],
    index: usize,
) -> Result<Option<First>> {
    let Some((before, [found, behind @ ..])) = segments.split_at_checked(index) else {
        return Ok(None);
    };
    // If the header is damaged, the seed of the checksums needs the store's id.
    let can_read = match &found.state {
        SegmentState::Headless(_) => true,
        SegmentState::Damaged(_) => source.store.is_some(),
        SegmentState::Blank | SegmentState::Unmade(_) | SegmentState::Begun => false,
    };
    if !can_read {
        return Ok(None);
    }
    let mut reader = open(source, lane, found.id)?;
    let before = before.iter().rev().find_map(|found| found.first);
    let behind = behind.iter().find_map(|found| found.first);
    let limit = behind.map_or(u64::MAX, |first| first.sequence);
    let sequence = match (before, behind) {
        (Some(first), _) => first.sequence,
        // The lane sequences that a search from here reaches.
        (None, Some(first)) => first.sequence.saturating_sub(SEARCHED_BEFORE),
        (None, None) => reader.survey().durable.saturating_sub(SEARCHED_BEFORE),
    };
    let seqno = before.map_or(0, |first| first.seqno);
    let found = reader.search(&Wanted { sequence, limit, seqno })?;
    Ok(found.map(|found| First {
        offset: found.offset,
        sequence: found.sequence,
        seqno: found.seqno,
        unit: reader.unit(),
        begin: match found.content {
            LocatedContent::Begin(begin) => Some(begin),
            LocatedContent::Batch { .. }
            | LocatedContent::Mark { .. }
            | LocatedContent::Gap { .. } => None,
        },
    }))
}

//! A chain: the segments of one lane in order, read by recovery as one sequence of records.
//!
//! Each record's lane sequence is one above its predecessor's, across segments too. The Begin of a
//! segment states the lane sequence at which the segment begins, and replay of the earlier segments ends
//! there. So a tail that an earlier recovery cut off stays cut off.
//!
//! The chain ends at the first record that cannot be read. If a later Mark or Begin says that the lane
//! was durable beyond that record, the record is damaged. Otherwise it belongs to a tail that never
//! became durable, as every power cut leaves one (I11). With [`Recover::PastDamage`] the chain resumes
//! with the next readable record, in this segment or a later one, and the records between count as lost.

mod gaps;

use base::{Error, ErrorKind, LaneId, Result, SegmentId, Seqno, broken_invariant, invariant};

use crate::loss::{Loss, Losses};
use crate::options::Recover;
use crate::position::Cut;
use crate::reader::{LocatedContent, LocatedRecord, SegmentReader, Survey, Wanted};
use crate::record::SEQUENCE_BELOW;
use crate::scan::{First, SegmentScan, SegmentState, open, scan_all};
use crate::source::Source;

/// Distance in lane sequences that a lane skips after damage: more than a lane ever has.
const DAMAGE_SKIP: u64 = 1 << 48;

/// The lane sequence at which a lane continues after damage that follows the records up to `sequence`. It
/// lies above the lane sequences of all unreadable records, so that these records count again if a later
/// recovery can read them.
const fn sequence_after_damage(sequence: u64) -> u64 {
    if sequence < SEQUENCE_BELOW / 2 { sequence + DAMAGE_SKIP } else { sequence }
}

/// Whether a salvage finds nothing of `lane`, one of several that the store appends to: its device was lost.
fn is_lost_lane(source: &Source, lane: LaneId, segments: &[SegmentScan]) -> bool {
    let known = &source.known;
    let is_expected = known.has_keyspaces && known.lanes.len() > 1 && known.lanes.contains(&lane);
    is_expected && segments.is_empty() && source.recover == Recover::PastDamage
}

/// How a chain ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Free space follows the last record.
    Clean,
    /// Bytes that never were durable follow the last record.
    Torn,
    /// Durable records cannot be read.
    Damaged(Error),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Chain {
    source: Source,
    pub(crate) lane: LaneId,
    pub(crate) segments: Vec<SegmentScan>,
    /// Indices of the segments that make up the chain.
    live: Vec<usize>,
    /// Index in `live` of the segment being read.
    at: usize,
    reader: Option<SegmentReader>,
    /// Lane sequence of the next record, and the next seqno according to the records of this lane.
    sequence: u64,
    seqno: u64,
    /// The lane was durable below this lane sequence, according to the records read so far.
    pub(crate) durable: u64,
    /// Why segments after the live ones cannot be used.
    broken: Option<Error>,
    /// Survey of the bytes after the first damage.
    survey: Option<Survey>,
    pub(crate) losses: Losses,
    /// Seqnos from this one up to that of the record read last may be lost.
    lost_from: Option<u64>,
    /// A lane of several is lost as a whole: any seqno may have been in it.
    is_lost: bool,
    pub(crate) end: Option<End>,
}

impl Chain {
    /// Opens the chain of `lane` over the segments `ids`, which are in order.
    pub(crate) fn open(source: &Source, lane: LaneId, ids: &[SegmentId]) -> Result<Self> {
        let segments = scan_all(source, lane, ids)?;
        let mut live = Vec::new();
        let mut broken = source.known.missing_start(lane, &segments);
        let is_strict = source.recover == Recover::Strict;
        for (index, found) in segments.iter().enumerate() {
            if broken.is_some() && is_strict {
                break;
            }
            let damage = match &found.state {
                SegmentState::Damaged(error) if is_strict || live.is_empty() => Some(error),
                // A missing Begin in a later segment shows as a gap in the lane sequences. The first
                // segment's Begin was durable: an open made it, or it became durable before the earlier
                // segments were freed.
                SegmentState::Headless(error) if live.is_empty() => Some(error),
                _ => None,
            };
            broken = broken.or_else(|| damage.cloned());
            if found.first.is_some_and(|first| first.sequence < found.limit) {
                live.push(index);
            }
        }
        let mut chain = Self {
            source: source.clone(),
            lane,
            live,
            at: 0,
            reader: None,
            sequence: 0,
            seqno: 0,
            durable: 0,
            broken,
            survey: None,
            losses: Losses::default(),
            lost_from: None,
            is_lost: is_lost_lane(source, lane, &segments),
            end: None,
            segments,
        };
        chain.start();
        Ok(chain)
    }

    /// Moves to the first record, and notes the loss before it.
    fn start(&mut self) {
        if self.is_lost {
            let error = Error::corrupt("commit log")
                .at(format_args!("lane {}", self.lane))
                .expected("a segment")
                .got("none");
            let (from, seqnos) = (self.position(), (Seqno::ZERO, None));
            self.losses.push(Loss { error, from, to: None, records: None, seqnos });
        }
        let Some((found, first)) = self.first() else { return };
        let to =
            Cut { lane: self.lane, segment: found, offset: first.offset, sequence: first.sequence };
        (self.sequence, self.seqno) = (first.sequence, first.seqno);
        if self.source.recover == Recover::Strict {
            return;
        }
        let Some(error) = self.broken.take() else { return };
        let oldest = self.segments.first().map_or(found, |oldest| oldest.id);
        let start = self.source.known.start.of(self.lane);
        let segment = if start == SegmentId::default() { oldest } else { start };
        let is_alone = segment == found && first.limit() < first.sequence;
        let (records, seqno) = match first.begin {
            // Without a recorded start, a log whose first segment is there begins with record 0.
            Some(_) if segment == found && (start == segment || first.sequence == 0) => {
                (Some(0), first.seqno)
            }
            None if is_alone => (Some(1), first.seqno),
            _ => (None, 0),
        };
        let sequence = first.sequence - records.unwrap_or(0);
        let from = Cut { segment, offset: 0, sequence, ..to };
        let seqnos = (Seqno::new(seqno), Some(Seqno::new(first.seqno)));
        self.losses.push(Loss { error, from, to: Some(to), records, seqnos });
    }

    /// The first segment of the chain, and its first record.
    fn first(&self) -> Option<(SegmentId, First)> {
        let found = self.segments.get(*self.live.first()?)?;
        Some((found.id, found.first?))
    }

    /// The next seqno at the start of the chain.
    pub(crate) fn begin(&self) -> Option<u64> {
        self.first().map(|(_, first)| first.seqno)
    }

    /// The lane sequence after the last record read.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether records were lost just before the record read last, one of which may have had `seqno`. At
    /// the end of a chain that ended in damage: whether a record after the end may have had it.
    pub(crate) fn may_have_lost(&self, seqno: u64) -> bool {
        self.is_lost || self.lost_from.is_some_and(|from| from <= seqno)
    }

    /// The next Batch, the next Gap, or the next Begin that an open wrote.
    ///
    /// # Errors
    /// The device's errors. `Corrupt` at damage if recovery is strict.
    pub(crate) fn next(&mut self) -> Result<Option<LocatedRecord>> {
        if self.end.is_none() {
            self.lost_from = None;
        }
        while self.end.is_none() {
            let read = match self.read() {
                Ok(None) => self.end_or_resume(None)?,
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    self.end_or_resume(Some(error))?
                }
                read => read?,
            };
            let Some(found) = read else { break };
            invariant!(found.sequence >= self.sequence, "lane sequences of a chain only grow");
            self.sequence = found.sequence + 1;
            self.seqno = self.seqno.max(found.next_seqno());
            match found.content {
                LocatedContent::Mark { durable } => self.durable = self.durable.max(durable),
                LocatedContent::Begin(begin) => {
                    self.durable = self.durable.max(begin.durable);
                    if begin.opened {
                        return Ok(Some(found));
                    }
                }
                LocatedContent::Batch { .. } | LocatedContent::Gap { .. } => {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// The segment being read.
    fn current(&mut self) -> Option<&mut SegmentScan> {
        self.segments.get_mut(*self.live.get(self.at)?)
    }

    /// The reader of the current segment, which [`Chain::open_segment`] opened.
    fn reader(&mut self) -> Result<&mut SegmentReader> {
        self.reader.as_mut().ok_or_else(|| broken_invariant!("an opened segment has a reader"))
    }

    /// The reader of the current segment, and the segment.
    pub(crate) fn reading(&mut self) -> Option<(&SegmentReader, &mut SegmentScan)> {
        let found = self.segments.get_mut(*self.live.get(self.at)?)?;
        Some((self.reader.as_ref()?, found))
    }

    /// Indices of the chain's segments up to and including the one being read.
    pub(crate) fn reached(&self) -> &[usize] {
        self.live.get(..=self.at).unwrap_or(&self.live)
    }

    /// The next record; at the limit of the current segment, that of the next segment.
    fn read(&mut self) -> Result<Option<LocatedRecord>> {
        loop {
            if !self.open_segment()? {
                return Ok(None);
            }
            let (sequence, limit) = (self.sequence, self.current().map_or(0, |found| found.limit));
            if sequence < limit {
                return self.reader()?.next(sequence);
            }
            if !self.next_segment() {
                return Ok(None);
            }
        }
    }

    /// Opens the current segment unless it is open. False if no segment is left.
    fn open_segment(&mut self) -> Result<bool> {
        let Some(found) = self.live.get(self.at).and_then(|index| self.segments.get(*index)) else {
            return Ok(false);
        };
        if self.reader.is_some() {
            return Ok(true);
        }
        let mut reader = open(&self.source, self.lane, found.id)?;
        if let Some(first) = found.first.filter(|_| self.at == 0) {
            reader.seek(first.offset);
        } else if let SegmentState::Damaged(error) = &found.state {
            let (sequence, seqno) = (self.sequence, Seqno::new(self.seqno));
            let from = Cut { lane: self.lane, segment: found.id, offset: 0, sequence };
            let to = Some(Cut { offset: reader.at(), ..from });
            let (error, seqnos) = (error.clone(), (seqno, Some(seqno)));
            self.losses.push(Loss { error, from, to, records: Some(0), seqnos });
        }
        self.reader = Some(reader);
        Ok(true)
    }

    /// Closes the current segment if another one follows. False if none follows.
    fn next_segment(&mut self) -> bool {
        if self.at + 1 >= self.live.len() {
            return false;
        }
        let reader = self.reader.take();
        if let (Some(reader), Some(found)) = (reader, self.current()) {
            found.tail = reader.at();
        }
        self.at += 1;
        true
    }

    /// Handles a record that cannot be read (`error`) or is not there (`None`): ends the chain, or
    /// resumes after the damage.
    fn end_or_resume(&mut self, error: Option<Error>) -> Result<Option<LocatedRecord>> {
        let goes_past = self.source.recover == Recover::PastDamage;
        let end = match error {
            Some(error) if !goes_past => End::Damaged(error),
            Some(error) => {
                self.classify_end()?;
                End::Damaged(error)
            }
            None => self.classify_end()?,
        };
        match end {
            End::Damaged(error) if goes_past && error.kind() == ErrorKind::Corrupt => {
                self.resume(error)
            }
            end => self.finish(end).map(|()| None),
        }
    }

    /// Classifies the end of the chain.
    fn classify_end(&mut self) -> Result<End> {
        if let Some(error) = self.broken.take() {
            return Ok(End::Damaged(error));
        }
        // An earlier survey still counts if it shows durable or unreadable bytes.
        if let Some(ahead) = self.survey.take() {
            let end = self.classify(&ahead);
            if matches!(end, End::Damaged(_)) {
                self.survey = Some(ahead);
                return Ok(end);
            }
        }
        let ahead = self.survey_rest()?;
        let end = self.classify(&ahead);
        self.survey = Some(ahead);
        Ok(end)
    }

    fn classify(&mut self, ahead: &Survey) -> End {
        // An unreadable page might hold a Mark that says the lane was durable further.
        if let Some(error) = &ahead.unreadable {
            return End::Damaged(error.clone());
        }
        if self.sequence >= ahead.durable {
            return if ahead.dirty { End::Torn } else { End::Clean };
        }
        let error = match &mut self.reader {
            Some(reader) => reader.explain(self.sequence),
            None => Error::corrupt("log record"),
        };
        End::Damaged(error.expected(format_args!(
            "record {} of lane {}, which was durable below {}",
            self.sequence, self.lane, ahead.durable
        )))
    }

    /// Surveys the bytes after the last record read, in this segment and in later ones.
    fn survey_rest(&mut self) -> Result<Survey> {
        let (Some(index), Some(reader)) = (self.live.get(self.at), self.reader.as_mut()) else {
            return Ok(Survey::default());
        };
        let behind = self.segments.get(index + 1..).unwrap_or_default();
        let is_unused = |found: &SegmentScan| {
            matches!(found.state, SegmentState::Blank | SegmentState::Unmade(_))
        };
        // A segment is cut only after the next one was begun durably.
        let shortened = reader.shortened().filter(|_| behind.iter().all(is_unused));
        if shortened.is_some() && self.source.recover == Recover::Strict {
            return Ok(Survey { unreadable: shortened, ..Survey::default() });
        }
        let mut survey = reader.survey();
        for found in self.segments.get(index + 1..).unwrap_or_default() {
            if matches!(found.state, SegmentState::Blank | SegmentState::Unmade(_)) {
                continue;
            }
            survey.dirty = true;
            let begin = found.first.and_then(|first| first.begin);
            survey.durable = survey.durable.max(begin.map_or(0, |begin| begin.durable));
            match &found.state {
                // No record of this segment can be read.
                SegmentState::Damaged(error) if found.first.is_none() => {
                    survey.unreadable = survey.unreadable.or_else(|| Some(error.clone()));
                }
                _ => {
                    let marks = open(&self.source, self.lane, found.id)?.survey();
                    survey.durable = survey.durable.max(marks.durable);
                    survey.unreadable = survey.unreadable.or(marks.unreadable);
                }
            }
        }
        survey.unreadable = shortened.or(survey.unreadable);
        Ok(survey)
    }

    /// Resumes with the next readable record, and counts the records before it as lost.
    fn resume(&mut self, error: Error) -> Result<Option<LocatedRecord>> {
        let from = self.position();
        let seqno = Seqno::new(self.seqno);
        while self.open_segment()? {
            let limit = self.current().map_or(0, |found| found.limit);
            let wanted = Wanted { sequence: self.sequence, limit, seqno: self.seqno };
            if let Some(found) = self.reader()?.search(&wanted)? {
                self.lost_from.get_or_insert(self.seqno);
                let Cut { lane, segment, .. } = self.position();
                let LocatedRecord { offset, sequence, .. } = found;
                let to = Some(Cut { lane, segment, offset, sequence });
                let records = Some(sequence - from.sequence);
                let seqnos = (seqno, Some(Seqno::new(found.seqno)));
                self.losses.push(Loss { error, from, to, records, seqnos });
                return Ok(Some(found));
            }
            if !self.next_segment() {
                break;
            }
        }
        // Without the lost records, the end may be clean or torn.
        self.survey = None;
        let end = match self.live.is_empty() {
            true => End::Damaged(error.clone()),
            false => self.classify_end()?,
        };
        if matches!(end, End::Damaged(_)) {
            self.lost_from.get_or_insert(self.seqno);
            let durable = self.survey.as_ref().map_or(0, |ahead| ahead.durable);
            let records = Some(durable.saturating_sub(self.sequence));
            self.losses.push(Loss { error, from, to: None, records, seqnos: (seqno, None) });
            self.sequence = sequence_after_damage(self.sequence.max(durable));
        }
        self.finish(end)?;
        Ok(None)
    }

    /// Ends the chain.
    ///
    /// # Errors
    /// The damage if recovery is strict. An error of another kind, such as a memory shortage, always: no
    /// record is given up for it.
    fn finish(&mut self, end: End) -> Result<()> {
        if let End::Damaged(error) = &end
            && (self.source.recover == Recover::Strict || error.kind() != ErrorKind::Corrupt)
        {
            return Err(error.clone());
        }
        invariant!(self.end.is_none(), "a chain ends once");
        if let Some(tail) = self.reader.as_ref().map(SegmentReader::at)
            && let Some(found) = self.current()
        {
            found.tail = tail;
        }
        self.end = Some(end);
        Ok(())
    }

    /// Ends replay before `head`, the record read last.
    pub(crate) fn cut_before(&mut self, head: &LocatedRecord) {
        invariant!(head.sequence < self.sequence, "a chain is cut before a record that was read");
        self.sequence = head.sequence;
        if let Some(found) = self.current() {
            found.tail = head.offset;
        }
        self.end.get_or_insert(End::Torn);
    }

    /// The position where replay ended, if bytes follow that are not free space.
    pub(crate) fn torn(&self) -> Option<Cut> {
        let found = self.segments.get(*self.live.get(self.at)?)?;
        let clean = matches!(self.end, None | Some(End::Clean));
        (!clean).then_some(Cut {
            lane: self.lane,
            segment: found.id,
            offset: found.tail,
            sequence: self.sequence,
        })
    }

    /// The position where the next record is expected.
    fn position(&self) -> Cut {
        let found = self.live.get(self.at).and_then(|index| self.segments.get(*index));
        let found = found.or_else(|| self.segments.first());
        Cut {
            lane: self.lane,
            segment: found.map_or_else(|| self.source.known.start.of(self.lane), |found| found.id),
            offset: self.reader.as_ref().map_or(0, SegmentReader::at),
            sequence: self.sequence,
        }
    }
}

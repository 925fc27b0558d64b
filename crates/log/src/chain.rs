//! A lane as recovery finds it: its segments in order, read as one run of records.
//!
//! Every record's lane sequence is one above the one before it, across segments too. A segment's
//! Begin says at which lane sequence it begins, and replay of the segments before it ends there:
//! what an earlier recovery cut off stays cut off.
//!
//! The run ends at the first record that cannot be read. Where a later Mark or Begin says that
//! the lane was durable beyond it, that is damage; otherwise it is a tail that never became
//! durable, as every power cut leaves one (I11).

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Error, ErrorKind, LaneId, Result, SegmentId, StoreId};
use media::{Medium, Purpose};

use crate::log::LANE;
use crate::name::segment_name;
use crate::options::Recover;
use crate::pins::Pins;
use crate::reader::{Located, SegmentReader, What};
use crate::record::{BEGIN_BYTES, Begin};
use crate::start::Start;

/// Where and how segments are read.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) medium: Arc<dyn Medium>,
    /// Segments of another store are refused, where one is given.
    pub(crate) store: Option<StoreId>,
    pub(crate) purpose: Purpose,
    pub(crate) account: Account,
    pub(crate) recover: Recover,
    /// What lies before it is not read.
    pub(crate) start: Start,
}

/// Where replay of a lane ended before the last of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The lane.
    pub lane: LaneId,
    /// The segment.
    pub segment: SegmentId,
    /// The offset in the segment's file.
    pub offset: u64,
    /// The lane sequence of the first record that is not replayed.
    pub sequence: u64,
}

/// A segment's file.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) id: SegmentId,
    state: State,
    /// Replay ends before this lane sequence: a later segment begins there.
    pub(crate) limit: u64,
    /// The end of what was replayed.
    pub(crate) tail: u64,
    pub(crate) pins: Pins,
}

impl Found {
    /// The lane sequence of its Begin.
    pub(crate) fn begin(&self) -> u64 {
        self.state.begin().map_or(0, |(begin, _)| begin.sequence)
    }
}

/// What a segment's first two pages say.
#[derive(Debug)]
enum State {
    /// Nothing was ever appended.
    Blank,
    /// There is nothing, not even a header: a power cut came before it was durable.
    Unmade(Error),
    /// It begins so; and the next seqno there.
    Begun(Begin, u64),
    /// Something was appended, but the Begin is lost: with a tail, or by damage.
    Headless(Error),
    /// Something was appended, but the header, which was durable before that, is damaged.
    Damaged(Error),
}

impl State {
    const fn begin(&self) -> Option<(Begin, u64)> {
        match self {
            Self::Begun(begin, seqno) => Some((*begin, *seqno)),
            _ => None,
        }
    }
}

/// How a chain ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Free space follows.
    Clean,
    /// Something follows that never was durable.
    Torn,
    /// Records that were durable cannot be read.
    Damaged(Error),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Chain {
    source: Source,
    pub(crate) lane: LaneId,
    pub(crate) segments: Vec<Found>,
    /// The segments that make up the run.
    live: Vec<usize>,
    /// Which of `live` is read.
    at: usize,
    reader: Option<SegmentReader>,
    /// The lane sequence of the next record.
    sequence: u64,
    /// The lane was durable below this lane sequence, as far as read.
    pub(crate) durable: u64,
    /// Why segments behind the live ones cannot be used.
    broken: Option<Error>,
    pub(crate) end: Option<End>,
}

impl Chain {
    /// The chain of `lane`, whose segments are `ids`, in order.
    pub(crate) fn open(source: &Source, lane: LaneId, ids: &[SegmentId]) -> Result<Self> {
        let mut segments = Vec::with_capacity(ids.len());
        for id in ids {
            let state = find(source, lane, *id)?;
            let (limit, tail) = (u64::MAX, PAGE_BYTES as u64);
            segments.push(Found { id: *id, state, limit, tail, pins: Pins::default() });
        }
        let mut limit = u64::MAX;
        for found in segments.iter_mut().rev() {
            found.limit = limit;
            limit = found.state.begin().map_or(limit, |(begin, _)| limit.min(begin.sequence));
        }
        let (mut live, mut broken) = (Vec::new(), lost_start(source, lane, ids));
        for (index, found) in segments.iter().enumerate() {
            if broken.is_some() {
                break;
            }
            match &found.state {
                State::Begun(begin, _) if begin.sequence < found.limit => live.push(index),
                // Behind others it is missed by its lane sequences. The first of all was begun
                // durably: either by an open, or before the segments before it were freed.
                State::Headless(error) if live.is_empty() => broken = Some(error.clone()),
                State::Damaged(error) => broken = Some(error.clone()),
                // Its maker died, so the next segment in use was made by an open.
                State::Unmade(error) if !opened_behind(&segments, index) => {
                    broken = Some(error.clone());
                }
                State::Blank | State::Unmade(_) | State::Begun(..) | State::Headless(_) => {}
            }
        }
        let mut chain = Self {
            source: source.clone(),
            lane,
            segments,
            live,
            at: 0,
            reader: None,
            sequence: 0,
            durable: 0,
            broken,
            end: None,
        };
        if let Some((begin, _)) = chain.begin() {
            chain.sequence = begin.sequence;
        }
        Ok(chain)
    }

    /// Where the run begins, and the next seqno there.
    pub(crate) fn begin(&self) -> Option<(Begin, u64)> {
        self.segments.get(*self.live.first()?)?.state.begin()
    }

    /// The lane sequence behind the last record read.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The next record that is a batch, or the Begin of a segment that an open made.
    ///
    /// # Errors
    /// As the device's; `Corrupt` at damage, where recovery is strict.
    pub(crate) fn next(&mut self) -> Result<Option<Located>> {
        loop {
            if self.end.is_some() {
                return Ok(None);
            }
            let found = match self.read() {
                Ok(found) => found,
                Err(error) => {
                    self.finish(End::Damaged(error))?;
                    return Ok(None);
                }
            };
            let Some(found) = found else {
                let end = self.examine()?;
                self.finish(end)?;
                return Ok(None);
            };
            self.sequence += 1;
            match found.what {
                What::Mark { durable } => self.durable = self.durable.max(durable),
                What::Begin(begin) => {
                    self.durable = self.durable.max(begin.durable);
                    if begin.opened {
                        return Ok(Some(found));
                    }
                }
                What::Batch { .. } => return Ok(Some(found)),
            }
        }
    }

    /// The segment being read.
    fn current(&mut self) -> Option<&mut Found> {
        self.segments.get_mut(*self.live.get(self.at)?)
    }

    /// The reader of the segment being read, and the segment.
    pub(crate) fn reading(&mut self) -> Option<(&SegmentReader, &mut Found)> {
        let found = self.segments.get_mut(*self.live.get(self.at)?)?;
        Some((self.reader.as_ref()?, found))
    }

    /// Which segments make up the run, up to the one being read.
    pub(crate) fn reached(&self) -> &[usize] {
        self.live.get(..=self.at).unwrap_or(&self.live)
    }

    /// The record that follows, moving on to the next segment where one begins.
    fn read(&mut self) -> Result<Option<Located>> {
        loop {
            let Some(index) = self.live.get(self.at) else { return Ok(None) };
            let Some(found) = self.segments.get(*index) else { return Ok(None) };
            let reader = match &mut self.reader {
                Some(reader) => reader,
                none => none.insert(open(&self.source, self.lane, found.id)?),
            };
            if self.sequence < found.limit {
                return reader.next(self.sequence);
            }
            if self.at + 1 >= self.live.len() {
                return Ok(None);
            }
            self.leave();
            self.at += 1;
        }
    }

    /// Closes the segment being read.
    fn leave(&mut self) {
        let reader = self.reader.take();
        if let (Some(reader), Some(found)) = (reader, self.current()) {
            found.tail = reader.at();
        }
    }

    /// What the end of the run means.
    fn examine(&mut self) -> Result<End> {
        if let Some(error) = self.broken.take() {
            return Ok(End::Damaged(error));
        }
        let (Some(index), Some(reader)) = (self.live.get(self.at), self.reader.as_mut()) else {
            return Ok(End::Clean);
        };
        if let Some(error) = reader.shortened()
            && index + 1 == self.segments.len()
        {
            return Ok(End::Damaged(error));
        }
        let mut survey = reader.survey();
        for found in self.segments.get(index + 1..).unwrap_or_default() {
            match &found.state {
                State::Blank | State::Unmade(_) => continue,
                State::Begun(begin, _) => survey.durable = survey.durable.max(begin.durable),
                State::Headless(_) | State::Damaged(_) => {}
            }
            survey.dirty = true;
            if !matches!(found.state, State::Damaged(_)) {
                let marks = open(&self.source, self.lane, found.id)?.survey();
                survey.durable = survey.durable.max(marks.durable);
                survey.unreadable = survey.unreadable.or(marks.unreadable);
            }
        }
        // What cannot be read might say that the lane was durable further.
        if let Some(error) = survey.unreadable {
            return Ok(End::Damaged(error));
        }
        if self.sequence < survey.durable {
            let error = reader.explain(self.sequence).expected(format_args!(
                "record {} of lane {}, which was durable below {}",
                self.sequence, self.lane, survey.durable
            ));
            return Ok(End::Damaged(error));
        }
        Ok(if survey.dirty { End::Torn } else { End::Clean })
    }

    /// # Errors
    /// The damage, where recovery is strict; what is none, as a shortage of memory, always: nothing
    /// is given up for it.
    fn finish(&mut self, end: End) -> Result<()> {
        if let End::Damaged(error) = &end
            && (self.source.recover == Recover::Strict || error.kind() != ErrorKind::Corrupt)
        {
            return Err(error.clone());
        }
        if let Some(tail) = self.reader.as_ref().map(SegmentReader::at)
            && let Some(found) = self.current()
        {
            found.tail = tail;
        }
        self.end = Some(end);
        Ok(())
    }

    /// Ends replay before `head`, the record last read.
    pub(crate) fn cut(&mut self, head: &Located) {
        self.sequence = head.sequence;
        if let Some(found) = self.current() {
            found.tail = head.offset;
        }
        self.end.get_or_insert(End::Torn);
    }

    /// Where replay ended, where something follows.
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
}

/// The damage where the segment that the lane begins with is missing: it is begun durably before it is
/// recorded, and stays until a later one is. A lane to which nothing is appended may end before that; that
/// there is no log at all is for who knows that there was one.
fn lost_start(source: &Source, lane: LaneId, ids: &[SegmentId]) -> Option<Error> {
    let (_, start) = source.start.iter().find(|(of, _)| *of == lane && lane == LANE)?;
    let first = ids.first().filter(|first| **first != start)?;
    Some(
        Error::corrupt("commit log")
            .at(segment_name(lane, start))
            .expected("the segment that it begins with")
            .got(format_args!("`{}`", segment_name(lane, *first))),
    )
}

/// True where the next segment in use, if there is one, was made by an open.
fn opened_behind(segments: &[Found], index: usize) -> bool {
    let mut behind = segments.iter().skip(index + 1);
    behind.find_map(|found| found.state.begin()).is_none_or(|(begin, _)| begin.opened)
}

/// A reader of a segment whose header was read before.
pub(crate) fn open(source: &Source, lane: LaneId, id: SegmentId) -> Result<SegmentReader> {
    let Source { medium, store, purpose, account, .. } = source;
    let (reader, header) = SegmentReader::open(&**medium, (lane, id), *store, *purpose, account)?;
    header.map(|_| reader)
}

fn find(source: &Source, lane: LaneId, id: SegmentId) -> Result<State> {
    let Source { medium, store, purpose, account, .. } = source;
    let (mut reader, header) =
        SegmentReader::open(&**medium, (lane, id), *store, *purpose, account)?;
    if let Err(error) = header {
        return match error.kind() {
            ErrorKind::Corrupt if reader.survey().is_clean() => Ok(State::Unmade(error)),
            ErrorKind::Corrupt => Ok(State::Damaged(error)),
            _ => Err(error),
        };
    }
    if let Some((begin, seqno)) = reader.begin()? {
        return Ok(State::Begun(begin, seqno));
    }
    if let Some(error) = reader.shortened() {
        return Ok(State::Damaged(error));
    }
    // A Begin that was being stored when the power went is torn, but has nothing behind it.
    let error = Error::corrupt("first record of a log segment")
        .at(segment_name(lane, id))
        .expected("a Begin, which was durable");
    reader.skip(BEGIN_BYTES as u64);
    Ok(if reader.survey().is_clean() { State::Blank } else { State::Headless(error) })
}

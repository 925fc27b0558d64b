//! The reader of one segment, front to back, in memory bounded by the largest record.

mod search;

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{
    Account, Charge, Error, LaneId, Result, SegmentId, StoreId, broken_invariant, invariant,
};
use media::{Access, Buf, File, Medium, Purpose};

use crate::header::SegmentHeader;
use crate::name::segment_name;
use crate::record::{
    Begin, Content, FIXED_BYTES, Keyspaces, MARK_BYTES, Record, parse_record, record_bytes,
};
pub(crate) use search::Wanted;

const PAGE: u64 = PAGE_BYTES as u64;

/// A page of free space.
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Bytes per device read.
const CHUNK_BYTES: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    file: Arc<dyn File>,
    purpose: Purpose,
    seed: u32,
    /// The end of the file, and the file length that the header states.
    end: u64,
    capacity: u64,
    /// Offset at which the next record is expected.
    at: u64,
    /// Whether the record read last says that the segment ends after it.
    ended: bool,
    /// Bytes of which searches computed checksums.
    checked: u64,
    /// Groups, and the records that follow a sync, begin at multiples of this, bytes.
    unit: u64,
    window: Window,
}

/// A record that was read: its position and all its fields but the keyspaces and body, which
/// [`SegmentReader::keyspaces`] and [`SegmentReader::body`] return until the next read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocatedRecord {
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) sequence: u64,
    pub(crate) seqno: u64,
    pub(crate) content: LocatedContent,
}

impl LocatedRecord {
    /// The first seqno after the record.
    pub(crate) const fn next_seqno(&self) -> u64 {
        match self.content {
            LocatedContent::Batch { ops, .. } => self.seqno + ops as u64,
            LocatedContent::Gap { count } => self.seqno + count,
            LocatedContent::Mark { .. } | LocatedContent::Begin(_) => self.seqno,
        }
    }
}

/// As [`Content`], with lengths in place of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LocatedContent {
    Batch { ops: u32, keyspaces: usize, body: usize },
    Mark { durable: u64 },
    Begin(Begin),
    Gap { count: u64 },
}

/// A survey of the bytes after the last readable record.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// According to Marks there, the lane was durable below this lane sequence.
    pub(crate) durable: u64,
    /// Whether anything was ever stored there.
    pub(crate) dirty: bool,
    /// The error of the first page that the device could not read.
    pub(crate) unreadable: Option<Error>,
}

impl Survey {
    /// Whether certainly nothing was ever stored there.
    pub(crate) const fn is_clean(&self) -> bool {
        !self.dirty && self.unreadable.is_none()
    }
}

impl SegmentReader {
    /// Opens a segment's file and reads its header, which may be damaged. With `by_page`, a chunk that
    /// the device cannot read is read again page by page, so that an unreadable page costs no other
    /// page.
    pub(crate) fn open(
        medium: &dyn Medium,
        lane: LaneId,
        segment: SegmentId,
        store: Option<StoreId>,
        purpose: Purpose,
        by_page: bool,
        account: &Account,
    ) -> Result<(Self, Result<SegmentHeader>)> {
        let name = segment_name(lane, segment);
        let file = medium.open(&name, Access::Bytes)?;
        let end = file.size()?.next_multiple_of(PAGE);
        let window = Window::new(by_page, account)?;
        let mut reader = Self {
            file,
            purpose,
            seed: 0,
            end,
            capacity: 0,
            at: PAGE,
            ended: false,
            checked: 0,
            unit: PAGE,
            window,
        };
        let header = reader.bytes(0, PAGE_BYTES).and_then(SegmentHeader::decode);
        let header = header.and_then(|header| {
            header.check(store, lane, segment)?;
            Ok(header)
        });
        let header = header.map_err(|error| error.at(&name));
        if let Ok(header) = &header {
            reader.seed = header.seed();
            reader.capacity = header.capacity;
            reader.unit = header.unit();
        }
        Ok((reader, header))
    }

    /// Sets the seed of a segment with a damaged header from the identity that its name gives.
    pub(crate) fn assume_identity(&mut self, store: StoreId, lane: LaneId, segment: SegmentId) {
        self.seed = SegmentHeader::seed_of(store, lane, segment);
    }

    /// The damage if the file is shorter than its header states and its last record does not account for
    /// it.
    pub(crate) fn shortened(&self) -> Option<Error> {
        (self.end < self.capacity && !self.ended).then(|| {
            Error::corrupt("log segment's length")
                .at(self.file.name())
                .expected(self.capacity)
                .got(self.end)
        })
    }

    /// Bytes of which searches computed checksums.
    #[cfg(test)]
    pub(crate) const fn checked(&self) -> u64 {
        self.checked
    }

    /// Whether the file has `bytes` bytes.
    pub(crate) fn reaches(&self, bytes: u64) -> Result<bool> {
        Ok(self.file.size()? >= bytes)
    }

    /// Offset at which the next record is expected.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// The segment's Begin, and the next seqno there; `None` if its first record is no Begin.
    pub(crate) fn begin(&mut self) -> Result<Option<(Begin, u64)>> {
        self.at = PAGE;
        let found = self.parse(PAGE, None)?.ok();
        Ok(found.and_then(|found| match found.content {
            LocatedContent::Begin(begin) => Some((begin, found.seqno)),
            _ => None,
        }))
    }

    /// Groups, and the records that follow a sync, begin at multiples of this, bytes.
    pub(crate) const fn unit(&self) -> u64 {
        self.unit
    }

    /// The record of lane sequence `sequence` if it follows: at the current offset or, as after a sync,
    /// at the next unit. `None` leaves the offset as it is.
    ///
    /// # Errors
    /// The device's. Bytes that are not that record are no error.
    pub(crate) fn next(&mut self, sequence: u64) -> Result<Option<LocatedRecord>> {
        let unit = self.at.next_multiple_of(self.unit);
        let mut found = self.parse(self.at, Some(sequence))?;
        if found.is_err() && unit > self.at {
            found = self.parse(unit, Some(sequence))?;
        }
        let found = found.ok();
        Ok(found.inspect(|found| self.move_past(found)))
    }

    fn move_past(&mut self, found: &LocatedRecord) {
        invariant!(self.at <= found.offset, "a segment is read front to back");
        invariant!(found.end <= self.end, "a record ends in its file");
        self.at = found.end;
        self.ended = found.offset > PAGE && matches!(found.content, LocatedContent::Begin(_));
    }

    /// Why the record of lane sequence `sequence` is not at the current offset.
    pub(crate) fn explain(&mut self, sequence: u64) -> Error {
        let why = match self.parse(self.at, Some(sequence)) {
            Ok(Err(Refusal::Nothing)) | Ok(Ok(_)) => {
                Error::corrupt("log record").expected("a record").got("none")
            }
            Ok(Err(Refusal::Other(found))) => {
                Error::corrupt("log record").got(format_args!("lane sequence {found} (low half)"))
            }
            Ok(Err(Refusal::Damaged(error))) | Err(error) => error,
        };
        why.at(format_args!("offset {}", self.at)).at(self.file.name())
    }

    /// The keyspaces of the record just read.
    pub(crate) fn keyspaces(&self, found: &LocatedRecord) -> Result<Keyspaces<'_>> {
        let LocatedContent::Batch { keyspaces, body, .. } = found.content else {
            return Ok(Keyspaces::none());
        };
        let end = found.end - body as u64;
        self.window.get_record(end - keyspaces as u64, keyspaces).map(Keyspaces::of)
    }

    /// The body of the record just read.
    pub(crate) fn body(&self, found: &LocatedRecord) -> Result<&[u8]> {
        let LocatedContent::Batch { body, .. } = found.content else { return Ok(&[]) };
        self.window.get_record(found.end - body as u64, body)
    }

    /// The whole record just read, as stored.
    pub(crate) fn record(&self, found: &LocatedRecord) -> Result<&[u8]> {
        let len = (found.end - found.offset) as usize;
        self.window.get_record(found.offset, len)
    }

    /// Moves to the offset `at`.
    pub(crate) const fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// Surveys the bytes from the current offset to the end of the segment.
    pub(crate) fn survey(&mut self) -> Survey {
        let mut survey = Survey::default();
        let mut at = self.at;
        while at < self.end {
            let (seed, starts_unit) = (self.seed, at.is_multiple_of(self.unit));
            let next = (at + 1).next_multiple_of(self.unit);
            match self.bytes(at, (next - at) as usize) {
                Err(error) => survey.unreadable = survey.unreadable.or(Some(error)),
                Ok(bytes) if ZEROS.starts_with(bytes) => {}
                Ok(bytes) => {
                    survey.dirty = true;
                    if starts_unit
                        && record_bytes(bytes) == Some(MARK_BYTES)
                        && let Ok(Record { content: Content::Mark { durable }, .. }) =
                            parse_record(seed, bytes)
                    {
                        survey.durable = survey.durable.max(durable);
                    }
                }
            }
            at = next;
        }
        survey
    }

    /// The record at `at`; if `sequence` is given, only with that lane sequence.
    fn parse(&mut self, at: u64, sequence: Option<u64>) -> Result<Result<LocatedRecord, Refusal>> {
        let seed = self.seed;
        let room = self.end.saturating_sub(at);
        if room < FIXED_BYTES as u64 {
            return Ok(Err(Refusal::Nothing));
        }
        let Some(whole) = record_bytes(self.bytes(at, FIXED_BYTES)?) else {
            return Ok(Err(Refusal::Nothing));
        };
        if whole as u64 > room {
            return Ok(Err(Refusal::Damaged(
                Error::corrupt("log record")
                    .expected(format_args!("at most {room} bytes"))
                    .got(whole),
            )));
        }
        Ok(match parse_record(seed, self.bytes(at, whole)?) {
            Err(error) => Err(Refusal::Damaged(error)),
            Ok(record) if sequence.is_some_and(|sequence| !record.may_be(sequence)) => {
                Err(Refusal::Other(record.sequence))
            }
            Ok(record) => Ok(LocatedRecord {
                offset: at,
                end: at + whole as u64,
                sequence: sequence.unwrap_or(u64::from(record.sequence)),
                seqno: record.seqno.get(),
                content: match record.content {
                    Content::Batch { ops, keyspaces, body } => LocatedContent::Batch {
                        ops,
                        keyspaces: keyspaces.bytes(),
                        body: body.len(),
                    },
                    Content::Mark { durable } => LocatedContent::Mark { durable },
                    Content::Begin(begin) => LocatedContent::Begin(begin),
                    Content::Gap { count } => LocatedContent::Gap { count },
                },
            }),
        })
    }

    fn bytes(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        self.window.load(&*self.file, at, len, self.end, self.purpose)?;
        self.window.get(at, len).ok_or_else(|| {
            Error::corrupt("log segment")
                .at(format_args!("offset {at}"))
                .at(self.file.name())
                .expected(format_args!("{len} bytes"))
                .got("the end of the file")
        })
    }
}

/// Why bytes are not the expected record.
#[derive(Debug)]
enum Refusal {
    /// Free space: no record begins with these bytes.
    Nothing,
    /// A sound record with another lane sequence: its low half.
    Other(u32),
    Damaged(Error),
}

/// A range of the file in memory.
#[derive(Debug)]
struct Window {
    /// File offset of the range; a multiple of a page.
    start: u64,
    bytes: Vec<u8>,
    chunk: Option<Buf>,
    /// Whether to read page by page if the device cannot read a chunk.
    by_page: bool,
    /// Two chunks; more while a larger record is read.
    charge: Charge,
}

impl Window {
    fn new(by_page: bool, account: &Account) -> Result<Self> {
        let charge = account.charge(2 * CHUNK_BYTES as u64)?;
        let chunk = Some(Buf::pages(CHUNK_BYTES / PAGE_BYTES));
        Ok(Self { start: 0, bytes: Vec::new(), chunk, by_page, charge })
    }

    fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }

    /// Bytes of the record read last.
    fn get_record(&self, at: u64, len: usize) -> Result<&[u8]> {
        self.get(at, len).ok_or_else(|| broken_invariant!("the record read last is in memory"))
    }

    /// Reads the `len` bytes at `at` into the window. The file ends at `end`.
    fn load(
        &mut self,
        file: &dyn File,
        at: u64,
        len: usize,
        end: u64,
        purpose: Purpose,
    ) -> Result<()> {
        if self.get(at, len).is_some() || at + len as u64 > end {
            return Ok(());
        }
        let first = at / PAGE * PAGE;
        match usize::try_from(first.saturating_sub(self.start)) {
            Ok(gone) if first >= self.start && gone <= self.bytes.len() => {
                self.bytes.drain(..gone);
            }
            _ => self.bytes.clear(),
        }
        self.start = first;
        // The caller checked the length against the file.
        let most = (at - first) as usize + len + CHUNK_BYTES;
        if most as u64 > self.charge.bytes() {
            self.charge.grow(most as u64 - self.charge.bytes())?;
        }
        self.bytes.reserve_exact(most.saturating_sub(self.bytes.len()));
        let mut step = CHUNK_BYTES;
        while self.get(at, len).is_none() {
            let from = self.start + self.bytes.len() as u64;
            let left = usize::try_from(end - from).unwrap_or(usize::MAX);
            let whole = left.min(step);
            let buf = match self.chunk.take() {
                Some(buf) if whole == buf.len() => buf,
                _ => Buf::pages(whole / PAGE_BYTES),
            };
            let (buf, result) = file.read(from, buf, purpose);
            if result.is_ok() {
                let read = buf.get(..whole);
                let read = read.ok_or_else(|| broken_invariant!("a read fills its buffer"))?;
                self.bytes.extend_from_slice(read);
            }
            self.chunk = (buf.len() == CHUNK_BYTES).then_some(buf);
            if result.is_err() && self.by_page && step > PAGE_BYTES {
                step = PAGE_BYTES;
                continue;
            }
            result?;
        }
        invariant!(self.bytes.len() as u64 <= self.charge.bytes(), "bytes in memory are charged");
        Ok(())
    }
}

//! Reads one segment, front to back, in memory bounded by its largest record.

mod search;

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, LaneId, Result, SegmentId, StoreId};
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

/// How much is asked of the device at once.
const CHUNK_BYTES: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    file: Arc<dyn File>,
    purpose: Purpose,
    seed: u32,
    /// The end of the file, and where its header says it should be.
    end: u64,
    capacity: u64,
    /// Where the next record is looked for.
    at: u64,
    /// Whether the record before it says that the segment ends there.
    ended: bool,
    /// The bytes of which searches computed checksums.
    checked: u64,
    window: Window,
}

/// A record that was read: where it lies, and all it says but its keyspaces and body, which
/// [`SegmentReader::keyspaces`] and [`SegmentReader::body`] give until the next read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) sequence: u64,
    pub(crate) seqno: u64,
    pub(crate) what: What,
}

impl Located {
    /// The first seqno behind it.
    pub(crate) const fn next_seqno(&self) -> u64 {
        match self.what {
            What::Batch { ops, .. } => self.seqno + ops as u64,
            What::Mark { .. } | What::Begin(_) => self.seqno,
        }
    }
}

/// As [`Content`], with lengths for bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Batch { ops: u32, keyspaces: usize, body: usize },
    Mark { durable: u64 },
    Begin(Begin),
}

/// What lies behind the last record that could be read.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The lane was durable below this lane sequence, as Marks say.
    pub(crate) durable: u64,
    /// True where anything was ever stored there.
    pub(crate) dirty: bool,
    /// The device's first refusal to read a page.
    pub(crate) unreadable: Option<Error>,
}

impl Survey {
    /// True where surely nothing was ever stored there.
    pub(crate) const fn is_clean(&self) -> bool {
        !self.dirty && self.unreadable.is_none()
    }
}

impl SegmentReader {
    /// Opens a segment's file, and reads its header, which may be damaged. `by_page`, a page that
    /// cannot be read costs no other, and is asked for twice.
    pub(crate) fn open(
        medium: &dyn Medium,
        (lane, segment): (LaneId, SegmentId),
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
        }
        Ok((reader, header))
    }

    /// Reads the records of a segment whose header is damaged: its name says whose they are.
    pub(crate) fn assume(&mut self, store: StoreId, lane: LaneId, segment: SegmentId) {
        self.seed = SegmentHeader { store, lane, segment, capacity: 0 }.seed();
    }

    /// What is wrong with the file's length, where it was cut and no record read last says so.
    pub(crate) fn shortened(&self) -> Option<Error> {
        (self.end < self.capacity && !self.ended).then(|| {
            Error::corrupt("log segment's length")
                .at(self.file.name())
                .expected(self.capacity)
                .got(self.end)
        })
    }

    /// The bytes of which searches computed checksums.
    #[cfg(test)]
    pub(crate) const fn checked(&self) -> u64 {
        self.checked
    }

    /// Where the next record is looked for.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// Where in the lane the segment begins, and the next seqno there; `None` where it does not
    /// say so.
    pub(crate) fn begin(&mut self) -> Result<Option<(Begin, u64)>> {
        self.at = PAGE;
        let found = self.parse(PAGE, None)?.ok();
        Ok(found.and_then(|found| match found.what {
            What::Begin(begin) => Some((begin, found.seqno)),
            _ => None,
        }))
    }

    /// The record of lane sequence `sequence`, if it follows: right here, or where the next page
    /// begins, as it does after a sync. `None` leaves the position as it is.
    ///
    /// # Errors
    /// As the device's. Bytes that are not that record are no error.
    pub(crate) fn next(&mut self, sequence: u64) -> Result<Option<Located>> {
        let page = self.at.next_multiple_of(PAGE);
        let mut found = self.parse(self.at, Some(sequence))?;
        if found.is_err() && page > self.at {
            found = self.parse(page, Some(sequence))?;
        }
        let found = found.ok();
        Ok(found.inspect(|found| self.go_behind(found)))
    }

    const fn go_behind(&mut self, found: &Located) {
        self.at = found.end;
        self.ended = found.offset > PAGE && matches!(found.what, What::Begin(_));
    }

    /// Why there is no record of lane sequence `sequence` here.
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
    pub(crate) fn keyspaces(&self, found: &Located) -> Keyspaces<'_> {
        let What::Batch { keyspaces, body, .. } = found.what else { return Keyspaces::none() };
        let end = found.end - body as u64;
        Keyspaces::of(self.window.get(end - keyspaces as u64, keyspaces).unwrap_or_default())
    }

    /// The body of the record just read.
    pub(crate) fn body(&self, found: &Located) -> &[u8] {
        let What::Batch { body, .. } = found.what else { return &[] };
        self.window.get(found.end - body as u64, body).unwrap_or_default()
    }

    /// The whole record just read, as stored.
    pub(crate) fn record(&self, found: &Located) -> &[u8] {
        let len = (found.end - found.offset) as usize;
        self.window.get(found.offset, len).unwrap_or_default()
    }

    /// Goes to `at`.
    pub(crate) const fn go_to(&mut self, at: u64) {
        self.at = at;
    }

    /// Looks through everything from here to the end of the segment.
    pub(crate) fn survey(&mut self) -> Survey {
        let mut survey = Survey::default();
        let mut at = self.at;
        while at < self.end {
            let (seed, starts_page) = (self.seed, at.is_multiple_of(PAGE));
            let next = (at + 1).next_multiple_of(PAGE);
            match self.bytes(at, (next - at) as usize) {
                Err(error) => survey.unreadable = survey.unreadable.or(Some(error)),
                Ok(bytes) if ZEROS.starts_with(bytes) => {}
                Ok(bytes) => {
                    survey.dirty = true;
                    if starts_page
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

    /// The record at `at`; of lane sequence `sequence`, where one is given.
    fn parse(&mut self, at: u64, sequence: Option<u64>) -> Result<Result<Located, Refusal>> {
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
            Ok(record) => Ok(Located {
                offset: at,
                end: at + whole as u64,
                sequence: sequence.unwrap_or(u64::from(record.sequence)),
                seqno: record.seqno.get(),
                what: match record.content {
                    Content::Batch { ops, keyspaces, body } => {
                        What::Batch { ops, keyspaces: keyspaces.bytes(), body: body.len() }
                    }
                    Content::Mark { durable } => What::Mark { durable },
                    Content::Begin(begin) => What::Begin(begin),
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

/// Why bytes are not the record that was looked for.
#[derive(Debug)]
enum Refusal {
    /// No record can begin so: free space.
    Nothing,
    /// A sound record of another lane sequence, of which this is the low half.
    Other(u32),
    Damaged(Error),
}

/// A run of the file in memory.
#[derive(Debug)]
struct Window {
    /// Where in the file it begins: at a page.
    start: u64,
    bytes: Vec<u8>,
    chunk: Option<Buf>,
    /// Whether pages are asked for one by one where a chunk cannot be read.
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

    /// Brings `len` bytes at `at` into the window, of a file that ends at `end`.
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
        // The length was checked against the file before it was asked for.
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
                self.bytes.extend_from_slice(buf.get(..whole).unwrap_or_default());
            }
            self.chunk = (buf.len() == CHUNK_BYTES).then_some(buf);
            if result.is_err() && self.by_page && step > PAGE_BYTES {
                step = PAGE_BYTES;
                continue;
            }
            result?;
        }
        Ok(())
    }
}

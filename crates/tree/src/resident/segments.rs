//! The segments of the log that hold entries of resident keyspaces, by the numbers that places have.
//!
//! A number is given when the first entry is noted, and is free again once the segment is removed and no
//! index points into it. One set for all resident keyspaces of a store.
//!
//! A record of several operations is verified once, when one of them is read first; a record of one operation
//! whenever it is read.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::{
    Account, Charge, Error, LaneId, Result, SegmentId, Seqno, StoreId, broken_invariant,
    format_bytes, moved_first_at,
};
use media::Medium;
use parking_lot::{Mutex, RwLock};
use wal::{RecordAddress, StoredSegment};

use super::checkpoint::SegmentPart;
use super::place::{Place, SEGMENTS_MAX};

/// Writes are refused while fewer numbers are free: more than the lanes of a log can begin segments before
/// the next write is admitted.
const FREE_MIN: usize = 4096;

/// Set in the start of a record that was verified; offsets have 28 bits.
const VERIFIED: u32 = 1 << 31;

/// Set in the start of a record of moved operations.
const MOVED: u32 = 1 << 30;

/// The bits of an offset.
const OFFSET: u32 = MOVED - 1;

/// The offset of a record.
fn offset(record: &AtomicU32) -> u64 {
    u64::from(record.load(Ordering::Relaxed) & OFFSET)
}

/// See the module.
pub struct LogSegments {
    medium: Arc<dyn Medium>,
    store: StoreId,
    numbers: RwLock<Numbers>,
    /// Charged for what is known of segments: 4 bytes for each record of several operations.
    account: Account,
}

#[derive(Default)]
struct Numbers {
    segments: Vec<Option<Arc<LogSegment>>>,
    known: HashMap<(LaneId, SegmentId), u16>,
    free: Vec<u16>,
}

/// A segment with entries.
pub struct LogSegment {
    stored: StoredSegment,
    /// Slots of indexes that point into it.
    live: AtomicU64,
    /// Operations of resident keyspaces that were noted, and their length, bytes.
    noted: AtomicU64,
    noted_bytes: AtomicU64,
    /// As [`LogSegment::tombstones_end`]; 0: not known.
    tombstones_end: AtomicU64,
    /// The offsets of the records of several operations, in order.
    records: RwLock<Vec<AtomicU32>>,
    charge: Mutex<Charge>,
}

impl LogSegment {
    /// The segment.
    pub(super) const fn stored(&self) -> &StoredSegment {
        &self.stored
    }

    /// Its lane and number.
    pub fn id(&self) -> (LaneId, SegmentId) {
        (self.stored.lane(), self.stored.segment())
    }

    /// Slots of indexes that point into it.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Acquire)
    }

    /// A slot of an index points into it.
    pub(super) fn add(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
    }

    /// A slot of an index does not point into it any more.
    pub(super) fn drop_one(&self) {
        let before = self.live.fetch_sub(1, Ordering::AcqRel);
        base::invariant!(before > 0, "an entry is counted before it is replaced");
    }

    /// The offset of the record of `place`, and that of its operation if the record has several.
    pub(super) fn record_of(&self, place: Place) -> Result<(u64, Option<u64>)> {
        if place.is_record() {
            return Ok((place.offset(), None));
        }
        let records = self.records.read();
        let after = records.partition_point(|record| offset(record) <= place.offset());
        let start = after.checked_sub(1).and_then(|at| records.get(at)).map(offset);
        let start = start.ok_or_else(|| {
            broken_invariant!("an operation of a batch lies behind the start of its record")
        })?;
        Ok((start, Some(place.offset())))
    }

    /// Verifies the record of several operations at `start`, unless that was done before.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged; the device's.
    pub(super) fn verify(&self, start: u64) -> Result<()> {
        if !self.with_record(start, |record| record.load(Ordering::Acquire) & VERIFIED != 0) {
            self.stored.verify(start)?;
            self.with_record(start, |record| record.fetch_or(VERIFIED, Ordering::Release) != 0);
        }
        Ok(())
    }

    fn with_record(&self, start: u64, then: impl FnOnce(&AtomicU32) -> bool) -> bool {
        let records = self.records.read();
        let at = records.partition_point(|record| offset(record) < start);
        records.get(at).filter(|record| offset(record) == start).is_some_and(then)
    }

    /// The bytes of its live entries, about: as if all operations had the same length.
    pub fn live_bytes(&self) -> u64 {
        let noted = self.noted.load(Ordering::Relaxed).max(1);
        let bytes = u128::from(self.noted_bytes.load(Ordering::Relaxed));
        let live = u128::from(self.live().min(noted));
        u64::try_from(bytes * live / u128::from(noted)).unwrap_or(u64::MAX)
    }

    /// The length of copies of its live entries, bytes, about: as [`LogSegment::live_bytes`].
    pub fn copied_bytes(&self) -> u64 {
        /// Kind, keyspace, the two lengths, and the first seqno.
        const HEAD_BYTES: u64 = 14;
        self.live_bytes() + HEAD_BYTES * self.live()
    }

    /// The length of all operations that were noted, bytes.
    pub fn noted_bytes(&self) -> u64 {
        self.noted_bytes.load(Ordering::Relaxed)
    }

    fn count_op(&self, bytes: usize) {
        self.noted.fetch_add(1, Ordering::Relaxed);
        self.noted_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Every record that may have an older version of a key with a tombstone here has a seqno below this one.
    /// `None` if it is not known.
    pub fn tombstones_end(&self) -> Option<Seqno> {
        let end = self.tombstones_end.load(Ordering::Acquire);
        (end > 0).then(|| Seqno::new(end))
    }

    /// Raises [`LogSegment::tombstones_end`] for a tombstone that was added.
    pub(super) fn raise_tombstones_end(&self, end: Seqno) {
        self.tombstones_end.fetch_max(end.get(), Ordering::AcqRel);
    }

    /// The first seqno of the record that first had the operation at `place`, if it was moved there.
    pub(super) fn moved_first(&self, place: Place) -> Result<Option<Seqno>> {
        let (start, Some(at)) = self.record_of(place)? else { return Ok(None) };
        self.first_of_moved(start, at)
    }

    /// The first seqno of the record that first had the operation at `place`.
    pub(super) fn first_at(&self, place: Place) -> Result<Seqno> {
        let (start, _) = self.record_of(place)?;
        let moved = self.moved_first(place)?;
        moved.map_or_else(|| Ok(self.stored.extent(start)?.0), Ok)
    }

    /// As [`LogSegment::moved_first`], of the operation at `at` of the record at `start`.
    pub(super) fn first_of_moved(&self, start: u64, at: u64) -> Result<Option<Seqno>> {
        if !self.with_record(start, |record| record.load(Ordering::Relaxed) & MOVED != 0) {
            return Ok(None);
        }
        let mut first = [0; 8];
        self.stored.load(moved_first_at(at), &mut first)?;
        Seqno::try_from(u64::from_le_bytes(first)).map(Some)
    }

    /// Notes a record of several operations, or of moved ones.
    fn note_record(&self, start: u32, is_moved: bool) {
        let mut records = self.records.write();
        let at = records.partition_point(|record| offset(record) < u64::from(start));
        if records.get(at).is_some_and(|record| offset(record) == u64::from(start)) {
            return;
        }
        if records.len() == records.capacity() {
            let more = records.capacity().max(16);
            // The account lends.
            let _ = self.charge.lock().grow((more * size_of::<AtomicU32>()) as u64);
            records.reserve_exact(more);
        }
        records.insert(at, AtomicU32::new(start | if is_moved { MOVED } else { 0 }));
    }
}

#[cold]
fn too_far() -> Error {
    let most = format_bytes(u64::from(OFFSET) + 1);
    broken_invariant!("a record of a resident keyspace ends within the first part of its segment")
        .expected(format_args!("below {most}"))
}

impl fmt::Debug for LogSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?} live", self.stored, self.live())
    }
}

impl LogSegments {
    /// The segments of the log of `store`, whose files are on `medium`.
    pub fn new(medium: &Arc<dyn Medium>, store: StoreId, account: &Account) -> Arc<Self> {
        let (numbers, account) = (RwLock::default(), account.lending());
        Arc::new(Self { medium: Arc::clone(medium), store, numbers, account })
    }

    /// Refuses a write if the log has nearly as many segments as places can tell apart.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn check_room(&self) -> Result<()> {
        let used = self.numbers.read().known.len();
        if used + FREE_MIN <= SEGMENTS_MAX {
            return Ok(());
        }
        Err(Error::no_space("log segments of resident keyspaces")
            .expected(format_args!("at most {}", SEGMENTS_MAX - FREE_MIN))
            .got(used))
    }

    /// The segment of `place`.
    pub(super) fn get(&self, place: Place) -> Result<Arc<LogSegment>> {
        let numbers = self.numbers.read();
        let found = numbers.segments.get(usize::from(place.segment())).and_then(Option::as_ref);
        found.cloned().ok_or_else(|| {
            broken_invariant!("the log keeps every segment that an index points into (I7)")
        })
    }

    /// Whether the segment of `place` is known.
    pub(super) fn knows(&self, place: Place) -> bool {
        let numbers = self.numbers.read();
        numbers.segments.get(usize::from(place.segment())).is_some_and(Option::is_some)
    }

    /// The segments.
    pub fn all(&self) -> Vec<Arc<LogSegment>> {
        self.numbers.read().segments.iter().flatten().cloned().collect()
    }

    /// Forgets a segment that no index points into and no memtable has a write in.
    pub fn forget(&self, lane: LaneId, segment: SegmentId) {
        let mut numbers = self.numbers.write();
        let Some(number) = numbers.known.remove(&(lane, segment)) else { return };
        let forgotten = numbers.segments.get_mut(usize::from(number)).and_then(Option::take);
        base::invariant!(
            forgotten.is_some_and(|it| it.live() == 0),
            "no index points into a segment that is forgotten"
        );
        numbers.free.push(number);
    }

    /// The place of the operation at `op` bytes within the batch of `ops` operations whose record is at
    /// `address` and whose body is `head` bytes behind that.
    ///
    /// # Errors
    /// Only if an invariant is broken: writes are admitted while there is room.
    pub(super) fn place(
        &self,
        address: RecordAddress,
        ops: u32,
        head: usize,
        (op, bytes): (usize, usize),
    ) -> Result<Place> {
        let (number, segment) = self.number(address.lane, address.segment)?;
        segment.count_op(bytes);
        if ops == 1 {
            return Place::new(number, address.offset, true).ok_or_else(too_far);
        }
        let start = u32::try_from(address.offset).map_err(|_| too_far())?;
        segment.note_record(start, false);
        Place::new(number, address.offset + (head + op) as u64, false).ok_or_else(too_far)
    }

    /// As [`LogSegments::place`], of a moved operation of `bytes` bytes.
    pub(super) fn place_of_moved(
        &self,
        address: RecordAddress,
        head: usize,
        (op, bytes): (usize, usize),
    ) -> Result<Place> {
        let (number, segment) = self.number(address.lane, address.segment)?;
        segment.count_op(bytes);
        let start = u32::try_from(address.offset).map_err(|_| too_far())?;
        segment.note_record(start, true);
        Place::new(number, address.offset + (head + op) as u64, false).ok_or_else(too_far)
    }

    /// What is known of the segments, for a checkpoint.
    pub fn parts(&self) -> Vec<SegmentPart> {
        /// Records of a part.
        const PART_RECORDS: usize = 100_000;
        let numbers = self.numbers.read();
        let mut parts = Vec::new();
        for (number, segment) in (0u16..=u16::MAX).zip(&numbers.segments) {
            let Some(segment) = segment else { continue };
            let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let noted = (of(&segment.noted), of(&segment.noted_bytes));
            let bits = |record: &AtomicU32| record.load(Ordering::Relaxed) & !VERIFIED;
            let all: Vec<u32> = segment.records.read().iter().map(bits).collect();
            let mut chunks: Vec<_> = all.chunks(PART_RECORDS).map(<[u32]>::to_vec).collect();
            if chunks.is_empty() {
                chunks.push(Vec::new());
            }
            let id = segment.id();
            parts.extend(chunks.into_iter().map(|records| SegmentPart {
                number,
                id,
                noted,
                records,
            }));
        }
        parts
    }

    /// Adds a part of what a checkpoint knows of a segment.
    ///
    /// # Errors
    /// `Corrupt` if another segment has the number, or the segment another number; `Retry` without memory.
    pub fn restore(&self, part: &SegmentPart) -> Result<()> {
        let (lane, id) = part.id;
        let damaged = || Error::corrupt("segment of an index checkpoint").at(part.number);
        let mut numbers = self.numbers.write();
        let at = usize::from(part.number);
        if numbers.segments.len() <= at {
            numbers.segments.resize(at + 1, None);
        }
        let found = numbers.segments.get(at).cloned().flatten();
        let segment = match (found, numbers.known.get(&part.id)) {
            (Some(segment), Some(number)) if *number == part.number => segment,
            (None, None) => {
                let segment = self.segment(lane, id);
                segment.noted.store(part.noted.0, Ordering::Relaxed);
                segment.noted_bytes.store(part.noted.1, Ordering::Relaxed);
                if let Some(slot) = numbers.segments.get_mut(at) {
                    *slot = Some(Arc::clone(&segment));
                }
                numbers.known.insert(part.id, part.number);
                segment
            }
            _ => return Err(damaged()),
        };
        let mut records = segment.records.write();
        let bytes = (part.records.len() * size_of::<AtomicU32>()) as u64;
        segment.charge.lock().grow(bytes)?;
        let mut last = records.last().map_or(0, offset);
        for record in &part.records {
            let record = AtomicU32::new(*record & !VERIFIED);
            if offset(&record) <= last {
                return Err(damaged());
            }
            last = offset(&record);
            records.push(record);
        }
        Ok(())
    }

    /// Ends the load of a checkpoint: forgets the segments that `is_there` refuses. Those that `is_read`
    /// again are noted again.
    pub fn restored(
        &self,
        is_there: impl Fn(LaneId, SegmentId) -> bool,
        is_read: impl Fn(LaneId, SegmentId) -> bool,
    ) {
        let mut numbers = self.numbers.write();
        let Numbers { segments, known, free } = &mut *numbers;
        known.retain(|(lane, id), _| is_there(*lane, *id));
        free.clear();
        for (number, slot) in (0u16..=u16::MAX).zip(segments.iter_mut()) {
            slot.take_if(|segment| !is_there(segment.id().0, segment.id().1));
            match slot {
                None => free.push(number),
                Some(segment) if is_read(segment.id().0, segment.id().1) => {
                    segment.noted.store(0, Ordering::Relaxed);
                    segment.noted_bytes.store(0, Ordering::Relaxed);
                }
                Some(_) => {}
            }
        }
    }

    fn segment(&self, lane: LaneId, id: SegmentId) -> Arc<LogSegment> {
        Arc::new(LogSegment {
            stored: StoredSegment::new(&self.medium, self.store, lane, id),
            live: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            noted_bytes: AtomicU64::new(0),
            tombstones_end: AtomicU64::new(0),
            records: RwLock::default(),
            charge: Mutex::new(self.account.empty_charge()),
        })
    }

    /// The number of a segment that has one.
    pub(super) fn known(&self, lane: LaneId, segment: SegmentId) -> Option<u16> {
        self.numbers.read().known.get(&(lane, segment)).copied()
    }

    /// The segment, if it has entries.
    pub fn of(&self, lane: LaneId, segment: SegmentId) -> Option<Arc<LogSegment>> {
        let numbers = self.numbers.read();
        let number = *numbers.known.get(&(lane, segment))?;
        numbers.segments.get(usize::from(number))?.clone()
    }

    /// Charged for what is known of segments, and for moves.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The medium with the segments, and the store that they belong to.
    pub fn medium(&self) -> (&Arc<dyn Medium>, StoreId) {
        (&self.medium, self.store)
    }

    /// The number of a segment, which gets one if it has none.
    fn number(&self, lane: LaneId, id: SegmentId) -> Result<(u16, Arc<LogSegment>)> {
        let known = |numbers: &Numbers| {
            let number = *numbers.known.get(&(lane, id))?;
            let segment = numbers.segments.get(usize::from(number))?.clone()?;
            Some((number, segment))
        };
        if let Some(found) = known(&self.numbers.read()) {
            return Ok(found);
        }
        let mut numbers = self.numbers.write();
        if let Some(found) = known(&numbers) {
            return Ok(found);
        }
        let segment = self.segment(lane, id);
        let number = match numbers.free.pop() {
            Some(number) => number,
            None => {
                let number = u16::try_from(numbers.segments.len()).map_err(|_| {
                    broken_invariant!("writes are refused before the segments have no number left")
                })?;
                numbers.segments.push(None);
                number
            }
        };
        if let Some(free) = numbers.segments.get_mut(usize::from(number)) {
            *free = Some(Arc::clone(&segment));
        }
        numbers.known.insert((lane, id), number);
        Ok((number, segment))
    }
}

impl fmt::Debug for LogSegments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogSegments({})", self.numbers.read().known.len())
    }
}

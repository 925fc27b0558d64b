//! The supply of segments: makes the next segments ahead of need, off the writers' path.
//!
//! A finished segment has its space reserved, and its header and name durable, so that no record in it
//! can be lost with the file. A segment that cannot be finished is removed, and the caller that needs it
//! gets the error.

mod reserve;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use base::limits::{KEYSPACES_MAX, PAGE_BYTES};
use base::{
    Account, Charge, Error, ErrorKind, LaneId, Result, SegmentId, StoreId, broken_invariant,
    format_bytes, invariant,
};
use media::{Access, File, Medium, Purpose, Space};
use parking_lot::Mutex;

use crate::header::{SegmentHeader, VERSION_FENCED, VERSION_GAPS, VERSION_PLAIN};
use crate::name::segment_name;
use crate::options::SEGMENT_BYTES_MIN;
use crate::retention::Retention;
use crate::shared::{LaneShared, count};

/// Memory of one live segment, bytes: its pins, and room for its file and name.
pub(crate) const SEGMENT_MEMORY: u64 = 16 * KEYSPACES_MAX as u64 + 1024;

/// This fraction of a device, as a divisor, is left free, or as much as the log has if that is more.
const LEAVE_FRACTION: u64 = 8;

/// This fraction of a device with resident keyspaces, as a divisor, is left free for deletes: what they add
/// must make more than that of the log's older bytes dead before the collector can free some.
const DELETES_FRACTION: u64 = 20;

/// A segment without records.
#[derive(Debug)]
pub(crate) struct FreshSegment {
    pub(crate) id: SegmentId,
    pub(crate) seed: u32,
    pub(crate) file: Arc<dyn File>,
    pub(crate) capacity: u64,
    /// Whether it may have Gaps.
    pub(crate) has_gaps: bool,
    pub(crate) charge: Charge,
}

/// The segments that a supply makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentSpec {
    pub(crate) store: StoreId,
    pub(crate) lane: LaneId,
    /// Length of a segment unless a record needs more, bytes.
    pub(crate) segment_bytes: u64,
    /// As [`crate::Options::first_segment_bytes`].
    pub(crate) first_segment_bytes: u64,
    /// As [`crate::Options::leave_bytes`].
    pub(crate) leave_bytes: u64,
    /// As [`crate::Options::has_gaps`].
    pub(crate) has_gaps: bool,
    /// Whether the lane is fenced: its segments may have Gaps, and their groups begin at write units.
    pub(crate) is_fenced: bool,
}

/// Makes segments of one lane.
#[derive(Debug)]
pub(crate) struct Supply {
    pub(crate) medium: Arc<dyn Medium>,
    spec: SegmentSpec,
    account: Account,
    shared: Arc<LaneShared>,
    retention: Arc<Retention>,
    /// Whether new segments may have Gaps. Changed only with `making` locked, from false to true.
    has_gaps: AtomicBool,
    /// The next id: ids are never reused (I8), and grow in the order of use. Held while a segment is
    /// made: a writer that runs out meanwhile waits for that segment instead of making a second one.
    making: Mutex<u64>,
    /// Length of the next segment unless a record needs more, bytes. Changed only with `making` locked.
    next_bytes: AtomicU64,
    /// Segments made ahead, in the order of use. Locked after `making`, and only briefly: a writer that
    /// finds a segment here does not wait.
    ready: Mutex<VecDeque<FreshSegment>>,
    /// The device had no space when a writer last needed a segment. A hint: `Relaxed`.
    is_full: AtomicBool,
    /// Segments that stay ready for moved records.
    reserved: AtomicUsize,
    /// What deletes took of the space that tables leave.
    taken_by_deletes: Mutex<TakenByDeletes>,
}

/// Space that deletes took since the log last freed a segment.
#[derive(Debug, Default)]
struct TakenByDeletes {
    bytes: u64,
    /// Segments freed until then.
    segments_freed: u64,
}

impl Supply {
    pub(crate) fn new(
        medium: &Arc<dyn Medium>,
        spec: SegmentSpec,
        next: u64,
        account: &Account,
        shared: &Arc<LaneShared>,
        retention: &Arc<Retention>,
    ) -> Self {
        Self {
            medium: Arc::clone(medium),
            spec,
            account: account.clone(),
            shared: Arc::clone(shared),
            retention: Arc::clone(retention),
            has_gaps: AtomicBool::new(spec.has_gaps || spec.is_fenced),
            making: Mutex::new(next),
            next_bytes: AtomicU64::new(spec.first_segment_bytes.min(spec.segment_bytes)),
            ready: Mutex::default(),
            is_full: AtomicBool::new(false),
            reserved: AtomicUsize::new(0),
            taken_by_deletes: Mutex::default(),
        }
    }

    /// The seed of the lane's segment.
    pub(crate) fn seed(&self, segment: SegmentId) -> u32 {
        let SegmentSpec { store, lane, .. } = self.spec;
        SegmentHeader::seed_of(store, lane, segment)
    }

    /// Whether the lane is fenced.
    pub(crate) const fn is_fenced(&self) -> bool {
        self.spec.is_fenced
    }

    /// Length of a whole segment, bytes.
    pub(crate) const fn segment_bytes(&self) -> u64 {
        self.spec.segment_bytes
    }

    /// Whether new segments may have Gaps.
    pub(crate) fn has_gaps(&self) -> bool {
        self.has_gaps.load(Ordering::Relaxed)
    }

    /// Length of the next segment unless a record needs more, bytes.
    pub(crate) fn next_bytes(&self) -> u64 {
        self.next_bytes.load(Ordering::Relaxed)
    }

    /// Doubles the length of later segments, up to that of a whole one.
    fn grow(&self) {
        let grown = self.next_bytes().saturating_mul(2).min(self.spec.segment_bytes);
        self.next_bytes.store(grown, Ordering::Relaxed);
    }

    /// Lets every later segment have Gaps. Those made ahead may not, so they are removed.
    pub(crate) fn allow_gaps(&self) -> Result<()> {
        let _making = self.making.lock();
        let mut ready = self.ready.lock();
        while let Some(first) = ready.front() {
            self.medium.remove(first.file.name())?;
            ready.pop_front();
        }
        self.has_gaps.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the next segment unless `ahead` are ready. Returns whether it made one.
    pub(crate) fn prepare(&self, ahead: usize) -> Result<bool> {
        let mut next = self.making.lock();
        let ahead = ahead + self.reserved.load(Ordering::Relaxed);
        if self.ready.lock().len() >= ahead {
            return Ok(false);
        }
        if !self.is_reserve() {
            self.check_reserve()?;
        }
        let capacity = match self.is_reserve() {
            true => self.spec.segment_bytes,
            false => self.next_bytes(),
        };
        self.check_free_space(capacity)?;
        let fresh = self.make(&mut next, capacity)?;
        self.grow();
        let mut ready = self.ready.lock();
        invariant!(
            ready.back().is_none_or(|last| last.id < fresh.id),
            "segments made ahead are in the order of their ids"
        );
        ready.push_back(fresh);
        Ok(true)
    }

    /// Removes the segments made ahead beyond the first `ahead`. Returns the number removed.
    pub(crate) fn give_back(&self, ahead: usize) -> Result<usize> {
        let _making = self.making.lock();
        let ahead = ahead + self.reserved.load(Ordering::Relaxed);
        let mut removed = 0;
        loop {
            let mut ready = self.ready.lock();
            let Some(last) = (ready.len() > ahead).then(|| ready.pop_back()).flatten() else {
                return Ok(removed);
            };
            // Removing a file may take milliseconds; no writer may wait for it.
            drop(ready);
            if let Err(error) = self.medium.remove(last.file.name()) {
                self.ready.lock().push_back(last);
                return Err(error);
            }
            removed += 1;
        }
    }

    /// Whether the device had no space when a writer last needed a segment.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Number of segments made ahead that writers may take.
    pub(crate) fn ahead_of_writers(&self) -> usize {
        self.ahead().saturating_sub(self.reserved.load(Ordering::Relaxed))
    }

    /// Number of segments made ahead.
    pub(crate) fn ahead(&self) -> usize {
        self.ready.lock().len()
    }

    /// The first segment after an open. If the device has no space for a whole one beside the space that is
    /// left free, it is shorter; the shortest one need not leave space free, so that a full store can be
    /// opened to delete from it.
    pub(crate) fn take_first(&self, needed: u64) -> Result<FreshSegment> {
        let check = |capacity| self.check_free_space(capacity);
        self.make_largest(&mut self.making.lock(), needed, check, |_| Ok(()))
    }

    /// Makes a segment of at least `needed` bytes, of the next length if the device has space for that beside
    /// the space that is left free, otherwise the longest of half that length, a quarter, and so on.
    /// `check` says whether there is space for one, `check_least` for the shortest.
    fn make_largest(
        &self,
        next: &mut u64,
        needed: u64,
        check: impl Fn(u64) -> Result<()>,
        check_least: impl Fn(u64) -> Result<()>,
    ) -> Result<FreshSegment> {
        let least = needed.next_multiple_of(PAGE_BYTES as u64).max(SEGMENT_BYTES_MIN);
        let mut capacity = self.next_bytes().max(least);
        invariant!(capacity >= needed, "the longest segment has room for its group");
        loop {
            let checked = match capacity > least {
                true => check(capacity),
                false => check_least(capacity),
            };
            match checked.and_then(|()| self.make(next, capacity)) {
                Err(error) if error.kind() == ErrorKind::NoSpace && capacity > least => {
                    capacity = (capacity / 2).next_multiple_of(PAGE_BYTES as u64).max(least);
                }
                made => {
                    if made.is_ok() {
                        self.grow();
                    }
                    if made.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
                        self.is_full.store(true, Ordering::Relaxed);
                    }
                    return made;
                }
            }
        }
    }

    /// A segment of at least `needed` bytes for deletes on a full device, which may take space that other
    /// segments leave free. For resident keyspaces that is all of it, in segments as long as possible: the
    /// collector frees whole ones. Otherwise half of it, in a short segment: flushes of deletes need little,
    /// and free much. If tables took that space, a part of what they leave.
    pub(crate) fn take_for_deletes(&self, needed: u64) -> Result<FreshSegment> {
        if self.leaves_for_deletes() {
            let taken = self.take_within(needed, self.reserved.load(Ordering::Relaxed), |_| Ok(()));
            // For puts it is full.
            self.is_full.store(true, Ordering::Relaxed);
            return taken;
        }
        let mut next = self.making.lock();
        let mut ready = self.ready.lock();
        // Ids grow in the order of use, so a segment that is too small cannot be used later.
        while let Some(first) = ready.pop_front() {
            if first.capacity >= needed {
                return Ok(first);
            }
            if let Err(error) = self.medium.remove(first.file.name()) {
                ready.push_front(first);
                return Err(error);
            }
        }
        drop(ready);
        let capacity = needed.next_multiple_of(PAGE_BYTES as u64).max(SEGMENT_BYTES_MIN);
        invariant!(capacity >= needed, "a short segment has room for its record");
        let spare = self.check_free(capacity, self.spec.leave_bytes / 2, 2 * LEAVE_FRACTION);
        spare.or_else(|_| self.take_left_by_tables(capacity))?;
        self.make(&mut next, capacity)
    }

    /// Takes `capacity` of the space that tables leave to deletes, unless the flush of what deletes took
    /// before would then lack it.
    fn take_left_by_tables(&self, capacity: u64) -> Result<()> {
        let mut taken = self.taken_by_deletes.lock();
        let segments_freed = self.shared.counters.segments_freed.load(Ordering::Relaxed);
        if taken.segments_freed != segments_freed {
            *taken = TakenByDeletes { bytes: 0, segments_freed };
        }
        self.check_left(capacity, |space| space.for_deletes() / 4 + taken.bytes)?;
        taken.bytes += capacity;
        Ok(())
    }

    /// The file of the next segment made ahead.
    pub(crate) fn next(&self) -> Option<Arc<dyn File>> {
        self.ready.lock().front().map(|ready| Arc::clone(&ready.file))
    }

    /// Prepares the first stores into the next segment made ahead: they then cost no more than a copy.
    pub(crate) fn prepare_stores(&self) {
        if let Some(file) = self.next() {
            file.prepare_stores(PAGE_BYTES as u64);
        }
    }

    /// A segment of at least `needed` bytes: the next one made ahead, or a new one. Leaves those that are
    /// kept for moved records.
    pub(crate) fn take(&self, needed: u64) -> Result<FreshSegment> {
        let check = |capacity| self.check_free_space(capacity);
        self.take_within(needed, self.reserved.load(Ordering::Relaxed), check)
    }

    /// As [`Supply::take`], for moved records.
    pub(crate) fn take_reserved(&self, needed: u64) -> Result<FreshSegment> {
        let taken = self.take_within(needed, 0, |_| Ok(()));
        // Before the collector frees a segment, which must become the next one that is kept.
        let lacks = self.ahead() < self.reserved.load(Ordering::Relaxed);
        self.shared.log.lacks_reserve.fetch_or(lacks, Ordering::Relaxed);
        taken
    }

    /// A segment of at least `needed` bytes, after which `left` segments stay ready. `check` says whether
    /// there is space for a new one.
    fn take_within(
        &self,
        needed: u64,
        left: usize,
        check: impl Fn(u64) -> Result<()>,
    ) -> Result<FreshSegment> {
        let fits = |ready: &mut VecDeque<FreshSegment>| {
            (ready.len() > left && ready.front().is_some_and(|first| first.capacity >= needed))
                .then(|| ready.pop_front())?
        };
        if let Some(fresh) = fits(&mut self.ready.lock()) {
            return Ok(fresh);
        }
        let mut next = self.making.lock();
        let mut ready = self.ready.lock();
        if let Some(fresh) = fits(&mut ready) {
            return Ok(fresh);
        }
        if left > 0 {
            self.check_reserve()?;
            if let Some(first) = ready.front().filter(|first| first.capacity >= needed) {
                // Ids grow in the order of use: the new segment takes the place of the one that is kept.
                debug_assert!(first.capacity > 0, "a segment has bytes");
                drop(ready);
                return self.take_and_replace(&mut next, check);
            }
        } else if !self.is_reserve() {
            self.check_reserve()?;
        }
        // Ids grow in the order of use, so a segment that is too small cannot be used later.
        while let Some(first) = ready.front() {
            self.medium.remove(first.file.name())?;
            ready.pop_front();
        }
        drop(ready);
        count(&self.shared.counters.segments_inline, 1);
        self.make_largest(&mut next, needed, &check, &check)
    }

    /// The segment that was made first, once another one is ready in its place.
    fn take_and_replace(
        &self,
        next: &mut u64,
        check: impl Fn(u64) -> Result<()>,
    ) -> Result<FreshSegment> {
        count(&self.shared.counters.segments_inline, 1);
        let checked = check(self.spec.segment_bytes);
        let made = checked.and_then(|()| self.make(next, self.spec.segment_bytes));
        if made.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
            self.is_full.store(true, Ordering::Relaxed);
        }
        let made = made?;
        let mut ready = self.ready.lock();
        ready.push_back(made);
        ready.pop_front().ok_or_else(|| broken_invariant!("a segment was added"))
    }

    /// Refuses a segment that would leave too little space on the device.
    fn check_free_space(&self, capacity: u64) -> Result<()> {
        if self.leaves_for_deletes() {
            let least = self.spec.segment_bytes;
            return self.check_left(capacity, |space| least.max(space.total / DELETES_FRACTION));
        }
        if self.spec.leave_bytes > 0 {
            // The flush of what the log has by then fits.
            let logged = self.retention.sealed().1 + self.shared.active_bytes() + capacity;
            let most = self.spec.leave_bytes;
            self.check_left(capacity, |space| {
                most.min((space.total / LEAVE_FRACTION).max(logged))
            })?;
        }
        let flag = &self.shared.log.has_deletes_on_full_device;
        if flag.load(Ordering::Relaxed) {
            flag.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Refuses a segment that would not leave `leave` bytes, or the `fraction`th part of the device.
    fn check_free(&self, capacity: u64, leave: u64, fraction: u64) -> Result<()> {
        if leave == 0 {
            return Ok(());
        }
        self.check_left(capacity, |space| leave.min(space.total / fraction))
    }

    /// Refuses a segment that would not leave the bytes that `left` returns for the device's space.
    fn check_left(&self, capacity: u64, left: impl Fn(Space) -> u64) -> Result<()> {
        let Some(space) = self.space()? else { return Ok(()) };
        let least = capacity.saturating_add(left(space));
        if space.free >= least {
            return Ok(());
        }
        Err(Error::no_space("log segment")
            .expected(format_args!("{} free", format_bytes(least)))
            .got(format_bytes(space.free)))
    }

    /// The space of the device that segments are made on; `None` if it is not known.
    pub(crate) fn space(&self) -> Result<Option<Space>> {
        self.medium.space_for(&segment_name(self.spec.lane, SegmentId(0)))
    }

    fn make(&self, next: &mut u64, capacity: u64) -> Result<FreshSegment> {
        let made = self.try_make(next, capacity)?;
        self.is_full.store(false, Ordering::Relaxed);
        Ok(made)
    }

    fn try_make(&self, next: &mut u64, capacity: u64) -> Result<FreshSegment> {
        self.shared.check()?;
        let charge = self.account.charge(SEGMENT_MEMORY)?;
        let id = SegmentId(*next);
        let name = segment_name(self.spec.lane, id);
        let SegmentSpec { store, lane, .. } = self.spec;
        let version = match (self.spec.is_fenced, self.has_gaps()) {
            (true, _) => VERSION_FENCED,
            (false, true) => VERSION_GAPS,
            (false, false) => VERSION_PLAIN,
        };
        invariant!(
            self.ready.lock().back().is_none_or(|newest| newest.id < id),
            "a segment gets a number above those made before it"
        );
        let header = SegmentHeader { version, store, lane, segment: id, capacity };
        let file = self.medium.create(&name, Access::Bytes, capacity)?;
        let made = file
            .store(0, &header.encode(), Purpose::Log)
            .and_then(|()| file.sync(Purpose::Log))
            .and_then(|()| self.medium.sync_names(&[&name]));
        if let Err(error) = made {
            // The unfinished segment holds nothing. If it stayed, it would look like damage before the
            // next segment. Its removal may be deferred by a copy of the log, or be lost with a later
            // sync of names. So the next segment gets the same number, and replaces it.
            return Err(match self.medium.remove(&name) {
                Ok(()) => error,
                Err(_) => self.shared.poisoned_by(error),
            });
        }
        *next += 1;
        count(&self.shared.counters.segments_created, 1);
        let has_gaps = version >= VERSION_GAPS;
        Ok(FreshSegment { id, seed: header.seed(), file, capacity, has_gaps, charge })
    }
}

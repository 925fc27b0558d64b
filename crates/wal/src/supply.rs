//! The supply of segments: makes the next segments ahead of need, off the writers' path.
//!
//! A finished segment has its space reserved, and its header and name durable, so that no record in it
//! can be lost with the file. A segment that cannot be finished is removed, and the caller that needs it
//! gets the error.

use std::collections::VecDeque;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{
    Account, Charge, Error, ErrorKind, LaneId, Result, SegmentId, StoreId, format_bytes,
    limits::KEYSPACES_MAX,
};
use media::{Access, File, Medium, Purpose};
use parking_lot::Mutex;

use crate::header::SegmentHeader;
use crate::name::segment_name;
use crate::options::SEGMENT_BYTES_MIN;
use crate::shared::{Shared, count};

/// Memory of one live segment, bytes: its pins, and room for its file and name.
pub(crate) const SEGMENT_MEMORY: u64 = 16 * KEYSPACES_MAX as u64 + 1024;

/// At most this fraction of a device, as a divisor, is left free.
const LEAVE_PART: u64 = 8;

/// A segment without records.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) id: SegmentId,
    pub(crate) seed: u32,
    pub(crate) file: Arc<dyn File>,
    pub(crate) capacity: u64,
    pub(crate) charge: Charge,
}

/// Makes segments of one lane.
#[derive(Debug)]
pub(crate) struct Supply {
    pub(crate) medium: Arc<dyn Medium>,
    store: StoreId,
    lane: LaneId,
    segment_bytes: u64,
    /// As [`crate::Options::leave_bytes`].
    leave_bytes: u64,
    account: Account,
    shared: Arc<Shared>,
    /// The next id: ids are never reused (I8), and grow in the order of use. Held while a segment is
    /// made: a writer that runs out meanwhile waits for that segment instead of making a second one.
    making: Mutex<u64>,
    /// Segments made ahead, in the order of use. Locked after `making`, and only briefly: a writer that
    /// finds a segment here does not wait.
    ready: Mutex<VecDeque<Fresh>>,
}

impl Supply {
    pub(crate) fn new(
        medium: &Arc<dyn Medium>,
        (store, lane): (StoreId, LaneId),
        (segment_bytes, leave_bytes): (u64, u64),
        next: u64,
        account: &Account,
        shared: &Arc<Shared>,
    ) -> Self {
        Self {
            medium: Arc::clone(medium),
            store,
            lane,
            segment_bytes,
            leave_bytes,
            account: account.clone(),
            shared: Arc::clone(shared),
            making: Mutex::new(next),
            ready: Mutex::default(),
        }
    }

    /// The seed of the lane's segment.
    pub(crate) fn seed(&self, segment: SegmentId) -> u32 {
        let Self { store, lane, .. } = *self;
        SegmentHeader { store, lane, segment, capacity: 0 }.seed()
    }

    /// Makes the next segment unless `ahead` are ready. Returns whether it made one.
    pub(crate) fn prepare(&self, ahead: usize) -> Result<bool> {
        let mut next = self.making.lock();
        if self.ready.lock().len() >= ahead {
            return Ok(false);
        }
        self.leave(self.segment_bytes)?;
        let fresh = self.make(&mut next, self.segment_bytes)?;
        self.ready.lock().push_back(fresh);
        Ok(true)
    }

    /// Removes the segments made ahead beyond the first `ahead`. Returns the number removed.
    pub(crate) fn give_back(&self, ahead: usize) -> Result<usize> {
        let _making = self.making.lock();
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

    /// Number of segments made ahead.
    pub(crate) fn ahead(&self) -> usize {
        self.ready.lock().len()
    }

    /// The first segment after an open. If the device has no space for a whole one it is shorter, and it
    /// need not leave space free, so that a full store can be opened to delete from it.
    pub(crate) fn take_first(&self, needed: u64) -> Result<Fresh> {
        let mut next = self.making.lock();
        let least = needed.next_multiple_of(PAGE_BYTES as u64).max(SEGMENT_BYTES_MIN);
        let mut capacity = self.segment_bytes.max(least);
        loop {
            match self.make(&mut next, capacity) {
                Err(error) if error.kind() == ErrorKind::NoSpace && capacity > least => {
                    capacity = (capacity / 2).next_multiple_of(PAGE_BYTES as u64).max(least);
                }
                made => return made,
            }
        }
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

    /// A segment of at least `needed` bytes: the next one made ahead, or a new one.
    pub(crate) fn take(&self, needed: u64) -> Result<Fresh> {
        let fits = |ready: &mut VecDeque<Fresh>| {
            ready
                .front()
                .is_some_and(|first| first.capacity >= needed)
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
        // Ids grow in the order of use, so a segment that is too small cannot be used later.
        while let Some(first) = ready.front() {
            self.medium.remove(first.file.name())?;
            ready.pop_front();
        }
        drop(ready);
        count(&self.shared.counters.segments_inline, 1);
        let capacity = self.segment_bytes.max(needed.next_multiple_of(PAGE_BYTES as u64));
        self.leave(capacity)?;
        self.make(&mut next, capacity)
    }

    /// Refuses a segment that would leave too little space on the device.
    fn leave(&self, capacity: u64) -> Result<()> {
        if self.leave_bytes == 0 {
            return Ok(());
        }
        let Some(space) = self.medium.space()? else { return Ok(()) };
        let least = capacity.saturating_add(self.leave_bytes.min(space.total / LEAVE_PART));
        if space.free >= least {
            return Ok(());
        }
        Err(Error::no_space("log segment")
            .expected(format_args!("{} free", format_bytes(least)))
            .got(format_bytes(space.free)))
    }

    fn make(&self, next: &mut u64, capacity: u64) -> Result<Fresh> {
        self.shared.check()?;
        let charge = self.account.charge(SEGMENT_MEMORY)?;
        let id = SegmentId(*next);
        let name = segment_name(self.lane, id);
        let header = SegmentHeader { store: self.store, lane: self.lane, segment: id, capacity };
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
        Ok(Fresh { id, seed: header.seed(), file, capacity, charge })
    }
}

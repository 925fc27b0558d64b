//! The combiner: many callers, one writer at a time, and no queue for the lock.
//!
//! A caller that finds the lane free writes its own record, then those that others left in their slots
//! meanwhile, as one group. A caller that finds it busy leaves its record in a [`Slot`], looks at that for a
//! moment, and sleeps until the record is written, or takes the lane itself (flat combining: Hendler et al.,
//! SPAA 2010).
//!
//! Invariants
//! - Whoever lets the lane go looks into the slots afterwards. A caller looks at the lane after its record
//!   is in its slot. So no record waits without someone who will write it.
//! - A group is written whole or fails whole, by one call of [`Writer::write`].
//!
//! Bounds: a record in a slot takes its part of `group_bytes` at most, so that those of all slots are one
//! group (a caller whose record is longer, or that finds no slot, waits for the lane as for any mutex), and a
//! caller writes at most [`ROUNDS`] groups of others before it hands the lane to one of them.
//!
//! Lock order: the desk of a caller's own slot, then (by trying only) the lane. The holder of the lane takes
//! any desk.

use base::{Result, Seqno, crc32c};

use super::slot::Slot;
use super::sync::{AtomicUsize, Backoff, Mutex, MutexGuard, Ordering, SLOTS, fence, home};
use crate::group::{Group, encoded_bytes};
use crate::options::Batch;

/// How many groups of others a caller writes before it hands the lane over.
const ROUNDS: usize = 8;

/// What writes groups.
pub(crate) trait Writer {
    /// Writes the group's records, the last one's body being continued by `rest`; the first
    /// record's first seqno.
    fn write(&mut self, group: &mut Group, rest: &[u8]) -> Result<Seqno>;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Combiner<W> {
    lane: Mutex<Lane<W>>,
    slots: Box<[Slot]>,
    /// Only the first so many slots were ever used: a store with one writer looks at none.
    used: AtomicUsize,
    /// The longest record, and group, that is copied.
    group_bytes: usize,
}

/// What the lane's holder has.
#[derive(Debug)]
struct Lane<W> {
    writer: W,
    /// The holder's own record, or the group it writes. Empty while the lane is free.
    group: Group,
    /// The slots whose records are in it, each with the operations before its own.
    taken: Vec<(usize, u64)>,
}

impl<W: Writer> Combiner<W> {
    pub(crate) fn new(writer: W, group_bytes: usize) -> Self {
        let lane = Lane { writer, group: Group::default(), taken: Vec::with_capacity(SLOTS) };
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Self { lane: Mutex::new(lane), slots, used: AtomicUsize::new(0), group_bytes }
    }

    /// Has `batch` written; its first seqno.
    pub(crate) fn append(&self, batch: &Batch<'_>) -> Result<Seqno> {
        let body_crc = crc32c(batch.body);
        if let Some(lane) = self.lane.try_lock() {
            return self.write_own(lane, batch, body_crc);
        }
        let fits = encoded_bytes(batch) <= self.group_bytes / SLOTS;
        let Some(slot) = fits.then(|| self.claim()).flatten() else {
            return self.write_own(self.lane(), batch, body_crc);
        };
        slot.publish(batch, body_crc);
        // Between the slot and the look at the lane, as between the lane and the look at slots in `serve`:
        // one of the two sees the other.
        fence(Ordering::SeqCst);
        self.outcome(slot)
    }

    /// As [`Combiner::append`], if `check` agrees once no other record can come between.
    pub(crate) fn append_if(
        &self,
        batch: &Batch<'_>,
        check: impl FnOnce(&mut W) -> Result<()>,
    ) -> Result<Seqno> {
        let body_crc = crc32c(batch.body);
        let mut lane = self.lane();
        match check(&mut lane.writer) {
            Ok(()) => self.write_own(lane, batch, body_crc),
            Err(error) => {
                self.serve(lane);
                Err(error)
            }
        }
    }

    /// Runs `work` while no record is being written. Every record is wholly before or after it.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut W) -> R) -> R {
        let mut lane = self.lane();
        let result = work(&mut lane.writer);
        self.serve(lane);
        result
    }

    fn lane(&self) -> MutexGuard<'_, Lane<W>> {
        let mut patience = Backoff::default();
        loop {
            match self.lane.try_lock() {
                Some(lane) => return lane,
                None if patience.wait() => {}
                None => return self.lane.lock(),
            }
        }
    }

    fn write_own<'a>(
        &'a self,
        mut lane: MutexGuard<'a, Lane<W>>,
        batch: &Batch<'_>,
        body_crc: u32,
    ) -> Result<Seqno> {
        let Lane { writer, group, .. } = &mut *lane;
        let result = if encoded_bytes(batch) > self.group_bytes {
            group.push_head(batch, body_crc);
            writer.write(group, batch.body)
        } else {
            group.push(batch, body_crc);
            writer.write(group, &[])
        };
        group.clear();
        self.serve(lane);
        result
    }

    /// A slot for the calling thread, most likely the same as before.
    fn claim(&self) -> Option<&Slot> {
        let home = home();
        let found = (home..home + SLOTS).map(|number| number % SLOTS);
        let mut free = found.filter_map(|number| self.slots.get(number).map(|slot| (number, slot)));
        let (number, slot) = free.find(|(_, slot)| slot.claim())?;
        if self.used.load(Ordering::Relaxed) <= number {
            self.used.fetch_max(number + 1, Ordering::Relaxed);
        }
        Some(slot)
    }

    /// Waits for what becomes of a slot's record, writing it if the lane comes free first.
    fn outcome(&self, slot: &Slot) -> Result<Seqno> {
        let mut patience = Backoff::default();
        loop {
            if let Some(outcome) = slot.outcome() {
                return outcome;
            }
            if let Some(lane) = self.lane.try_lock() {
                self.serve(lane);
            } else if !patience.wait() {
                break;
            }
        }
        let mut desk = slot.lock();
        while slot.is_pending() {
            if let Some(lane) = self.lane.try_lock() {
                drop(desk);
                self.serve(lane);
                desk = slot.lock();
            } else {
                desk = slot.sleep(desk);
            }
        }
        drop(desk);
        slot.outcome().unwrap_or_else(|| Err(base::Error::closed("log lane")))
    }

    /// Writes what others left, and lets the lane go.
    fn serve<'a>(&'a self, mut lane: MutexGuard<'a, Lane<W>>) {
        for _ in 0..ROUNDS {
            self.write_others(&mut lane);
            drop(lane);
            fence(Ordering::SeqCst);
            if self.pending().is_none() {
                return;
            }
            // Someone came after the slots were looked at. If the lane is busy again, its new holder
            // comes by here.
            match self.lane.try_lock() {
                Some(taken) => lane = taken,
                None => return,
            }
        }
        drop(lane);
        fence(Ordering::SeqCst);
        if let Some(slot) = self.pending() {
            slot.wake();
        }
    }

    /// Writes the records in slots as one group.
    fn write_others(&self, lane: &mut Lane<W>) {
        let Lane { writer, group, taken } = lane;
        for (number, slot) in self.slots.iter().take(self.used()).enumerate() {
            taken.extend(slot.take(group).map(|before| (number, before)));
        }
        if taken.is_empty() {
            return;
        }
        let outcome = writer.write(group, &[]);
        group.clear();
        for (number, before) in taken.drain(..) {
            if let Some(slot) = self.slots.get(number) {
                slot.decide(outcome.clone().map(|first| first.plus(before)));
            }
        }
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// A slot with a record in it.
    fn pending(&self) -> Option<&Slot> {
        self.slots.iter().take(self.used()).find(|slot| slot.is_pending())
    }
}

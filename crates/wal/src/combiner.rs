//! Group commit: many callers, one leader at a time, and no queue for the lock.
//!
//! A caller that finds the lane free becomes the leader. It writes its own record, then the records that
//! followers left in their slots meanwhile, as one group. A caller that finds the lane busy becomes a
//! follower: it leaves its record in a [`Slot`], spins on the slot briefly, and sleeps until the record
//! is written or until it can become the leader itself (flat combining: Hendler et al., SPAA 2010).
//!
//! Invariants
//! - A leader checks the slots after it releases the lane, and a follower checks the lane after it fills
//!   its slot. So every record in a slot has a thread that will write it.
//! - A group is written whole or fails whole, by one call of [`Writer::write`].
//!
//! Bounds: a record in a slot takes at most `group_bytes / SLOTS`, so that the records of all slots fit
//! one group. A caller with a longer record, or without a free slot, waits for the lane as for any
//! mutex. A leader writes at most [`ROUNDS`] groups of followers before it hands the lane to one of
//! them.
//!
//! Lock order: the content of a caller's own slot, then the lane (by `try_lock` only). The leader locks
//! the content of any slot.

use base::{Result, broken_invariant, crc32c, invariant};

use super::slot::Slot;
use super::sync::{AtomicUsize, Backoff, Mutex, MutexGuard, Ordering, SLOTS, fence, home};
use crate::address::{Before, Written};
use crate::group::{Group, encoded_bytes};
use crate::options::Batch;

/// Groups of followers that a leader writes before it hands the lane over.
const ROUNDS: usize = 8;

/// Writes groups.
pub(crate) trait Writer {
    /// Writes the group's records. `rest` continues the body of the last one. Returns the first record.
    fn write(&mut self, group: &mut Group, rest: &[u8]) -> Result<Written>;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Combiner<W> {
    leader: Mutex<LeaderState<W>>,
    slots: Box<[Slot]>,
    /// Slots from this number on were never used: a store with one writer scans none.
    used: AtomicUsize,
    /// Longest record, and longest group, that is copied.
    group_bytes: usize,
}

/// State under the lane's lock; the thread that holds it is the leader.
#[derive(Debug)]
struct LeaderState<W> {
    writer: W,
    /// The leader's own record, or the group it writes. Empty while the lane is free.
    group: Group,
    /// The slots whose records are in the group, each with the records before its own.
    taken: Vec<(usize, Before)>,
}

impl<W: Writer> Combiner<W> {
    pub(crate) fn new(writer: W, group_bytes: usize) -> Self {
        let leader =
            LeaderState { writer, group: Group::default(), taken: Vec::with_capacity(SLOTS) };
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Self { leader: Mutex::new(leader), slots, used: AtomicUsize::new(0), group_bytes }
    }

    /// Has `batch` written, and returns its record.
    pub(crate) fn append(&self, batch: &Batch<'_>) -> Result<Written> {
        let body_crc = crc32c(batch.body);
        if let Some(leader) = self.leader.try_lock() {
            return self.write_own(leader, batch, body_crc);
        }
        let fits = encoded_bytes(batch) <= self.group_bytes / SLOTS;
        let Some(slot) = fits.then(|| self.claim()).flatten() else {
            return self.write_own(self.lead(), batch, body_crc);
        };
        slot.publish(batch, body_crc);
        // Orders the store to the slot before the look at the lane. `release` orders the unlock of the
        // lane before the look at the slots. So at least one side sees the other.
        fence(Ordering::SeqCst);
        self.wait_for_outcome(slot)
    }

    /// Runs `work` while no record is being written: every record is entirely before or after it.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut W) -> R) -> R {
        let mut leader = self.lead();
        let result = work(&mut leader.writer);
        self.release(leader);
        result
    }

    /// Keeps other threads from writing records until the result is dropped.
    pub(crate) fn hold(&self) -> Held<'_, W> {
        Held { combiner: self, leader: Some(self.lead()) }
    }

    fn lead(&self) -> MutexGuard<'_, LeaderState<W>> {
        let mut backoff = Backoff::default();
        loop {
            match self.leader.try_lock() {
                Some(leader) => return leader,
                None if backoff.wait() => {}
                None => return self.leader.lock(),
            }
        }
    }

    fn write_own<'a>(
        &'a self,
        mut leader: MutexGuard<'a, LeaderState<W>>,
        batch: &Batch<'_>,
        body_crc: u32,
    ) -> Result<Written> {
        let result = self.write_one(&mut leader, batch, body_crc);
        self.release(leader);
        result
    }

    /// Writes `batch` as a group of its own.
    fn write_one(
        &self,
        leader: &mut LeaderState<W>,
        batch: &Batch<'_>,
        body_crc: u32,
    ) -> Result<Written> {
        let LeaderState { writer, group, .. } = leader;
        invariant!(group.is_empty(), "the group is empty while the lane is free");
        let result = if encoded_bytes(batch) > self.group_bytes {
            group.push_head(batch, body_crc);
            writer.write(group, batch.body)
        } else {
            group.push(batch, body_crc);
            writer.write(group, &[])
        };
        group.clear();
        result
    }

    /// Claims a slot for the calling thread, most likely the same one as last time.
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

    /// Waits until the slot's record is written or refused; becomes the leader if the lane is free
    /// first.
    fn wait_for_outcome(&self, slot: &Slot) -> Result<Written> {
        let mut backoff = Backoff::default();
        loop {
            if let Some(outcome) = slot.take_outcome() {
                return outcome;
            }
            if let Some(leader) = self.leader.try_lock() {
                self.release(leader);
            } else if !backoff.wait() {
                break;
            }
        }
        let mut content = slot.lock();
        while slot.is_pending() {
            if let Some(leader) = self.leader.try_lock() {
                drop(content);
                self.release(leader);
                content = slot.lock();
            } else {
                content = slot.sleep(content);
            }
        }
        drop(content);
        let outcome = slot.take_outcome();
        outcome
            .unwrap_or_else(|| Err(broken_invariant!("a slot that is not pending has an outcome")))
    }

    /// Writes the followers' records, and releases the lane.
    fn release<'a>(&'a self, mut leader: MutexGuard<'a, LeaderState<W>>) {
        for _ in 0..ROUNDS {
            self.write_followers(&mut leader);
            drop(leader);
            fence(Ordering::SeqCst);
            if self.pending().is_none() {
                return;
            }
            // A follower filled its slot after the last scan. If the lane is taken again, its new leader
            // scans the slots on release.
            match self.leader.try_lock() {
                Some(taken) => leader = taken,
                None => return,
            }
        }
        drop(leader);
        fence(Ordering::SeqCst);
        if let Some(slot) = self.pending() {
            slot.wake();
        }
    }

    /// Writes the records in the slots as one group.
    fn write_followers(&self, leader: &mut LeaderState<W>) {
        let LeaderState { writer, group, taken } = leader;
        invariant!(group.is_empty() && taken.is_empty(), "a group was written before the next one");
        for (number, slot) in self.slots.iter().take(self.used()).enumerate() {
            taken.extend(slot.take(group).map(|before| (number, before)));
        }
        if taken.is_empty() {
            return;
        }
        let outcome = writer.write(group, &[]);
        group.clear();
        for (number, before) in taken.drain(..) {
            let slot = self.slots.get(number);
            invariant!(slot.is_some(), "a follower's record is in one of the slots");
            if let Some(slot) = slot {
                slot.complete(outcome.clone().map(|first| first.after(before)));
            }
        }
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The number of records in slots.
    pub(crate) fn waiting(&self) -> usize {
        self.slots.iter().take(self.used()).filter(|slot| slot.is_pending()).count()
    }

    /// A slot that holds a record.
    fn pending(&self) -> Option<&Slot> {
        self.slots.iter().take(self.used()).find(|slot| slot.is_pending())
    }
}

/// The lane, held by a thread: no other one writes records. Records that wait meanwhile are written when it
/// is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a, W: Writer> {
    combiner: &'a Combiner<W>,
    /// `None` only while it is dropped.
    leader: Option<MutexGuard<'a, LeaderState<W>>>,
}

impl<W: Writer> Held<'_, W> {
    /// The lane's writer.
    pub(crate) fn writer(&mut self) -> Result<&mut W> {
        let leader = self.leader.as_mut();
        let leader = leader.ok_or_else(|| broken_invariant!("a held lane has its leader"))?;
        Ok(&mut leader.writer)
    }

    /// Has `batch` written, and returns its record.
    pub(crate) fn append(&mut self, batch: &Batch<'_>) -> Result<Written> {
        let leader = self.leader.as_mut();
        let leader = leader.ok_or_else(|| broken_invariant!("a held lane has its leader"))?;
        self.combiner.write_one(leader, batch, crc32c(batch.body))
    }
}

impl<W: Writer> Drop for Held<'_, W> {
    fn drop(&mut self) {
        if let Some(leader) = self.leader.take() {
            self.combiner.release(leader);
        }
    }
}

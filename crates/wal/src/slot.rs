//! A slot: a follower leaves one record here for the leader, and receives the outcome.
//!
//! Each slot has its own cache lines, so that waiting followers disturb neither one another nor the
//! leader. A record costs two cache-line transfers between cores, and two back.

use base::{Error, Result, SegmentId, Seqno, broken_invariant, invariant};

use super::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::address::{Before, Written};
use crate::group::Group;
use crate::options::Batch;

/// Not in use.
const FREE: u64 = 0;
/// Claimed by a caller, still without a record.
const CLAIMED: u64 = 1;
/// Holds a record that waits for a leader.
const PENDING: u64 = 2;
/// The record could not be written; the slot's content has the error.
const FAILED: u64 = 3;
/// The record is written: the state is this plus its first seqno.
const WRITTEN: u64 = 4;

/// See the module.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Slot {
    /// `Release` by the side that hands the slot on, `Acquire` by the other.
    state: AtomicU64,
    /// The segment and the offset of the record, once it is written: stored before the state.
    segment: AtomicU64,
    offset: AtomicU64,
    content: Mutex<SlotContent>,
    /// Notified when the state changes or the lane is free.
    changed: Condvar,
}

/// Data that passes between follower and leader.
#[derive(Debug, Default)]
pub(crate) struct SlotContent {
    /// One record.
    record: Group,
    failure: Option<Error>,
}

impl Slot {
    /// Claims the slot if it is free.
    pub(crate) fn claim(&self) -> bool {
        let (from, to) = (FREE, CLAIMED);
        self.state.load(Ordering::Relaxed) == from
            && self.state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Puts the claimant's record into the slot for a leader.
    pub(crate) fn publish(&self, batch: &Batch<'_>, body_crc: u32) {
        invariant!(
            self.state.load(Ordering::Relaxed) == CLAIMED,
            "a record is put into a slot that its caller claimed"
        );
        let mut content = self.content.lock();
        invariant!(content.record.is_empty(), "a slot holds one record at a time");
        content.record.push(batch, body_crc);
        drop(content);
        self.state.store(PENDING, Ordering::Release);
    }

    /// Whether the slot holds a record that waits.
    pub(crate) fn is_pending(&self) -> bool {
        self.state.load(Ordering::Acquire) == PENDING
    }

    /// Moves a waiting record to the end of `group`; returns the records before it.
    pub(crate) fn take(&self, group: &mut Group) -> Option<Before> {
        self.is_pending().then(|| {
            let mut content = self.content.lock();
            invariant!(!content.record.is_empty(), "a pending slot holds a record");
            group.append(&mut content.record)
        })
    }

    /// Gives the follower the outcome of its record.
    pub(crate) fn complete(&self, outcome: Result<Written>) {
        invariant!(self.is_pending(), "only a pending record gets an outcome");
        let mut content = self.content.lock();
        let state = match outcome {
            Ok(Written { first, segment, offset }) => {
                self.segment.store(segment.0, Ordering::Relaxed);
                self.offset.store(offset, Ordering::Relaxed);
                WRITTEN + first.get()
            }
            Err(error) => {
                invariant!(content.failure.is_none(), "the last failure of a slot was taken");
                content.failure = Some(error);
                FAILED
            }
        };
        // Stored under the lock: a follower that saw PENDING sleeps before the lock is free.
        self.state.store(state, Ordering::Release);
        drop(content);
        self.changed.notify_one();
    }

    /// The outcome of the record once there is one; frees the slot.
    pub(crate) fn take_outcome(&self) -> Option<Result<Written>> {
        let outcome = match self.state.load(Ordering::Acquire) {
            PENDING => return None,
            FREE | CLAIMED => Err(broken_invariant!("a slot without a record has no outcome")),
            FAILED => {
                let failure = self.content.lock().failure.take();
                Err(failure.unwrap_or_else(|| broken_invariant!("a failed record has an error")))
            }
            written => Ok(Written {
                first: Seqno::new(written - WRITTEN),
                segment: SegmentId(self.segment.load(Ordering::Relaxed)),
                offset: self.offset.load(Ordering::Relaxed),
            }),
        };
        self.state.store(FREE, Ordering::Release);
        Some(outcome)
    }

    /// Locks the content. The follower holds it while it checks the lane a last time and goes to sleep.
    pub(crate) fn lock(&self) -> MutexGuard<'_, SlotContent> {
        self.content.lock()
    }

    /// Sleeps until the state changes or the lane may be free.
    pub(crate) fn sleep<'a>(
        &self,
        content: MutexGuard<'a, SlotContent>,
    ) -> MutexGuard<'a, SlotContent> {
        super::sync::wait(&self.changed, content)
    }

    /// Wakes the follower, if it sleeps, to check the lane again. Takes the lock: a follower that found
    /// the lane busy sleeps before the lock is free.
    pub(crate) fn wake(&self) {
        let _content = self.content.lock();
        self.changed.notify_one();
    }
}

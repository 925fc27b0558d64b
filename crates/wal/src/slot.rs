//! A slot: where one caller leaves a record for whoever has the lane, and is told what became of it.
//!
//! Each is on cache lines of its own, so that callers who wait disturb neither one another nor the lane's
//! holder: a record costs two of them their way from one core to another and back.

use base::{Error, Result, Seqno};

use super::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::group::Group;
use crate::options::Batch;

/// Nobody has it.
const FREE: u64 = 0;
/// A caller has it, and no record is in it.
const CLAIMED: u64 = 1;
/// Its record waits for the lane's holder.
const PENDING: u64 = 2;
/// The record could not be written: the desk says why.
const FAILED: u64 = 3;
/// The record's first seqno, and this, once it is written.
const WRITTEN: u64 = 4;

/// See the module.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Slot {
    /// Whose turn it is: `Release` by whoever hands it on, `Acquire` by the other.
    state: AtomicU64,
    desk: Mutex<LeaderState>,
    /// The state changed, or the lane is free.
    changed: Condvar,
}

/// What passes between the two.
#[derive(Debug, Default)]
pub(crate) struct LeaderState {
    /// One record.
    record: Group,
    failure: Option<Error>,
}

impl Slot {
    /// Takes it, if nobody has it.
    pub(crate) fn claim(&self) -> bool {
        let (from, to) = (FREE, CLAIMED);
        self.state.load(Ordering::Relaxed) == from
            && self.state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Leaves the claimant's record for whoever has the lane.
    pub(crate) fn publish(&self, batch: &Batch<'_>, body_crc: u32) {
        self.desk.lock().record.push(batch, body_crc);
        self.state.store(PENDING, Ordering::Release);
    }

    /// Whether a record waits in it.
    pub(crate) fn is_pending(&self) -> bool {
        self.state.load(Ordering::Acquire) == PENDING
    }

    /// Moves a waiting record behind those of `group`; how many operations stand before it.
    pub(crate) fn take(&self, group: &mut Group) -> Option<u64> {
        self.is_pending().then(|| group.take_in(&mut self.desk.lock().record))
    }

    /// Tells the caller what became of the record that was taken.
    pub(crate) fn decide(&self, outcome: Result<Seqno>) {
        let mut desk = self.desk.lock();
        let state = match outcome {
            Ok(first) => WRITTEN + first.get(),
            Err(error) => {
                desk.failure = Some(error);
                FAILED
            }
        };
        // Under the lock: a caller that found it pending is asleep before the lock is free.
        self.state.store(state, Ordering::Release);
        drop(desk);
        self.changed.notify_one();
    }

    /// What became of the record, once that is decided; the slot is another's then.
    pub(crate) fn outcome(&self) -> Option<Result<Seqno>> {
        let outcome = match self.state.load(Ordering::Acquire) {
            PENDING => return None,
            FAILED => {
                Err(self.desk.lock().failure.take().unwrap_or_else(|| Error::closed("log lane")))
            }
            written => Ok(Seqno::new(written - WRITTEN)),
        };
        self.state.store(FREE, Ordering::Release);
        Some(outcome)
    }

    /// For the caller, before it looks at the lane for the last time and sleeps.
    pub(crate) fn lock(&self) -> MutexGuard<'_, LeaderState> {
        self.desk.lock()
    }

    /// Sleeps until the state changes, or the lane may be free.
    pub(crate) fn sleep<'a>(
        &self,
        desk: MutexGuard<'a, LeaderState>,
    ) -> MutexGuard<'a, LeaderState> {
        super::sync::wait(&self.changed, desk)
    }

    /// Makes the caller look at the lane again, if it sleeps. Under the lock: one that found the lane taken
    /// is asleep before the lock is free.
    pub(crate) fn wake(&self) {
        let _desk = self.desk.lock();
        self.changed.notify_one();
    }
}

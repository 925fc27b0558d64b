//! The seqnos of a log: one counter for all of its lanes, and the seqno up to which every record is stored.
//!
//! A lane takes seqnos once it has room for its group, and states that the group is in flight before any
//! other thread can see the seqnos as taken. It states that the group is stored after its fence. So every
//! record below the least seqno in flight is stored: a power cut leaves them all. A lane that fails keeps its
//! group in flight for good, and the log is poisoned.
//!
//! Unlogged batches take seqnos too. The next group that takes some, in any lane, stores a Gap for them.
//!
//! Concurrency: any thread. The counter's lock is a leaf that is held for some nanoseconds; an observer runs
//! under it, so that it sees the batches of all lanes in seqno order. Reading a position takes no lock.

use std::sync::Arc;

use base::{Result, Seqno, invariant};

use super::sync::{AtomicU64, AtomicUsize, Backoff, Condvar, Mutex, Ordering, wait};
use crate::options::Observer;

/// The state of a lane without a group in flight.
const IDLE: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Numbers {
    counter: Mutex<Counter>,
    /// The last seqno taken. Stored after the group that took it is in flight.
    last: AtomicU64,
    /// For each lane, the least seqno of its group in flight.
    in_flight: Box<[InFlight]>,
    /// Every record up to this seqno is durable.
    durable: AtomicU64,
    /// Threads that wait for other lanes' groups.
    waiting: AtomicUsize,
    turn: Mutex<()>,
    stored: Condvar,
}

/// On a cache line of its own, because each lane writes its own.
#[derive(Debug)]
#[repr(align(128))]
struct InFlight(AtomicU64);

#[derive(Debug)]
struct Counter {
    /// The next seqno.
    next: u64,
    /// The number of seqnos just below `next` that no record covers yet: unlogged batches took them since the
    /// last record, or before the open. The next group stores a Gap for them, unless a Begin covers them.
    unlogged: u64,
    /// Sees every batch when it is assigned its seqnos.
    observer: Option<Arc<dyn Observer>>,
}

/// The seqnos of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The first seqno of the group's first batch.
    pub(crate) first: u64,
    /// The number of unlogged seqnos just below it, for which the group stores a Gap.
    pub(crate) unlogged: u64,
}

impl Taken {
    /// The first seqno of the Gap or Batch that is stored first.
    pub(crate) const fn first_stored(&self) -> u64 {
        self.first - self.unlogged
    }
}

impl Numbers {
    /// The seqnos from `next` on, for `lanes` lanes. All earlier records are durable, and hold the seqnos
    /// below `stored`. The first Begin covers those between, which tables may have.
    pub(crate) fn new(lanes: usize, stored: u64, next: u64) -> Self {
        invariant!(next > 0, "there is a seqno before the next one");
        invariant!(stored <= next, "the next seqno is above those of the records");
        let in_flight = (0..lanes).map(|_| InFlight(AtomicU64::new(IDLE))).collect();
        Self {
            counter: Mutex::new(Counter {
                next,
                unlogged: next.saturating_sub(stored),
                observer: None,
            }),
            last: AtomicU64::new(next.saturating_sub(1)),
            in_flight,
            durable: AtomicU64::new(next.saturating_sub(1)),
            waiting: AtomicUsize::new(0),
            turn: Mutex::new(()),
            stored: Condvar::new(),
        }
    }

    /// The next seqno. Meaningful only while no lane can take any.
    pub(crate) fn next(&self) -> u64 {
        self.counter.lock().next
    }

    /// The seqno of the next Gap or Batch.
    pub(crate) fn next_stored(&self) -> u64 {
        let counter = self.counter.lock();
        counter.next - counter.unlogged
    }

    /// The last seqno taken.
    pub(crate) fn last(&self) -> Seqno {
        Seqno::new(self.last.load(Ordering::Acquire))
    }

    /// A durable Begin states that every seqno below `seqno` is settled: they need no Gap.
    pub(crate) fn cover(&self, seqno: u64) {
        let mut counter = self.counter.lock();
        if seqno == counter.next {
            counter.unlogged = 0;
        }
    }

    /// Makes `observer` see every batch from the next one on. Returns the next seqno.
    pub(crate) fn observe(&self, observer: Option<Arc<dyn Observer>>) -> Result<Seqno> {
        let mut counter = self.counter.lock();
        counter.observer = observer;
        Seqno::try_from(counter.next)
    }

    /// Takes `ops` seqnos for a group of the lane `lane`, which is in flight from now on. `see` gets the
    /// first seqno and the observer, if there is one.
    pub(crate) fn take(
        &self,
        lane: usize,
        ops: u64,
        see: impl FnOnce(u64, &dyn Observer),
    ) -> Result<Taken> {
        let mut counter = self.counter.lock();
        let first = counter.next;
        Seqno::try_from(first + ops)?;
        let taken = Taken { first, unlogged: counter.unlogged };
        if let Some(InFlight(group)) = self.in_flight.get(lane) {
            invariant!(group.load(Ordering::Relaxed) == IDLE, "a lane has one group in flight");
            group.store(taken.first_stored(), Ordering::Release);
        }
        counter.next = first + ops;
        counter.unlogged = 0;
        // A thread that sees these seqnos as taken also sees that they are in flight.
        self.last.store(counter.next - 1, Ordering::Release);
        if let Some(observer) = &counter.observer {
            see(first, &**observer);
        }
        Ok(taken)
    }

    /// Gives back the seqnos of a group of `ops` operations that was not stored, unless later ones were
    /// taken. The log is poisoned, and the group stays in flight.
    pub(crate) fn give_back(&self, taken: Taken, ops: u64) {
        let mut counter = self.counter.lock();
        if counter.next == taken.first + ops {
            counter.next = taken.first;
            counter.unlogged = taken.unlogged;
            self.last.store(counter.next - 1, Ordering::Release);
        }
    }

    /// Assigns `ops` seqnos to the unlogged batch `body`. Returns the first one.
    pub(crate) fn assign(&self, ops: u64, body: &[u8]) -> Result<Seqno> {
        let mut counter = self.counter.lock();
        let first = Seqno::try_from(counter.next)?;
        Seqno::try_from(counter.next + ops)?;
        counter.next += ops;
        counter.unlogged += ops;
        self.last.store(counter.next - 1, Ordering::Release);
        if let Some(observer) = &counter.observer {
            observer.appended(first, body);
        }
        Ok(first)
    }

    /// The group of the lane `lane` is stored: a power cut leaves it if its lane is fenced.
    pub(crate) fn stored(&self, lane: usize) {
        if let Some(InFlight(group)) = self.in_flight.get(lane) {
            group.store(IDLE, Ordering::SeqCst);
        }
        // Ordered after the store: either this thread sees the waiter, or the waiter sees the store.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    /// Makes every waiting thread look again.
    pub(crate) fn wake(&self) {
        drop(self.turn.lock());
        self.stored.notify_all();
    }

    /// Every record up to this seqno is stored.
    pub(crate) fn stored_up_to(&self) -> u64 {
        let last = self.last.load(Ordering::SeqCst);
        let in_flight = self.in_flight.iter().map(|group| group.0.load(Ordering::SeqCst));
        in_flight.min().unwrap_or(IDLE).saturating_sub(1).min(last)
    }

    /// Returns once every record up to `upto` is stored.
    ///
    /// # Errors
    /// Those of `check`, which reports that the log is poisoned; then `wake` was called.
    pub(crate) fn wait_until_stored(
        &self,
        upto: u64,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut backoff = Backoff::default();
        loop {
            if self.stored_up_to() >= upto {
                return Ok(());
            }
            check()?;
            if !backoff.wait() {
                break;
            }
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut turn = self.turn.lock();
        let result = loop {
            if self.stored_up_to() >= upto {
                break Ok(());
            }
            if let Err(error) = check() {
                break Err(error);
            }
            turn = wait(&self.stored, turn);
        };
        drop(turn);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Every record up to this seqno is durable, as was stated last.
    pub(crate) fn durable(&self) -> Seqno {
        Seqno::new(self.durable.load(Ordering::Acquire))
    }

    /// States that every record up to `durable` is durable.
    pub(crate) fn set_durable(&self, durable: u64) {
        self.durable.fetch_max(durable, Ordering::AcqRel);
    }

    /// Leaves seqnos to other lanes.
    #[cfg(test)]
    pub(crate) fn skip_to(&self, next: u64) {
        self.counter.lock().next = next;
    }
}

//! The seqnos of a log: one counter for all of its lanes, and the seqno up to which every record is stored.
//!
//! A lane takes seqnos once it has room for its group, and states that the group is in flight before any
//! other thread can see the seqnos as taken. It states that the group is stored after its fence. So every
//! record below the least seqno in flight is stored: a power cut leaves them all.
//!
//! A group that fails stays in flight for good, and the log is poisoned: no record from its first seqno on
//! counts, in any lane. Whether a record counts depends on its seqno alone, and not on the moment at which
//! its thread looks, because the records that count become visible in seqno order: without an earlier one, a
//! later one would wait for ever.
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
    /// The least seqno of a group that failed; `u64::MAX`: none did. Never raised.
    lost_from: AtomicU64,
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
            lost_from: AtomicU64::new(u64::MAX),
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

    /// The group of `ops` operations with the seqnos `taken` failed, and the log is poisoned. A log of one
    /// lane gets the seqnos back.
    pub(crate) fn lose(&self, taken: Taken, ops: u64) {
        self.lost_from.fetch_min(taken.first_stored(), Ordering::SeqCst);
        self.give_back(taken, ops);
        self.wake();
    }

    fn give_back(&self, taken: Taken, ops: u64) {
        let mut counter = self.counter.lock();
        // Another lane may be about to take the next seqno: two groups, both stored, would have the same one.
        if self.in_flight.len() == 1 && counter.next == taken.first + ops {
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

    /// Whether a record up to `upto` is lost.
    pub(crate) fn is_lost(&self, upto: u64) -> bool {
        self.lost_from.load(Ordering::SeqCst) <= upto
    }

    /// Makes every waiting thread look again.
    fn wake(&self) {
        drop(self.turn.lock());
        self.stored.notify_all();
    }

    /// Every record up to this seqno is stored.
    pub(crate) fn stored_up_to(&self) -> u64 {
        let last = self.last.load(Ordering::SeqCst);
        let in_flight = self.in_flight.iter().map(|group| group.0.load(Ordering::SeqCst));
        in_flight.min().unwrap_or(IDLE).saturating_sub(1).min(last)
    }

    /// Waits until every record up to `upto` is stored, or one of them is lost. Returns whether all are
    /// stored.
    pub(crate) fn wait_until_stored(&self, upto: u64) -> bool {
        let outcome = || {
            let is_stored = self.stored_up_to() >= upto;
            (is_stored || self.is_lost(upto)).then_some(is_stored)
        };
        let mut backoff = Backoff::default();
        loop {
            if let Some(is_stored) = outcome() {
                return is_stored;
            }
            if !backoff.wait() {
                break;
            }
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut turn = self.turn.lock();
        let is_stored = loop {
            if let Some(is_stored) = outcome() {
                break is_stored;
            }
            turn = wait(&self.stored, turn);
        };
        drop(turn);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        is_stored
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

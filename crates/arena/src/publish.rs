//! The publish ring: batches are applied in any order and become visible to readers in seqno order.
//!
//! A writer that has applied its batch calls [`PublishRing::publish`]. Readers use [`PublishRing::visible`]
//! as their read sequence number.
//!
//! Invariant I2: the visible seqno only grows, and is always the last seqno of a batch such that this batch
//! and all earlier ones are applied. The ring also keeps the second half of I1: a thread that sees a seqno
//! visible sees all that its writer stored before `publish`.
//!
//! Algorithm: a writer stores its batch's last seqno in the slot of the batch's first seqno. Then any thread
//! that finds the slot after the visible seqno filled advances the visible seqno over that batch. Either the
//! writer of the next batch sees the later batches in their slots, or their writers see that the visible
//! seqno has reached them: all these stores and loads are `SeqCst`, so not both sides can miss. A batch
//! enters the ring once its first seqno is at most one ring length after the visible seqno, so two batches in
//! the ring never share a slot.
//!
//! Concurrency: any number of threads. A waiter spins and yields ([`base::Backoff`]), then sleeps on one of
//! several condition variables; an advance wakes only the waiters of the batches that it passed. Cost for the
//! next batch in order: two atomic exchanges.

use std::fmt;

use base::{Seqno, invariant};

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::sync::{Backoff, CachePadded, Condvar, Mutex, lock};

/// The number of slots: how many seqnos a batch's first one may lie after the visible one.
const SLOTS: usize = if cfg!(any(miri, all(test, feature = "shuttle"))) { 8 } else { 4096 };

/// Wait queues of batches. With more waiters than this, some are woken in vain.
const WAIT_QUEUES: usize = 32;

/// Makes batches visible in seqno order.
pub struct PublishRing {
    visible: CachePadded<AtomicU64>,
    /// Slot `first % SLOTS` holds the last seqno of the batch that starts at `first`, once that batch is
    /// applied. A value up to the visible seqno belongs to a batch that is published already.
    slots: Box<[AtomicU64]>,
    /// Writers of applied batches wait here until their batches are visible, by first seqno.
    wait_queues: Box<[CachePadded<WaitQueue>]>,
    /// Woken at every change of the visible seqno: writers wait here until their batch fits in the ring, and
    /// other threads until a seqno of another writer is visible.
    advanced: WaitQueue,
}

impl PublishRing {
    /// A ring in which all seqnos up to `visible` are published.
    #[must_use]
    pub fn new(visible: Seqno) -> Self {
        Self {
            visible: CachePadded(AtomicU64::new(visible.get())),
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            wait_queues: (0..WAIT_QUEUES).map(|_| CachePadded::default()).collect(),
            advanced: WaitQueue::default(),
        }
    }

    /// The visible seqno: the largest one that readers may use. A thread that reads it sees all that the
    /// writers of this batch and of all earlier batches stored before they called `publish`.
    #[must_use]
    pub fn visible(&self) -> Seqno {
        // At least `Acquire`: pairs with the exchange in `advance`.
        Seqno::new(self.visible.0.load(SeqCst))
    }

    /// Publishes the applied batch `[first, first + count)`. Returns once it is visible.
    ///
    /// Each seqno after the one given to [`PublishRing::new`] must be published exactly once; if one is left
    /// out, every later writer waits forever. An empty batch returns at once.
    pub fn publish(&self, first: Seqno, count: u64) {
        let (Some(before), true) = (first.get().checked_sub(1), count > 0) else { return };
        let last = before + count;
        invariant!(last <= Seqno::MAX.get(), "a seqno has 56 bits");
        invariant!(self.visible.0.load(SeqCst) <= before, "a seqno is published once");
        self.advanced.wait(|| self.visible.0.load(SeqCst) + SLOTS as u64 > before);
        let earlier = self.slot(first.get()).swap(last, SeqCst);
        invariant!(earlier <= before, "two batches in the ring never share a slot");
        self.advance();
        self.wait_queue(first.get()).wait(|| self.visible.0.load(SeqCst) >= last);
    }

    /// Returns once `seqno` is visible. A writer must have it, or this waits forever.
    pub fn wait_until_visible(&self, seqno: Seqno) {
        self.advanced.wait(|| self.visible.0.load(SeqCst) >= seqno.get());
    }

    /// Advances the visible seqno over every applied batch that follows it.
    fn advance(&self) {
        let mut visible = self.visible.0.load(SeqCst);
        loop {
            let first = visible + 1;
            let last = self.slot(first).load(SeqCst);
            if last < first {
                return;
            }
            // Fails if another thread advanced over this batch. This thread goes on from there, because the
            // other one may have read the next slot before this thread stored into it. The slot just read may
            // hold a later batch by then; the exchange fails, because the visible seqno never repeats.
            match self.visible.0.compare_exchange(visible, last, SeqCst, SeqCst) {
                Ok(_) => {
                    self.wait_queue(first).wake();
                    self.advanced.wake();
                    visible = last;
                }
                Err(now) => {
                    invariant!(now > visible, "the visible seqno only grows");
                    visible = now;
                }
            }
        }
    }

    #[expect(clippy::indexing_slicing, reason = "a remainder modulo the length")]
    fn slot(&self, first: u64) -> &AtomicU64 {
        &self.slots[first as usize % SLOTS]
    }

    #[expect(clippy::indexing_slicing, reason = "a remainder modulo the length")]
    fn wait_queue(&self, first: u64) -> &WaitQueue {
        &self.wait_queues[first as usize % WAIT_QUEUES].0
    }
}

impl fmt::Debug for PublishRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublishRing(visible {})", self.visible())
    }
}

/// Threads that wait for a condition on atomics.
#[derive(Default)]
struct WaitQueue {
    /// Threads that sleep or are about to. A waiter increments it before its last check of the condition; a
    /// waker reads it after changing the condition. Both are `SeqCst`, so the waiter sees the change or the
    /// waker sees the waiter.
    waiting: AtomicU32,
    mutex: Mutex<()>,
    changed: Condvar,
}

impl WaitQueue {
    fn wait(&self, ready: impl Fn() -> bool) {
        let mut backoff = Backoff::default();
        loop {
            if ready() {
                return;
            }
            if !backoff.wait() {
                break;
            }
        }
        self.waiting.fetch_add(1, SeqCst);
        let mut guard = lock(&self.mutex);
        while !ready() {
            guard = self.changed.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        drop(guard);
        self.waiting.fetch_sub(1, SeqCst);
    }

    /// Wakes all waiters. Call it after changing the condition.
    fn wake(&self) {
        if self.waiting.load(SeqCst) > 0 {
            // Locked once so that each waiter is either before its check or asleep, and misses no wake-up.
            drop(lock(&self.mutex));
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;

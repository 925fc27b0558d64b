//! The row in which writers publish: batches are applied in any order and become visible in order.
//!
//! A writer that has applied its batch calls [`PublishRing::publish`]; readers take
//! [`PublishRing::visible`] as their sequence number.
//!
//! Invariant I2: the visible seqno only grows, and is always the last seqno of a batch whose whole
//! row before it is applied. Half of I1: what a writer stored before `publish` is seen by whoever
//! sees its seqno visible.
//!
//! Concurrency: a batch's last seqno is stored in the slot of its first, then whoever finds the
//! slot after the visible seqno filled moves the visible seqno over it. Either the writer at the
//! head sees the batches behind it, or they see that they are at the head: the stores and loads
//! involved are `SeqCst`, so both cannot miss. A batch enters the ring when its first seqno lies
//! within one ring of the visible one, so no two batches in the ring share a slot.
//!
//! Waiting is a short spin, yields ([`base::Backoff`]), then a park on one of several condition variables;
//! only those who wait for the batches just passed are woken. Cost at the head: two atomic exchanges.

use std::fmt;

use base::Seqno;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::sync::{Backoff, CachePadded, Condvar, Mutex, lock};

/// How far, in seqnos, a batch's first may lie after the visible one.
const SLOTS: usize = if cfg!(any(miri, all(test, feature = "shuttle"))) { 8 } else { 4096 };

/// Condition variables; with more waiters than this some are woken in vain.
const WAIT_QUEUES: usize = 32;

/// Orders the publication of batches.
pub struct PublishRing {
    visible: CachePadded<AtomicU64>,
    /// Slot `first % SLOTS` holds the last seqno of the batch that starts at `first`, once that is
    /// applied; anything not above the visible seqno is of a batch passed before.
    slots: Box<[AtomicU64]>,
    /// Where the writers of applied batches wait, by first seqno.
    wait_queues: Box<[CachePadded<WaitQueue>]>,
    /// Where those wait who watch the visible seqno: writers for their batch to fit in the ring,
    /// others for a seqno that is not theirs.
    full: WaitQueue,
}

impl PublishRing {
    /// A ring in which everything up to `visible` is published.
    #[must_use]
    pub fn new(visible: Seqno) -> Self {
        Self {
            visible: CachePadded(AtomicU64::new(visible.get())),
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            wait_queues: (0..WAIT_QUEUES).map(|_| CachePadded::default()).collect(),
            full: WaitQueue::default(),
        }
    }

    /// The last seqno that readers may use. Whoever reads it sees everything its batch, and every
    /// batch before it, stored before being published.
    #[must_use]
    pub fn visible(&self) -> Seqno {
        // At least `Acquire`: pairs with the exchange in `advance`.
        Seqno::new(self.visible.0.load(SeqCst))
    }

    /// Publishes the applied batch `[first, first + count)`; returns once it is visible.
    ///
    /// Each seqno after the one given to [`PublishRing::new`] must be published exactly once, or
    /// every later writer waits for ever. An empty batch is visible already.
    pub fn publish(&self, first: Seqno, count: u64) {
        let (Some(before), true) = (first.get().checked_sub(1), count > 0) else { return };
        let last = before + count;
        self.full.wait(|| self.visible.0.load(SeqCst) + SLOTS as u64 > before);
        self.slot(first.get()).store(last, SeqCst);
        self.advance();
        self.wait_queue(first.get()).wait(|| self.visible.0.load(SeqCst) >= last);
    }

    /// Returns once `seqno` is visible. It must have been given out.
    pub fn wait_until_visible(&self, seqno: Seqno) {
        self.full.wait(|| self.visible.0.load(SeqCst) >= seqno.get());
    }

    /// Moves the visible seqno over every applied batch that follows it.
    fn advance(&self) {
        let mut visible = self.visible.0.load(SeqCst);
        loop {
            let first = visible + 1;
            let last = self.slot(first).load(SeqCst);
            if last < first {
                return;
            }
            // Fails where another writer passed this batch: then it goes on from there, and so
            // does this one, since the other may have looked before this one's store. The slot may
            // be a later batch's by then, but the visible seqno never comes back.
            match self.visible.0.compare_exchange(visible, last, SeqCst, SeqCst) {
                Ok(_) => {
                    self.wait_queue(first).wake();
                    self.full.wake();
                    visible = last;
                }
                Err(now) => visible = now,
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

/// A place to wait for a condition on atomics.
#[derive(Default)]
struct WaitQueue {
    /// Threads parked or about to be. Raised before the last look at the condition, read after the
    /// condition changes, both `SeqCst`: the waiter sees the change or the waker sees the waiter.
    waiting: AtomicU32,
    mutex: Mutex<()>,
    changed: Condvar,
}

impl WaitQueue {
    fn wait(&self, ready: impl Fn() -> bool) {
        let mut patience = Backoff::default();
        loop {
            if ready() {
                return;
            }
            if !patience.wait() {
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

    /// Wakes whoever waits, after the condition changed.
    fn wake(&self) {
        if self.waiting.load(SeqCst) > 0 {
            // Taken and released so that a waiter is either before its look or asleep.
            drop(lock(&self.mutex));
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;

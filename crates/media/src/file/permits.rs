//! Priorities at a busy device, by class: log > read > flush > compaction > scrub. Log and read operations
//! never wait. The others, background operations, wait for a permit of their class.
//!
//! [`limit`] is the policy, a pure function of the operations in flight; [`IoPermits`] counts them across
//! every queue and file of one medium and makes background operations wait. Such an operation waits at most
//! [`WAIT_MAX`] and then proceeds without a free permit: no class starves, and a thread that holds permits in
//! one queue while it waits for another cannot deadlock.
//!
//! Concurrency: one counter a class. A slightly stale count only shifts a limit briefly, so `Relaxed`
//! suffices; a missed wake-up costs one round of waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use base::sync::{Condvar, Mutex};

use crate::Class;

/// The longest wait of a background operation for a permit: some hundred device reads, so that yielding
/// pays, and short enough that a flush still makes progress.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// The wait is divided into rounds; a missed wake-up costs one of them.
const ROUNDS: u32 = 5;

const CLASSES: usize = 5;

/// The most operations of `class` in flight on a device that `depth` operations keep busy, while `above`
/// operations of higher classes are in flight. At least one.
///
/// Without operations of higher classes, flushes may fill the device, merges half of it, scrubs a quarter.
/// While a caller waits, their shares are small enough that the device's queue, and so the caller's latency,
/// is nearly as without background work.
pub(crate) fn limit(class: Class, above: usize, depth: usize) -> usize {
    let share = match (class, above) {
        (Class::Log | Class::Read, _) => return usize::MAX,
        (Class::Flush, 0) => depth,
        (Class::Flush, _) | (Class::Scrub, 0) => depth / 4,
        (Class::Compaction, 0) => depth / 2,
        (Class::Compaction, _) => depth / 8,
        (Class::Scrub, _) => 1,
    };
    share.max(1)
}

/// Counts the operations in flight on one medium by class.
#[derive(Debug)]
pub(crate) struct IoPermits {
    depth: usize,
    in_flight: [AtomicU32; CLASSES],
    waiting: AtomicU32,
    lock: Mutex<()>,
    freed: Condvar,
}

impl IoPermits {
    /// For a device that `depth` operations keep busy.
    pub(crate) fn new(depth: usize) -> Arc<Self> {
        Arc::new(Self {
            depth,
            in_flight: Default::default(),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(()),
            freed: Condvar::new(),
        })
    }

    #[expect(clippy::indexing_slicing, reason = "there is one counter for each class")]
    fn count(&self, class: Class) -> &AtomicU32 {
        &self.in_flight[class as usize]
    }

    fn above(&self, class: Class) -> usize {
        let higher = self.in_flight.iter().take(class as usize);
        higher.map(|count| count.load(Relaxed) as usize).sum()
    }

    /// A permit, if one is free.
    pub(crate) fn try_acquire(self: &Arc<Self>, class: Class) -> Option<IoPermit> {
        let most = limit(class, self.above(class), self.depth);
        let room = |now: u32| ((now as usize) < most).then_some(now + 1);
        self.count(class).fetch_update(Relaxed, Relaxed, room).ok()?;
        Some(IoPermit { permits: Arc::clone(self), class })
    }

    /// A permit, after at most [`WAIT_MAX`].
    pub(crate) fn acquire(self: &Arc<Self>, class: Class) -> IoPermit {
        if let Some(permit) = self.try_acquire(class) {
            return permit;
        }
        self.waiting.fetch_add(1, Relaxed);
        let mut lock = self.lock.lock();
        let mut permit = None;
        for _ in 0..ROUNDS {
            lock = self.freed.wait_for(lock, WAIT_MAX / ROUNDS);
            permit = self.try_acquire(class);
            if permit.is_some() {
                break;
            }
        }
        drop(lock);
        self.waiting.fetch_sub(1, Relaxed);
        permit.unwrap_or_else(|| {
            self.count(class).fetch_add(1, Relaxed);
            IoPermit { permits: Arc::clone(self), class }
        })
    }
}

/// Permits one operation in flight; returned on drop.
#[derive(Debug)]
pub(crate) struct IoPermit {
    permits: Arc<IoPermits>,
    class: Class,
}

impl Drop for IoPermit {
    fn drop(&mut self) {
        let in_flight = self.permits.count(self.class).fetch_sub(1, Relaxed);
        base::invariant!(in_flight > 0, "a permit is counted until it is returned");
        if self.permits.waiting.load(Relaxed) > 0 {
            drop(self.permits.lock.lock());
            self.permits.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Class; CLASSES] =
        [Class::Log, Class::Read, Class::Flush, Class::Compaction, Class::Scrub];

    #[test]
    fn a_lower_class_never_has_a_larger_limit() {
        for depth in [1, 2, 8, 32, 256] {
            for above in [0, 1, 100] {
                let limits = ALL.map(|class| limit(class, above, depth));
                assert!(limits.is_sorted_by(|high, low| high >= low), "{limits:?}");
                assert!(limits.iter().all(|limit| *limit >= 1), "{limits:?}");
            }
            for class in ALL {
                assert!(limit(class, 1, depth) <= limit(class, 0, depth), "{class:?} at {depth}");
            }
        }
    }

    #[test]
    fn background_work_gets_fewer_permits_while_a_read_is_in_flight() {
        let permits = IoPermits::new(32);
        let mut held: Vec<IoPermit> = Vec::new();
        while let Some(permit) = permits.try_acquire(Class::Compaction) {
            held.push(permit);
        }
        assert_eq!(held.len(), 16);
        let read = permits.try_acquire(Class::Read).unwrap();
        held.truncate(4);
        assert!(permits.try_acquire(Class::Compaction).is_none());
        // Operations of lower classes do not reduce the limit of a higher class.
        assert!(permits.try_acquire(Class::Flush).is_some());
        drop(read);
        assert!(permits.try_acquire(Class::Compaction).is_some());
    }

    #[test]
    fn a_wait_for_a_permit_is_bounded_and_cannot_deadlock() {
        let permits = IoPermits::new(1);
        let first = permits.acquire(Class::Scrub);
        // The same thread holds the only permit: an unbounded wait would never end.
        let second = permits.acquire(Class::Scrub);
        assert_eq!(permits.count(Class::Scrub).load(Relaxed), 2);
        drop((first, second));
        assert_eq!(permits.count(Class::Scrub).load(Relaxed), 0);
    }
}

//! Whose turn it is at a busy device: I/O classes (log > read > flush > compaction > scrub).
//!
//! [`limit`] is the policy, a pure function of what is in flight; [`Turns`] counts, across every
//! queue and file of one medium, and makes background operations wait. Log and read operations
//! never wait. A background operation waits at most [`PATIENCE`], then goes: nothing starves, and
//! a thread that holds turns in a queue while it waits for another cannot lock itself up.
//!
//! Concurrency: one counter a class. A slightly stale count only shifts a limit for a moment, so
//! `Relaxed` suffices; a missed wake-up costs one round of waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::Class;

/// The longest a background operation waits for its turn: some hundred device reads, so that
/// yielding is worth it, and short enough that a flush still moves.
const PATIENCE: Duration = Duration::from_millis(5);

/// In how many rounds it waits: a missed wake-up costs one of them.
const ROUNDS: u32 = 5;

const CLASSES: usize = 5;

/// The most operations of `class` in flight at once on a device that `depth` keep busy, while
/// `above` operations of higher classes are in flight. Never below one.
///
/// Background work alone may fill half the device; beside a waiting caller it gets a share that
/// leaves the device's queue, and so the caller's latency, nearly as if it were alone.
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

/// Counts what is in flight on one medium by class.
#[derive(Debug)]
pub(crate) struct Turns {
    depth: usize,
    in_flight: [AtomicU32; CLASSES],
    waiting: AtomicU32,
    lock: Mutex<()>,
    freed: Condvar,
}

impl Turns {
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

    /// A turn, if there is one now.
    pub(crate) fn try_take(self: &Arc<Self>, class: Class) -> Option<Turn> {
        let most = limit(class, self.above(class), self.depth);
        let room = |now: u32| ((now as usize) < most).then_some(now + 1);
        self.count(class).fetch_update(Relaxed, Relaxed, room).ok()?;
        Some(Turn { turns: Arc::clone(self), class })
    }

    /// A turn, after at most [`PATIENCE`].
    pub(crate) fn take(self: &Arc<Self>, class: Class) -> Turn {
        if let Some(turn) = self.try_take(class) {
            return turn;
        }
        self.waiting.fetch_add(1, Relaxed);
        let mut lock = self.lock.lock();
        let turn = (0..ROUNDS).find_map(|_| {
            self.freed.wait_for(&mut lock, PATIENCE / ROUNDS);
            self.try_take(class)
        });
        drop(lock);
        self.waiting.fetch_sub(1, Relaxed);
        turn.unwrap_or_else(|| {
            self.count(class).fetch_add(1, Relaxed);
            Turn { turns: Arc::clone(self), class }
        })
    }
}

/// The right to have one operation in flight; given back on drop.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    class: Class,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.count(self.class).fetch_sub(1, Relaxed);
        if self.turns.waiting.load(Relaxed) > 0 {
            drop(self.turns.lock.lock());
            self.turns.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Class; CLASSES] =
        [Class::Log, Class::Read, Class::Flush, Class::Compaction, Class::Scrub];

    #[test]
    fn a_lower_class_never_has_the_larger_share() {
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
    fn background_work_shrinks_while_a_caller_waits() {
        let turns = Turns::new(32);
        let mut held: Vec<Turn> = Vec::new();
        while let Some(turn) = turns.try_take(Class::Compaction) {
            held.push(turn);
        }
        assert_eq!(held.len(), 16);
        let read = turns.try_take(Class::Read).unwrap();
        held.truncate(4);
        assert!(turns.try_take(Class::Compaction).is_none());
        // Lower work in flight takes nothing from higher work.
        assert!(turns.try_take(Class::Flush).is_some());
        drop(read);
        assert!(turns.try_take(Class::Compaction).is_some());
    }

    #[test]
    fn patience_ends_and_nothing_locks_up() {
        let turns = Turns::new(1);
        let first = turns.take(Class::Scrub);
        // The same thread holds the only turn: without patience this would wait for ever.
        let second = turns.take(Class::Scrub);
        assert_eq!(turns.count(Class::Scrub).load(Relaxed), 2);
        drop((first, second));
        assert_eq!(turns.count(Class::Scrub).load(Relaxed), 0);
    }
}

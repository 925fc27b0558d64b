//! Logical threads in virtual time: their turns, the same on every machine.
//!
//! A driver takes the earliest turn, does what that thread does at that time, and says when the thread goes
//! on. A thread that waits for another one has no turn until that one gives it one. Turns at the same time
//! come in the order in which they were given. One system thread; a turn costs the logarithm of the turns.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Virtual time, nanoseconds.
pub type Nanos = f64;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    at: Nanos,
    number: u64,
    thread: usize,
}

impl Eq for Turn {}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Schedule {
    turns: BinaryHeap<Reverse<Turn>>,
    given: u64,
    now: Nanos,
}

impl Schedule {
    /// A schedule without turns, at time 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives `thread` a turn at `at`, but not before now.
    pub fn give(&mut self, thread: usize, at: Nanos) {
        base::invariant!(at.is_finite(), "a turn has a time");
        self.given += 1;
        self.turns.push(Reverse(Turn { at: at.max(self.now), number: self.given, thread }));
    }

    /// The next turn: its time, which is now from then on, and its thread. `None` if every thread waits.
    #[expect(clippy::should_implement_trait, reason = "turns are given between two calls")]
    pub fn next(&mut self) -> Option<(Nanos, usize)> {
        let Reverse(turn) = self.turns.pop()?;
        base::invariant!(turn.at >= self.now, "virtual time does not go back");
        self.now = turn.at;
        Some((turn.at, turn.thread))
    }

    /// The time of the last turn that was taken.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn turns_come_by_time_then_in_the_order_given_and_never_before_now() {
        let mut schedule = Schedule::new();
        for (thread, at) in [(0, 5.0), (1, 3.0), (2, 5.0), (3, 1.0)] {
            schedule.give(thread, at);
        }
        assert_eq!(schedule.next(), Some((1.0, 3)));
        assert_eq!(schedule.next(), Some((3.0, 1)));
        schedule.give(4, 0.0);
        assert_eq!(schedule.next(), Some((3.0, 4)));
        assert_eq!((schedule.next(), schedule.next()), (Some((5.0, 0)), Some((5.0, 2))));
        assert_eq!((schedule.next(), schedule.now()), (None, 5.0));
    }
}

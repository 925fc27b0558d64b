//! Which entries stay: two queues and a memory of what went, as pure functions.
//!
//! What is new enters a small queue. Where it was asked for again by the time it is the oldest
//! there, it moves to the main queue, otherwise it goes and is remembered; what is remembered when
//! it is asked for again enters the main queue at once. The oldest of the main queue goes, too,
//! unless it was asked for since: then it enters again at the end, cooler. So what is read once,
//! by a scan say, passes through the small queue alone. (S3-FIFO: Yang et al., "FIFO queues are all
//! you need for cache eviction", SOSP 2023; sizes and thresholds by the simulator,
//! docs/performance.md.)
//!
//! Where hardly anything new is asked for again, most of it is not even let in: reads spread evenly
//! over much data should not pay for rows that nobody reads.
//!
//! A row whose key was written answers nothing until the new version comes in its place, among those that
//! stay; one that is the oldest before that goes, whatever its heat, and is remembered. A key that is asked
//! for while memtables answer is as good as one that is read from tables: its row comes with the flush.
//!
//! The cache and the simulator run this code.

use arena::{Awaited, Heat};

/// The queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Of what was asked for once.
    New,
    /// Of the rest.
    Main,
}

/// The part of all bytes that the queue of new entries has, in 256ths.
const NEW_PART: u64 = 18;

/// How many entries that went are remembered for 16 that there are.
const GHOST_PART: usize = 19;

/// Of 256 entries that leave the new queue, as many must have been asked for again, or most entries
/// are not let in.
const WARM_LEAST: u32 = 4;

/// Of the entries that are not let in, one of this many is, to see how it fares.
const PROBES: u64 = 16;

/// What becomes of an entry when it is the oldest of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes, and is remembered or not.
    Evict {
        /// Whether it counts as more than new when it is asked for again.
        remember: bool,
    },
    /// It enters the main queue, as warm as this.
    Keep(Heat),
}

/// Which queue is to give up its oldest, where they hold this many bytes.
#[must_use]
pub const fn victim(new: u64, main: u64) -> Queue {
    let is_over = new * 256 >= (new + main) * NEW_PART;
    if main == 0 || new > 0 && is_over { Queue::New } else { Queue::Main }
}

/// What becomes of the oldest of `queue`.
#[must_use]
pub const fn verdict(queue: Queue, heat: Heat) -> Verdict {
    match (queue, heat.checked_sub(1)) {
        (_, None) => Verdict::Evict { remember: matches!(queue, Queue::New) },
        (Queue::New, Some(_)) => Verdict::Keep(0),
        (Queue::Main, Some(cooler)) => Verdict::Keep(cooler),
    }
}

/// What becomes of the oldest where its key was written and the new version has not come yet.
pub(super) const STALE: Verdict = Verdict::Evict { remember: true };

/// The queue of a row that comes with a flush.
#[must_use]
pub(super) const fn queue_of_renewed(awaited: Awaited) -> Queue {
    match awaited {
        Awaited::Expected(0) => Queue::New,
        Awaited::Expected(_) | Awaited::Version => Queue::Main,
    }
}

/// How many entries that went are to be remembered where there are `entries`.
#[must_use]
pub const fn ghost_entries(entries: usize) -> usize {
    entries * GHOST_PART / 16
}

/// How many of the new entries are asked for again.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// In 65,536ths, an average that moves by a sixteenth with every 256 entries.
    warm: u32,
    seen: u32,
    seen_warm: u32,
}

impl Default for Admission {
    fn default() -> Self {
        Self { warm: 1 << 16, seen: 0, seen_warm: 0 }
    }
}

impl Admission {
    /// An entry left the queue of new ones, warm or not.
    pub const fn note_left_new(&mut self, heat: Heat) {
        self.seen += 1;
        self.seen_warm += (heat > 0) as u32;
        if self.seen == 256 {
            self.warm = self.warm - self.warm / 16 + self.seen_warm * (1 << 8) / 16;
            (self.seen, self.seen_warm) = (0, 0);
        }
    }

    /// Whether new entries are let in, and not only those that were remembered.
    #[must_use]
    pub const fn admits_new(&self) -> bool {
        self.warm >= WARM_LEAST << 8
    }

    /// The queue that an entry of this hash enters, if any; `recalled` where it was remembered. One
    /// that enters none is to be remembered.
    #[must_use]
    pub const fn queue(&self, hash: u64, recalled: bool) -> Option<Queue> {
        if recalled {
            return Some(Queue::Main);
        }
        let is_probe = (hash >> 48).is_multiple_of(PROBES);
        if is_probe || self.admits_new() { Some(Queue::New) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_once_goes_and_what_is_asked_for_again_stays() {
        assert_eq!(verdict(Queue::New, 0), Verdict::Evict { remember: true });
        assert_eq!(verdict(Queue::New, 3), Verdict::Keep(0));
        assert_eq!(verdict(Queue::Main, 3), Verdict::Keep(2));
        assert_eq!(verdict(Queue::Main, 0), Verdict::Evict { remember: false });
    }

    #[test]
    fn what_comes_with_a_flush_is_new_where_it_was_asked_for_once() {
        assert_eq!(queue_of_renewed(Awaited::Version), Queue::Main);
        assert_eq!(queue_of_renewed(Awaited::Expected(0)), Queue::New);
        assert_eq!(queue_of_renewed(Awaited::Expected(1)), Queue::Main);
    }

    #[test]
    fn the_new_queue_keeps_its_part() {
        assert_eq!(victim(10, 0), Queue::New);
        assert_eq!(victim(0, 10), Queue::Main);
        assert_eq!(victim(6, 94), Queue::Main);
        assert_eq!(victim(8, 92), Queue::New);
    }

    #[test]
    fn new_entries_are_let_in_for_as_long_as_some_are_asked_for_again() {
        let mut admission = Admission::default();
        let admitted = |admission: &Admission| {
            (0..1600u64).filter(|hash| admission.queue(hash << 48, false).is_some()).count()
        };
        assert_eq!(admitted(&admission), 1600);
        (0..40_000).for_each(|_| admission.note_left_new(0));
        assert_eq!(admitted(&admission), 100);
        assert_eq!(admission.queue(1 << 48, true), Some(Queue::Main));
        (0..10_000).for_each(|turn| admission.note_left_new(u8::from(turn % 10 == 0)));
        assert_eq!(admitted(&admission), 1600);
    }
}

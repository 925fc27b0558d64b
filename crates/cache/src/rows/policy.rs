//! Eviction policy of pages and rows: two FIFO queues and a ghost list, as pure functions.
//!
//! A new entry enters the small queue of new entries. If it was used again by the time it is the oldest
//! there, it moves to the main queue; otherwise it is evicted and enters the ghost list. An entry that the
//! ghost list has enters the main queue at once. The oldest entry of the main queue is evicted unless it was
//! used since its last turn; then it goes to the end of the queue with less heat. So entries that are used
//! once, by a scan for example, pass through the small queue only. (S3-FIFO: Yang et al., "FIFO queues are
//! all you need for cache eviction", SOSP 2023. Sizes and thresholds were chosen with the simulator,
//! docs/decisions/006-dram-cache.md.)
//!
//! If hardly any new entry is used again, most new rows are not admitted at all: reads spread evenly over
//! much data should not pay for rows that nobody reads.
//!
//! A row whose key was written is stale: it answers no reads until a flush renews it with the new version. If
//! it is the oldest of its queue before that, it is evicted whatever its heat, and enters the ghost list. A
//! key that readers find in memtables counts as used, as a key read from tables does: its row comes with the
//! flush.
//!
//! The caches and the simulators run this code.

use arena::{Awaited, Heat};

/// The two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Entries that were used once.
    New,
    /// All other entries.
    Main,
}

/// Share of the queue of new entries in all bytes, in 1/256.
const NEW_PART: u64 = 18;

/// Entries of the ghost list for 16 cached entries.
const GHOST_PART: usize = 19;

/// Least number of 256 entries leaving the queue of new entries that must have been used again for new
/// entries to be admitted.
const WARM_LEAST: u32 = 4;

/// While new entries are not admitted, one in this many is, to measure whether they are used again.
const PROBES: u64 = 16;

/// What happens to the oldest entry of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The entry is evicted.
    Evict {
        /// Whether it enters the ghost list.
        remember: bool,
    },
    /// The entry goes to the end of the main queue, with this heat.
    Keep(Heat),
}

/// The queue that loses its oldest entry, given the bytes that both hold.
#[must_use]
pub const fn victim(new: u64, main: u64) -> Queue {
    let is_over = new * 256 >= (new + main) * NEW_PART;
    if main == 0 || new > 0 && is_over { Queue::New } else { Queue::Main }
}

/// What happens to the oldest entry of `queue`.
#[must_use]
pub const fn verdict(queue: Queue, heat: Heat) -> Verdict {
    match (queue, heat.checked_sub(1)) {
        (_, None) => Verdict::Evict { remember: matches!(queue, Queue::New) },
        (Queue::New, Some(_)) => Verdict::Keep(0),
        (Queue::Main, Some(cooler)) => Verdict::Keep(cooler),
    }
}

/// What happens to the oldest entry if it is stale.
pub(super) const STALE: Verdict = Verdict::Evict { remember: true };

/// The queue of a row that a flush renews.
#[must_use]
pub(super) const fn queue_of_renewed(awaited: Awaited) -> Queue {
    match awaited {
        Awaited::Expected(0) => Queue::New,
        Awaited::Expected(_) | Awaited::Version => Queue::Main,
    }
}

/// Size of the ghost list for `entries` cached entries.
#[must_use]
pub const fn ghost_entries(entries: usize) -> usize {
    entries * GHOST_PART / 16
}

/// Admission of new entries, by how many of them are used again.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Share of new entries that are used again, in 1/65,536: an average that moves by 1/16 per 256 entries.
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
    /// Counts an entry that leaves the queue of new entries, with its heat.
    pub const fn note_left_new(&mut self, heat: Heat) {
        self.seen += 1;
        self.seen_warm += (heat > 0) as u32;
        if self.seen == 256 {
            self.warm = self.warm - self.warm / 16 + self.seen_warm * (1 << 8) / 16;
            (self.seen, self.seen_warm) = (0, 0);
        }
    }

    /// Whether new entries are admitted, not only those that the ghost list has.
    #[must_use]
    pub const fn admits_new(&self) -> bool {
        self.warm >= WARM_LEAST << 8
    }

    /// The queue that an entry with this hash enters; `recalled` if the ghost list had it. `None` if it is
    /// refused: it then enters the ghost list.
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
    fn unused_entries_are_evicted_and_used_ones_kept() {
        assert_eq!(verdict(Queue::New, 0), Verdict::Evict { remember: true });
        assert_eq!(verdict(Queue::New, 3), Verdict::Keep(0));
        assert_eq!(verdict(Queue::Main, 3), Verdict::Keep(2));
        assert_eq!(verdict(Queue::Main, 0), Verdict::Evict { remember: false });
    }

    #[test]
    fn a_renewed_row_used_once_enters_the_new_queue() {
        assert_eq!(queue_of_renewed(Awaited::Version), Queue::Main);
        assert_eq!(queue_of_renewed(Awaited::Expected(0)), Queue::New);
        assert_eq!(queue_of_renewed(Awaited::Expected(1)), Queue::Main);
    }

    #[test]
    fn the_new_queue_is_the_victim_above_its_share() {
        assert_eq!(victim(10, 0), Queue::New);
        assert_eq!(victim(0, 10), Queue::Main);
        assert_eq!(victim(6, 94), Queue::Main);
        assert_eq!(victim(8, 92), Queue::New);
    }

    #[test]
    fn new_entries_are_admitted_while_some_are_used_again() {
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

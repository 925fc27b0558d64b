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
//! Loops that are longer than the cache are worst for a queue: an entry is evicted just before its next use.
//! The guarded [`Rules`] keep a part of the loop instead: an entry that the ghost list has enters the main
//! queue only as often as that queue evicts unused entries anyway. [`crate::curve::Contest`] measures which
//! rules miss least.
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

/// How entries get into the main queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Every entry that the ghost list has enters the main queue.
    #[default]
    Open,
    /// An entry that the ghost list has enters the main queue with the probability that the oldest entry
    /// there is cold. The queue of new entries is short.
    Guarded,
    /// As `Guarded`, with a ghost list twice as long: for loops of several times the cache.
    GuardedLong,
}

impl Rules {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Open, Self::Guarded, Self::GuardedLong];

    /// Share of the queue of new entries in all bytes, in 1/256.
    const fn new_part(self) -> u64 {
        match self {
            Self::Open => 18,
            Self::Guarded | Self::GuardedLong => 3,
        }
    }

    /// Entries of the ghost list for 16 cached entries.
    const fn ghost_part(self) -> usize {
        match self {
            Self::Open | Self::Guarded => 19,
            Self::GuardedLong => GHOST_PART_MAX,
        }
    }
}

/// Most entries of the ghost list for 16 cached entries.
const GHOST_PART_MAX: usize = 40;

/// Most memory of a ghost list for each cached entry, bytes.
pub const GHOST_BYTES_MAX: usize = GHOST_PART_MAX * size_of::<u32>() / 16;

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
pub const fn victim(rules: Rules, new: u64, main: u64) -> Queue {
    let is_over = new * 256 >= (new + main) * rules.new_part();
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
pub const fn ghost_entries(rules: Rules, entries: usize) -> usize {
    entries * rules.ghost_part() / 16
}

/// Admission of entries, by how many of those before them were used again.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Share of new entries that are used again, in 1/65,536: an average that moves by 1/16 per 256 entries.
    warm: u32,
    seen: u32,
    seen_warm: u32,
    /// Share of the main queue's oldest entries that were not used since their last turn, in 1/65,536: an
    /// average that moves by 1/32 per entry.
    cold: u32,
    /// State of the random numbers of [`Rules::Guarded`].
    random: u32,
}

impl Default for Admission {
    fn default() -> Self {
        Self { warm: 1 << 16, seen: 0, seen_warm: 0, cold: 1 << 16, random: 0 }
    }
}

impl Admission {
    /// Counts an entry that is the oldest of `queue`, with its heat.
    pub const fn note_turn(&mut self, queue: Queue, heat: Heat) {
        if matches!(queue, Queue::Main) {
            let cold = if heat == 0 { 1 << 16 } else { 0 };
            self.cold = self.cold - self.cold / 32 + cold / 32;
            debug_assert!(self.cold <= 1 << 16, "a share is at most 1");
            return;
        }
        self.seen += 1;
        self.seen_warm += (heat > 0) as u32;
        if self.seen == 256 {
            self.warm = self.warm - self.warm / 16 + self.seen_warm * (1 << 8) / 16;
            debug_assert!(self.seen_warm <= self.seen, "warm entries are some of those seen");
            (self.seen, self.seen_warm) = (0, 0);
        }
    }

    /// Whether new entries are admitted, not only those that the ghost list has.
    #[must_use]
    pub const fn admits_new(&self) -> bool {
        self.warm >= WARM_LEAST << 8
    }

    /// The queue that a row with this hash enters; `recalled` if the ghost list had it. `None` if it is
    /// refused: it then enters the ghost list.
    #[must_use]
    pub const fn queue(&mut self, rules: Rules, hash: u64, recalled: bool) -> Option<Queue> {
        let is_probe = (hash >> 48).is_multiple_of(PROBES);
        if recalled || is_probe || self.admits_new() {
            Some(self.queue_of_admitted(rules, recalled))
        } else {
            None
        }
    }

    /// The queue of an entry that is admitted in any case.
    #[must_use]
    pub const fn queue_of_admitted(&mut self, rules: Rules, recalled: bool) -> Queue {
        let wins = match rules {
            Rules::Open => true,
            Rules::Guarded | Rules::GuardedLong => {
                // A linear congruential generator (Numerical Recipes): 16 bits of chance.
                self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                self.random >> 16 < self.cold
            }
        };
        if recalled && wins { Queue::Main } else { Queue::New }
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
        let victim = |new, main| victim(Rules::Open, new, main);
        assert_eq!([victim(10, 0), victim(8, 92)], [Queue::New; 2]);
        assert_eq!([victim(0, 10), victim(6, 94)], [Queue::Main; 2]);
        let guarded = |new, main| super::victim(Rules::Guarded, new, main);
        assert_eq!([guarded(10, 0), guarded(2, 98)], [Queue::New; 2]);
        assert_eq!([guarded(0, 10), guarded(1, 99)], [Queue::Main; 2]);
    }

    #[test]
    fn new_entries_are_admitted_while_some_are_used_again() {
        let mut admission = Admission::default();
        let queue = |admission: &mut Admission, hash: u64, recalled| {
            admission.queue(Rules::Open, hash << 48, recalled)
        };
        let admitted = |admission: &mut Admission| {
            (0..1600).filter(|hash| queue(admission, *hash, false).is_some()).count()
        };
        assert_eq!(admitted(&mut admission), 1600);
        (0..40_000).for_each(|_| admission.note_turn(Queue::New, 0));
        assert_eq!(admitted(&mut admission), 100);
        assert_eq!(queue(&mut admission, 1, true), Some(Queue::Main));
        (0..10_000).for_each(|turn| admission.note_turn(Queue::New, u8::from(turn % 10 == 0)));
        assert_eq!(admitted(&mut admission), 1600);
    }

    #[test]
    fn a_guarded_main_queue_admits_as_often_as_it_evicts() {
        let into_main = |cold_turns: u32, rules| {
            let mut admission = Admission::default();
            (0..3200).for_each(|turn| {
                admission.note_turn(Queue::Main, u8::from(turn % 4 >= cold_turns));
            });
            (0..4000).filter(|_| admission.queue_of_admitted(rules, true) == Queue::Main).count()
        };
        let guarded = [0, 2, 4].map(|cold_turns| into_main(cold_turns, Rules::Guarded));
        assert!(guarded[0] < 40 && (1800..2200).contains(&guarded[1]), "{guarded:?}");
        assert!(guarded[2] > 3900, "{guarded:?}");
        assert_eq!(into_main(0, Rules::Open), 4000);
        let mut admission = Admission::default();
        assert_eq!(admission.queue_of_admitted(Rules::Guarded, false), Queue::New);
    }
}

//! Simulation of one cache size over keys alone: the policy of the caches, and their ghost list.

use std::collections::VecDeque;

use arena::Heat;
use base::{invariant, limits};

use super::residents::{Number, Residency, Residents};
use crate::rows::Ghost;
use crate::rows::policy::{self, Admission, Queue, Rules, Verdict};

/// Size of a page, bytes.
pub(super) const PAGE_BYTES: u64 = limits::PAGE_BYTES as u64;

/// What the simulated caches hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Pages, as [`crate::PageCache`]: all are admitted.
    Pages,
    /// Rows, as [`crate::RowCache`].
    Rows,
}

/// Properties of an access, beside its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessContext {
    pub(super) subject: Subject,
    /// Least heat of the entry, that of metadata for example.
    pub(super) heat: Heat,
    /// Most sampled keys.
    pub(super) keys_max: usize,
}

/// Most heat that a key gets by being used.
pub(super) const HEAT_MAX: Heat = 3;

/// Most turns of a key before it is evicted.
const TURNS_MAX: usize = 10;

/// Least size that the ghost list is made for, keys.
const GHOST_KEYS_MIN: usize = 64;

#[derive(Debug)]
pub(super) struct Simulation {
    /// Index of this cache among the simulated ones.
    at: usize,
    /// The cache size that is simulated, and the bytes of sampled keys that this simulation holds.
    pub(super) bytes: u64,
    capacity: u64,
    new: VecDeque<Number>,
    main: VecDeque<Number>,
    new_bytes: u64,
    main_bytes: u64,
    ghost: Ghost,
    rules: Rules,
    admission: Admission,
    /// Misses, each weighted by the number of keys that its key stood for.
    pub(super) misses: f64,
}

impl Simulation {
    pub(super) fn new(at: usize, bytes: u64, rules: Rules) -> Self {
        let (new, main, ghost, admission) = Default::default();
        let (capacity, new_bytes, main_bytes, misses) = (bytes, 0, 0, 0.0);
        Self {
            at,
            bytes,
            capacity,
            new,
            main,
            new_bytes,
            main_bytes,
            ghost,
            rules,
            admission,
            misses,
        }
    }

    /// Sets the sampling rate: one of `1 / rate` keys is sampled from now on.
    pub(super) fn set_rate(&mut self, rate: f64) {
        self.capacity = (self.bytes as f64 * rate) as u64;
    }

    /// Memory used, bytes.
    pub(super) fn memory(&self) -> usize {
        (self.new.capacity() + self.main.capacity()) * size_of::<Number>()
            + Ghost::bytes_of(self.ghost.capacity()) as usize
    }

    /// A key misses: admits or refuses it.
    pub(super) fn miss(
        &mut self,
        residents: &mut Residents,
        number: Number,
        access: AccessContext,
    ) {
        let key = residents.key(number);
        if residents.residency(number, self.at).is_queued() {
            // The key was written: the new value takes the place of the old one.
            residents.set(number, self.at, Residency::alive(access.heat));
            return;
        }
        let is_fit = u64::from(key.bytes) <= self.capacity;
        let is_plain = access.heat == 0;
        let recalled = is_plain && self.ghost.recall(key.hash);
        let queue = match access.subject {
            _ if !is_fit => None,
            Subject::Pages if is_plain => {
                Some(self.admission.queue_of_admitted(self.rules, recalled))
            }
            Subject::Pages => Some(Queue::Main),
            Subject::Rows => self.admission.queue(self.rules, key.hash, recalled),
        };
        let Some(queue) = queue else { return self.remember(key.hash, access) };
        self.make_room(residents, u64::from(key.bytes), access);
        residents.set(number, self.at, Residency::alive(access.heat));
        self.enqueue(queue, number, u64::from(key.bytes));
    }

    fn enqueue(&mut self, queue: Queue, number: Number, bytes: u64) {
        let (list, sum) = match queue {
            Queue::New => (&mut self.new, &mut self.new_bytes),
            Queue::Main => (&mut self.main, &mut self.main_bytes),
        };
        if list.len() == list.capacity() {
            list.reserve_exact((list.len() / 8).max(8));
        }
        list.push_back(number);
        *sum += bytes;
    }

    /// Evicts keys until `more` bytes fit.
    fn make_room(&mut self, residents: &mut Residents, more: u64, access: AccessContext) {
        let turns = (self.new.len() + self.main.len()) * TURNS_MAX;
        for _ in 0..turns {
            if self.new_bytes + self.main_bytes + more <= self.capacity {
                return;
            }
            self.evict_oldest(residents, access);
        }
    }

    /// Gives the oldest key of a queue its turn: evicts it or keeps it.
    fn evict_oldest(&mut self, residents: &mut Residents, access: AccessContext) {
        let queue = policy::victim(self.rules, self.new_bytes, self.main_bytes);
        let (list, sum) = match queue {
            Queue::New => (&mut self.new, &mut self.new_bytes),
            Queue::Main => (&mut self.main, &mut self.main_bytes),
        };
        let Some(number) = list.pop_front() else {
            invariant!(*sum == 0, "the bytes of a queue are those of its keys");
            return;
        };
        let key = residents.key(number);
        invariant!(*sum >= u64::from(key.bytes), "the bytes of a queue are those of its keys");
        *sum = sum.saturating_sub(u64::from(key.bytes));
        let residency = residents.residency(number, self.at);
        if !residency.is_alive() {
            residents.set(number, self.at, Residency::default());
            return residents.release(number);
        }
        self.admission.note_turn(queue, residency.heat());
        match policy::verdict(queue, residency.heat()) {
            Verdict::Keep(heat) => {
                residents.set(number, self.at, Residency::alive(heat));
                self.enqueue(Queue::Main, number, u64::from(key.bytes));
            }
            Verdict::Evict { remember } => {
                residents.set(number, self.at, Residency::default());
                residents.release(number);
                if remember {
                    self.remember(key.hash, access);
                }
            }
        }
    }

    fn remember(&mut self, hash: u64, access: AccessContext) {
        self.fit_ghost(access);
        self.ghost.remember(hash);
    }

    /// Makes the ghost list as large as the real cache has it, in proportion.
    fn fit_ghost(&mut self, access: AccessContext) {
        let keys = match access.subject {
            Subject::Pages => (self.capacity / PAGE_BYTES) as usize,
            Subject::Rows => self.new.len() + self.main.len(),
        };
        // If the cache could hold every sampled key, the list needs no more than those.
        let most = access.keys_max.max(GHOST_KEYS_MIN);
        let rows = policy::ghost_entries(self.rules, keys.clamp(GHOST_KEYS_MIN, most));
        let now = self.ghost.capacity();
        if rows > now / 4 * 5 || rows < now / 2 {
            self.ghost.resize(rows);
        }
    }

    /// Drops the keys that `residents` dropped, and evicts down to the capacity.
    pub(super) fn lower_rate(&mut self, residents: &mut Residents, access: AccessContext) {
        for (list, sum) in
            [(&mut self.new, &mut self.new_bytes), (&mut self.main, &mut self.main_bytes)]
        {
            list.retain(|number| residents.residency(*number, self.at).is_queued());
            *sum = list.iter().map(|number| u64::from(residents.key(*number).bytes)).sum();
        }
        self.make_room(residents, 0, access);
        for list in [&mut self.new, &mut self.main] {
            list.shrink_to(list.len() / 8 * 9 + 8);
        }
        self.fit_ghost(access);
    }
}

//! A cache of one size, over keys alone: the policy of the caches, and their memory of what went.

use std::collections::VecDeque;

use arena::Heat;
use base::limits;

use super::residents::{Number, Residency, Residents};
use crate::rows::Ghost;
use crate::rows::policy::{self, Admission, Queue, Verdict};

/// The size of every page, bytes.
pub(super) const PAGE_BYTES: u64 = limits::PAGE_BYTES as u64;

/// What the simulated caches hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Pages, as [`crate::PageCache`] keeps them: all are let in.
    Pages,
    /// Rows, as [`crate::RowCache`] does.
    Rows,
}

/// What is known of an access beside its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessContext {
    pub(super) subject: Subject,
    /// How warm it is at least, as metadata is.
    pub(super) heat: Heat,
    /// So many keys are sampled at most.
    pub(super) keys_max: usize,
}

/// Most warm a key gets by being asked for.
pub(super) const HEAT_MAX: Heat = 3;

/// Turns of a key at most before it goes.
const TURNS_MAX: usize = 10;

/// The least keys that a memory of what went is made for.
const GHOST_KEYS_MIN: usize = 64;

#[derive(Debug)]
pub(super) struct Simulation {
    /// Its number among the others.
    at: usize,
    /// The size that it stands for, and that of the keys that it may hold; bytes.
    pub(super) bytes: u64,
    capacity: u64,
    new: VecDeque<Number>,
    main: VecDeque<Number>,
    new_bytes: u64,
    main_bytes: u64,
    ghost: Ghost,
    admission: Admission,
    /// By as many keys as each stood for.
    pub(super) misses: f64,
}

impl Simulation {
    pub(super) fn new(at: usize, bytes: u64) -> Self {
        let (new, main, ghost, admission) = Default::default();
        let (capacity, new_bytes, main_bytes, misses) = (bytes, 0, 0, 0.0);
        Self { at, bytes, capacity, new, main, new_bytes, main_bytes, ghost, admission, misses }
    }

    /// One of `1 / rate` keys is sampled from now on.
    pub(super) fn set_rate(&mut self, rate: f64) {
        self.capacity = (self.bytes as f64 * rate) as u64;
    }

    /// Memory taken, bytes.
    pub(super) fn memory(&self) -> usize {
        (self.new.capacity() + self.main.capacity()) * size_of::<Number>()
            + Ghost::bytes_of(self.ghost.capacity()) as usize
    }

    /// A key that is not there is asked for, and let in or not.
    pub(super) fn miss(
        &mut self,
        residents: &mut Residents,
        number: Number,
        access: AccessContext,
    ) {
        let key = residents.key(number);
        if residents.residency(number, self.at).is_queued() {
            // What was written since lies where its old value did.
            residents.set(number, self.at, Residency::alive(access.heat));
            return;
        }
        let is_fit = u64::from(key.bytes) <= self.capacity;
        let is_plain = access.heat == 0;
        let recalled = is_plain && self.ghost.recall(key.hash);
        let queue = match access.subject {
            _ if !is_fit => None,
            Subject::Pages if is_plain && !recalled => Some(Queue::New),
            Subject::Pages => Some(Queue::Main),
            Subject::Rows => self.admission.queue(key.hash, recalled),
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

    /// Has keys go until so many bytes more fit.
    fn make_room(&mut self, residents: &mut Residents, more: u64, access: AccessContext) {
        let turns = (self.new.len() + self.main.len()) * TURNS_MAX;
        for _ in 0..turns {
            if self.new_bytes + self.main_bytes + more <= self.capacity {
                return;
            }
            self.evict_oldest(residents, access);
        }
    }

    /// The turn of the oldest of the queue that is to give one up.
    fn evict_oldest(&mut self, residents: &mut Residents, access: AccessContext) {
        let queue = policy::victim(self.new_bytes, self.main_bytes);
        let (list, sum) = match queue {
            Queue::New => (&mut self.new, &mut self.new_bytes),
            Queue::Main => (&mut self.main, &mut self.main_bytes),
        };
        let Some(number) = list.pop_front() else { return };
        let key = residents.key(number);
        *sum = sum.saturating_sub(u64::from(key.bytes));
        let residency = residents.residency(number, self.at);
        if !residency.is_alive() {
            residents.set(number, self.at, Residency::default());
            return residents.release(number);
        }
        if queue == Queue::New {
            self.admission.note_left_new(residency.heat());
        }
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

    /// Makes the memory of what went as large as the cache has it.
    fn fit_ghost(&mut self, access: AccessContext) {
        let keys = match access.subject {
            Subject::Pages => (self.capacity / PAGE_BYTES) as usize,
            Subject::Rows => self.new.len() + self.main.len(),
        };
        // A cache that holds every key there can be forgets none.
        let most = access.keys_max.max(GHOST_KEYS_MIN);
        let (rows, now) =
            (policy::ghost_entries(keys.clamp(GHOST_KEYS_MIN, most)), self.ghost.capacity());
        if rows > now / 4 * 5 || rows < now / 2 {
            self.ghost.resize(rows);
        }
    }

    /// Forgets what `residents` have forgotten, and holds no more than it may.
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

//! Well-known policies as in their papers, over keys alone.

use std::collections::{BTreeMap, HashMap, VecDeque};

use base::{Rng, key_hash};

use crate::Policy;

/// An ordered list of keys with lookup by key.
#[derive(Default)]
struct Ordered {
    clock: u64,
    at: HashMap<u64, u64>,
    keys: BTreeMap<u64, u64>,
}

impl Ordered {
    fn len(&self) -> usize {
        self.at.len()
    }

    fn push(&mut self, key: u64) {
        self.clock += 1;
        self.at.insert(key, self.clock);
        self.keys.insert(self.clock, key);
    }

    fn remove(&mut self, key: u64) -> bool {
        let at = self.at.remove(&key);
        at.and_then(|at| self.keys.remove(&at)).is_some()
    }

    fn oldest(&self) -> Option<u64> {
        self.keys.first_key_value().map(|(_, key)| *key)
    }

    fn pop(&mut self) -> Option<u64> {
        let oldest = self.oldest()?;
        self.remove(oldest);
        Some(oldest)
    }
}

/// LRU: evicts the least recently used key.
pub(crate) struct Lru {
    capacity: usize,
    keys: Ordered,
}

impl Lru {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, keys: Ordered::default() }
    }
}

impl Policy for Lru {
    fn ask(&mut self, key: u64) -> bool {
        let hit = self.keys.remove(key);
        if !hit && self.keys.len() >= self.capacity {
            self.keys.pop();
        }
        self.keys.push(key);
        hit
    }
}

/// SIEVE (Zhang et al., NSDI 2024): a hand moves from the oldest to the newest key, clears marks, and evicts
/// the first key without one. No key moves.
pub(crate) struct Sieve {
    capacity: usize,
    clock: u64,
    /// Admission time and mark of each key.
    keys: HashMap<u64, (u64, bool)>,
    order: BTreeMap<u64, u64>,
    hand: u64,
}

impl Sieve {
    pub(crate) fn new(capacity: usize) -> Self {
        let (clock, keys, order, hand) = Default::default();
        Self { capacity, clock, keys, order, hand }
    }

    fn evict(&mut self) {
        loop {
            let next = self.order.range(self.hand..).next();
            let next = next.or_else(|| self.order.first_key_value());
            let Some((at, key)) = next.map(|(at, key)| (*at, *key)) else { return };
            self.hand = at + 1;
            match self.keys.get_mut(&key) {
                Some((_, marked)) if *marked => *marked = false,
                _ => {
                    self.keys.remove(&key);
                    self.order.remove(&at);
                    return;
                }
            }
        }
    }
}

impl Policy for Sieve {
    fn ask(&mut self, key: u64) -> bool {
        if let Some((_, marked)) = self.keys.get_mut(&key) {
            *marked = true;
            return true;
        }
        if self.keys.len() >= self.capacity {
            self.evict();
        }
        self.clock += 1;
        self.keys.insert(key, (self.clock, false));
        self.order.insert(self.clock, key);
        false
    }
}

/// S3-FIFO (Yang et al., SOSP 2023): a small queue of a tenth of the capacity, a main queue, and a ghost list
/// as large as the main queue.
pub(crate) struct S3Fifo {
    capacity: usize,
    small_max: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    frequency: HashMap<u64, u8>,
    ghost: Ordered,
}

impl S3Fifo {
    pub(crate) fn new(capacity: usize) -> Self {
        let (small, main, frequency, ghost) = Default::default();
        Self { capacity, small_max: (capacity / 10).max(1), small, main, frequency, ghost }
    }

    fn evict_small(&mut self) {
        while let Some(key) = self.small.pop_front() {
            if self.frequency.get(&key).is_some_and(|frequency| *frequency > 1) {
                self.frequency.insert(key, 0);
                self.main.push_back(key);
                if self.main.len() > self.capacity - self.small_max {
                    return self.evict_main();
                }
                continue;
            }
            self.frequency.remove(&key);
            if self.ghost.len() >= self.capacity - self.small_max {
                self.ghost.pop();
            }
            self.ghost.remove(key);
            return self.ghost.push(key);
        }
    }

    fn evict_main(&mut self) {
        while let Some(key) = self.main.pop_front() {
            match self.frequency.get_mut(&key) {
                Some(frequency) if *frequency > 0 => {
                    *frequency -= 1;
                    self.main.push_back(key);
                }
                _ => {
                    self.frequency.remove(&key);
                    return;
                }
            }
        }
    }
}

impl Policy for S3Fifo {
    fn ask(&mut self, key: u64) -> bool {
        if let Some(frequency) = self.frequency.get_mut(&key) {
            *frequency = (*frequency + 1).min(3);
            return true;
        }
        while self.frequency.len() >= self.capacity {
            match self.small.len() > self.small_max || self.main.is_empty() {
                true => self.evict_small(),
                false => self.evict_main(),
            }
        }
        match self.ghost.remove(key) {
            true => self.main.push_back(key),
            false => self.small.push_back(key),
        }
        self.frequency.insert(key, 0);
        false
    }
}

/// W-TinyLFU (Einziger et al., 2017): a window of 1 %, and behind it a segmented LRU list. The list admits a
/// key from the window if a sketch has counted it more often than the key that it would evict.
pub(crate) struct WTinyLfu {
    window_max: usize,
    main_max: usize,
    protected_max: usize,
    window: Ordered,
    probation: Ordered,
    protected: Ordered,
    sketch: Sketch,
}

impl WTinyLfu {
    pub(crate) fn new(capacity: usize) -> Self {
        let window_max = (capacity / 100).max(1);
        let main_max = capacity - window_max;
        let (window, probation, protected) = Default::default();
        let (protected_max, sketch) = (main_max * 4 / 5, Sketch::new(capacity));
        Self { window_max, main_max, protected_max, window, probation, protected, sketch }
    }

    /// Moves a key from the window into the list, or refuses it.
    fn admit(&mut self, key: u64) {
        if self.probation.len() + self.protected.len() < self.main_max {
            return self.probation.push(key);
        }
        let Some(victim) = self.probation.oldest().or_else(|| self.protected.oldest()) else {
            return;
        };
        if self.sketch.seen(key) > self.sketch.seen(victim) {
            let _ = self.probation.remove(victim) || self.protected.remove(victim);
            self.probation.push(key);
        }
    }
}

impl Policy for WTinyLfu {
    fn ask(&mut self, key: u64) -> bool {
        self.sketch.see(key);
        if self.window.remove(key) {
            self.window.push(key);
            return true;
        }
        if self.probation.remove(key) || self.protected.remove(key) {
            self.protected.push(key);
            if self.protected.len() > self.protected_max
                && let Some(oldest) = self.protected.pop()
            {
                self.probation.push(oldest);
            }
            return true;
        }
        self.window.push(key);
        if self.window.len() > self.window_max
            && let Some(oldest) = self.window.pop()
        {
            self.admit(oldest);
        }
        false
    }
}

/// A count-min sketch of small counters, which are halved every ten capacities of accesses.
struct Sketch {
    counters: Vec<u8>,
    seeds: [u64; 4],
    seen: usize,
    sample: usize,
}

impl Sketch {
    fn new(capacity: usize) -> Self {
        let counters = vec![0; (capacity * 8).next_power_of_two()];
        let mut rng = Rng::new(3);
        Self {
            counters,
            seeds: [0; 4].map(|_: u64| rng.next_u64()),
            seen: 0,
            sample: capacity * 10,
        }
    }

    fn place(&self, key: u64, seed: u64) -> usize {
        key_hash(&(key ^ seed).to_le_bytes()) as usize & (self.counters.len() - 1)
    }

    fn see(&mut self, key: u64) {
        for seed in self.seeds {
            let place = self.place(key, seed);
            if let Some(counter) = self.counters.get_mut(place) {
                *counter = (*counter + 1).min(15);
            }
        }
        self.seen += 1;
        if self.seen >= self.sample {
            self.seen /= 2;
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
        }
    }

    fn seen(&self, key: u64) -> u8 {
        let counts = self.seeds.iter().map(|seed| self.counters.get(self.place(key, *seed)));
        counts.flatten().min().copied().unwrap_or_default()
    }
}

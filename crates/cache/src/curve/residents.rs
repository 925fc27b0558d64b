//! Resident keys: sampled keys that are in at least one simulated cache, and in which.
//!
//! A key has one byte of residency per cache, all side by side, so that a hit in every cache costs one search
//! and one cache line.

use arena::Heat;
use base::invariant;
use hashbrown::HashTable;

/// The number of a key, valid while a queue of any cache has it.
pub(super) type Number = u16;

/// Most keys.
const KEYS_MAX: usize = Number::MAX as usize;

#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) hash: u64,
    pub(super) bytes: u32,
    /// Queues that have the key.
    queues: u16,
}

/// State of a key in one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Residency(u8);

impl Residency {
    const QUEUED: u8 = 0x80;
    const ALIVE: u8 = 0x40;

    /// The key is cached with this heat.
    pub(super) const fn alive(heat: Heat) -> Self {
        Self(Self::QUEUED | Self::ALIVE | heat)
    }

    pub(super) const fn is_queued(self) -> bool {
        self.0 & Self::QUEUED != 0
    }

    pub(super) const fn is_alive(self) -> bool {
        self.0 & Self::ALIVE != 0
    }

    pub(super) const fn heat(self) -> Heat {
        self.0 & 0x3f
    }

    /// The cached value is out of date; it keeps its space in the queue until its turn.
    pub(super) fn invalidate(&mut self) {
        self.0 &= Self::QUEUED;
    }
}

#[derive(Debug)]
pub(super) struct Residents {
    caches: usize,
    pub(super) keys_max: usize,
    keys: Vec<Key>,
    /// Residencies, by key and then by cache.
    residencies: Vec<Residency>,
    index: HashTable<Number>,
    free: Vec<Number>,
}

impl Residents {
    /// For `caches` caches, in at most `bytes_max` bytes.
    pub(super) fn new(caches: usize, bytes_max: usize) -> Self {
        // Lists have up to 1/8 spare room. The index is at least 7/16 full, and exists twice while it grows.
        let index = 2 * (size_of::<Number>() + 1) * 16 / 7;
        let one = (size_of::<Key>() + caches + size_of::<Number>()) * 9 / 8 + index;
        let keys_max = (bytes_max / one).min(KEYS_MAX);
        let (keys, residencies, index, free) = Default::default();
        Self { caches, keys_max, keys, residencies, index, free }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Memory used, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<Key>()
            + self.residencies.capacity()
            + self.free.capacity() * size_of::<Number>()
            + self.index.allocation_size()
    }

    /// The number of the key with this hash; a new one, of `bytes` bytes, if no cache has the key. `None` if
    /// there are too many keys.
    pub(super) fn enter(&mut self, hash: u64, bytes: u32) -> Option<Number> {
        if let Some(number) = self.find(hash) {
            return Some(number);
        }
        let key = Key { hash, bytes, queues: 0 };
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.keys.len() >= self.keys_max => return None,
            None => {
                grow(&mut self.keys, 1);
                grow(&mut self.residencies, self.caches);
                self.keys.push(key);
                self.residencies.resize(self.keys.len() * self.caches, Residency::default());
                self.keys.len() as Number - 1
            }
        };
        if let Some(place) = self.keys.get_mut(usize::from(number)) {
            *place = key;
        }
        let keys = &self.keys;
        let rehash = |number: &Number| keys.get(usize::from(*number)).map_or(0, |key| key.hash);
        self.index.insert_unique(hash, number, rehash);
        Some(number)
    }

    pub(super) fn find(&self, hash: u64) -> Option<Number> {
        let is_key = |number: &Number| self.key(*number).hash == hash;
        self.index.find(hash, is_key).copied()
    }

    pub(super) fn key(&self, number: Number) -> Key {
        let key = self.keys.get(usize::from(number)).copied();
        invariant!(key.is_some(), "the number of a resident key names it");
        key.unwrap_or(Key { hash: 0, bytes: 0, queues: 0 })
    }

    pub(super) fn residency(&self, number: Number, cache: usize) -> Residency {
        let at = usize::from(number) * self.caches + cache;
        let residency = self.residencies.get(at).copied();
        invariant!(residency.is_some(), "a key has a residency in each cache");
        residency.unwrap_or_default()
    }

    /// Residency of the key in every cache.
    pub(super) fn residencies(&mut self, number: Number) -> &mut [Residency] {
        let from = usize::from(number) * self.caches;
        let residencies = self.residencies.get_mut(from..from + self.caches);
        invariant!(residencies.is_some(), "a key has a residency in each cache");
        residencies.unwrap_or_default()
    }

    /// Sets the residency of the key in `cache`.
    pub(super) fn set(&mut self, number: Number, cache: usize, residency: Residency) {
        let at = usize::from(number) * self.caches + cache;
        let (Some(place), Some(key)) =
            (self.residencies.get_mut(at), self.keys.get_mut(usize::from(number)))
        else {
            invariant!(false, "a key has a residency in each cache");
            return;
        };
        match (place.is_queued(), residency.is_queued()) {
            (false, true) => key.queues += 1,
            (true, false) => {
                invariant!(key.queues > 0, "the queues that have a key are counted");
                key.queues -= 1;
            }
            _ => {}
        }
        *place = residency;
    }

    /// Drops the key if no queue has it.
    pub(super) fn release(&mut self, number: Number) {
        let key = self.key(number);
        if key.queues > 0 {
            return;
        }
        let entry = self.index.find_entry(key.hash, |other| *other == number);
        invariant!(entry.is_ok(), "a resident key is in the index");
        if let Ok(entry) = entry {
            entry.remove();
            grow(&mut self.free, 1);
            self.free.push(number);
        }
    }

    /// Drops every key whose hash `stays` rejects, from all caches.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(u64) -> bool) {
        let dropped: Vec<Number> =
            self.index.iter().copied().filter(|number| !stays(self.key(*number).hash)).collect();
        for number in dropped {
            (0..self.caches).for_each(|cache| self.set(number, cache, Residency::default()));
            self.release(number);
        }
    }
}

/// Makes room for `more` elements, at least 1/8 of the list, and never doubles it, so that memory stays
/// within the charge.
fn grow<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact((list.len() / 8).max(16 * more));
    }
}

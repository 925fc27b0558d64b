//! One shard of the cache: a hash table over a fixed number of slots, and the clock's hand.
//!
//! Owned by a mutex in [`crate::PageCache`]. A slot is found by the table while it is occupied and
//! listed in `free` while it is not; never both.

use arena::{Frame, FrameMut, FramePool, Page};
use hashbrown::HashTable;

use crate::policy::Heat;
use crate::{CacheStatistics, KindStatistics, PageKey, PageKind};

pub(crate) struct Shard {
    index: HashTable<u32>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    hand: usize,
    pub(crate) data: KindStatistics,
    pub(crate) meta: KindStatistics,
    pub(crate) refused: u64,
}

struct Slot {
    key: PageKey,
    kind: PageKind,
    heat: Heat,
    frame: Frame,
}

/// What a slot costs beside its frame, bytes: the slot, its place in the free list, and the hash
/// table's entry at its least occupancy (7/16: it doubles at 7/8) with one control byte.
pub(crate) const SLOT_BYTES: usize = size_of::<Option<Slot>>() + 4 + 5 * 16 / 7;

impl Shard {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            index: HashTable::with_capacity(slots),
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots as u32).rev().collect(),
            hand: 0,
            data: KindStatistics::default(),
            meta: KindStatistics::default(),
            refused: 0,
        }
    }

    fn counts(&mut self, kind: PageKind) -> &mut KindStatistics {
        match kind {
            PageKind::Data => &mut self.data,
            PageKind::Meta => &mut self.meta,
        }
    }

    fn find(&mut self, key: PageKey, hash: u64) -> Option<&mut Slot> {
        let slots = &self.slots;
        let is_key = |slot: &u32| {
            slots.get(*slot as usize).and_then(Option::as_ref).is_some_and(|slot| slot.key == key)
        };
        let number = *self.index.find(hash, is_key)?;
        self.slots.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn get(&mut self, key: PageKey, hash: u64, kind: PageKind) -> Option<Frame> {
        let found = self.find(key, hash).map(|slot| {
            slot.heat = slot.heat.hit(slot.kind);
            slot.frame.clone()
        });
        let counts = self.counts(kind);
        match &found {
            Some(_) => counts.hits += 1,
            None => counts.misses += 1,
        }
        found
    }

    /// Caches a copy of `page`; the cached one if there is one already. `None` where no slot or
    /// frame can be had.
    pub(crate) fn insert(
        &mut self,
        key: PageKey,
        hash: u64,
        kind: PageKind,
        page: &Page,
        pool: &FramePool,
    ) -> Option<Frame> {
        if let Some(slot) = self.find(key, hash) {
            return Some(slot.frame.clone());
        }
        let taken = match self.free.pop() {
            Some(number) => match pool.alloc() {
                Some(frame) => Some((number, frame)),
                None => {
                    self.free.push(number);
                    None
                }
            },
            None => None,
        };
        let Some((number, mut frame)) = taken.or_else(|| self.evict()) else {
            self.refused += 1;
            return None;
        };
        frame.copy_from_slice(page);
        let frame = frame.freeze();
        let slot = Slot { key, kind, heat: Heat::new(kind), frame: frame.clone() };
        if let Some(place) = self.slots.get_mut(number as usize) {
            *place = Some(slot);
        }
        let slots = &self.slots;
        let rehash = |slot: &u32| {
            slots.get(*slot as usize).and_then(Option::as_ref).map_or(0, |slot| slot.key.hash())
        };
        self.index.insert_unique(hash, number, rehash);
        let counts = self.counts(kind);
        counts.inserted += 1;
        counts.resident += 1;
        Some(frame)
    }

    /// Moves the hand to a page that is to go and takes it out, with its slot.
    fn evict(&mut self) -> Option<(u32, FrameMut)> {
        for _ in 0..self.slots.len() * Heat::rounds_max() {
            let number = self.hand;
            self.hand = if number + 1 < self.slots.len() { number + 1 } else { 0 };
            let Some(Some(slot)) = self.slots.get_mut(number) else { continue };
            if !slot.frame.is_unique() {
                continue;
            }
            if let Some(cooler) = slot.heat.cool() {
                slot.heat = cooler;
                continue;
            }
            let slot = self.take(number as u32)?;
            self.counts(slot.kind).evicted += 1;
            match slot.frame.try_thaw() {
                Ok(frame) => return Some((number as u32, frame)),
                // Nobody else reaches a slot's frame, and it was unpinned just now.
                Err(_pinned) => self.free.push(number as u32),
            }
        }
        None
    }

    /// Empties a slot and forgets its key; the caller decides what becomes of the number.
    fn take(&mut self, number: u32) -> Option<Slot> {
        let slot = self.slots.get_mut(number as usize)?.take()?;
        if let Ok(entry) = self.index.find_entry(slot.key.hash(), |other| *other == number) {
            entry.remove();
        }
        self.counts(slot.kind).resident -= 1;
        Some(slot)
    }

    /// Removes every page that `gone` names.
    pub(crate) fn remove(&mut self, gone: impl Fn(PageKey) -> bool) {
        for number in 0..self.slots.len() {
            let is_gone =
                self.slots.get(number).and_then(Option::as_ref).is_some_and(|slot| gone(slot.key));
            if is_gone && self.take(number as u32).is_some() {
                self.free.push(number as u32);
            }
        }
    }

    pub(crate) fn add_to(&self, statistics: &mut CacheStatistics) {
        statistics.data.add(&self.data);
        statistics.meta.add(&self.meta);
        statistics.refused += self.refused;
    }
}

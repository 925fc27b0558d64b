//! One shard of the cache: a hash table over slots, and the clock's hand.
//!
//! Owned by a mutex in [`crate::PageCache`]. A slot is found by the table while it is occupied and
//! listed in `free` while it is not; never both. Slots are made as pages come, up to a limit. The
//! frame of a page is tagged with the page's slot, so that whoever empties a chunk of frames finds
//! what lies there.

use arena::{Evacuation, Frame, FrameMut, FramePool, Page};
use hashbrown::HashTable;

use crate::policy::Heat;
use crate::rows::Ghost;
use crate::{CacheStatistics, KindStatistics, PageKey, PageKind};

pub(crate) struct Shard {
    /// The upper bits of its frames' tags.
    tag: u32,
    index: HashTable<u32>,
    slots: Vec<Option<Slot>>,
    slots_max: usize,
    free: Vec<u32>,
    hand: usize,
    pub(crate) data: KindStatistics,
    pub(crate) meta: KindStatistics,
    pub(crate) refused: u64,
    /// What went last, and how many of it were missed soon.
    shadow: Ghost,
    pub(crate) missed: u64,
    /// Pages evicted and moved to give chunks back.
    pub(crate) given_back: u64,
    pub(crate) moved: u64,
}

struct Slot {
    key: PageKey,
    kind: PageKind,
    heat: Heat,
    frame: Frame,
}

/// What a slot costs beside its frame once it is used, bytes: the slot, its place in the free list,
/// and the hash table's entry at its least occupancy (7/16: it doubles at 7/8).
pub(crate) const SLOT_BYTES: usize = size_of::<Option<Slot>>() + 4 + 4 * 16 / 7;

/// What a slot costs before it is used: the hash table's control byte, as above.
pub(crate) const UNUSED_SLOT_BYTES: usize = 3;

/// The bits of a tag that name the slot.
const SLOT_BITS: u32 = 26;

/// The most slots of a shard: one less than the bits name, since a tag of ones means none.
pub(crate) const SLOTS_MAX: usize = (1 << SLOT_BITS) - 1;

/// The shard and the slot that a tag names.
pub(crate) const fn place_of(tag: u32) -> (usize, u32) {
    ((tag >> SLOT_BITS) as usize, tag & SLOTS_MAX as u32)
}

/// How many pages are pushed out, at most, to keep one that lies in the way. Most of them would go
/// anyway: where pages came in order, the clock passes the chunk that is being emptied.
const MOVE_TRIES: usize = 64;

impl Shard {
    /// An empty shard, the `number`th, of at most `slots` pages, that remembers the last
    /// `shadow` that went: memory for pages is taken as they are used.
    pub(crate) fn new(number: usize, slots: usize, shadow: usize) -> Self {
        Self {
            tag: (number as u32) << SLOT_BITS,
            index: HashTable::with_capacity(slots),
            slots: Vec::with_capacity(slots),
            slots_max: slots,
            free: Vec::with_capacity(slots),
            hand: 0,
            data: KindStatistics::default(),
            meta: KindStatistics::default(),
            refused: 0,
            shadow: Ghost::new(shadow),
            missed: 0,
            given_back: 0,
            moved: 0,
        }
    }

    /// Changes the most pages it takes. Those above it stay until they are evicted.
    pub(crate) fn set_slots_max(&mut self, slots: usize) {
        self.slots_max = slots;
    }

    /// A slot that holds nothing.
    fn free_slot(&mut self) -> Option<u32> {
        let free = self.free.pop();
        free.or_else(|| {
            let next = self.slots.len();
            (next < self.slots_max).then(|| self.slots.push(None)).map(|()| next as u32)
        })
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
        self.missed += u64::from(self.shadow.recall(hash));
        let taken = match self.free_slot() {
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
        frame.set_tag(self.tag | number);
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
            self.shadow.remember(slot.key.hash());
            match slot.frame.try_thaw() {
                Ok(frame) => return Some((number as u32, frame)),
                // Nobody else reaches a slot's frame, and it was unpinned just now.
                Err(_pinned) => self.free.push(number as u32),
            }
        }
        None
    }

    /// Takes the frame of slot `number` out of the chunk that is being emptied, where it lies there
    /// and is not pinned. A page that has heat takes the place of a colder one elsewhere.
    pub(crate) fn vacate(&mut self, number: u32, evacuation: &mut Evacuation<'_>) {
        let Some(Some(slot)) = self.slots.get(number as usize) else { return };
        // A tag is a hint: the frame may have gone to another page or another pool's owner since.
        if !evacuation.is_of(&slot.frame) || !slot.frame.is_unique() {
            return;
        }
        if slot.heat.cool().is_some()
            && let Some(frame) = self.evict_elsewhere(number, evacuation)
        {
            self.move_to(number, frame, evacuation);
        } else if let Some(slot) = self.take(number) {
            self.free.push(number);
            self.given_back += 1;
            self.counts(slot.kind).evicted += 1;
            self.shadow.remember(slot.key.hash());
            hand_over(slot.frame, evacuation);
        }
    }

    /// Evicts a colder page than that of slot `keep`, and takes its frame where that is not in the
    /// chunk that is being emptied.
    fn evict_elsewhere(&mut self, keep: u32, evacuation: &mut Evacuation<'_>) -> Option<FrameMut> {
        for _ in 0..MOVE_TRIES {
            // The clock may be about to evict the page itself.
            let slot = self.slots.get(keep as usize)?.as_ref()?;
            let pin = slot.frame.clone();
            let evicted = self.evict();
            drop(pin);
            let (number, frame) = evicted?;
            self.free.push(number);
            self.given_back += 1;
            // In the same chunk: one less to move from there.
            if let Err(frame) = evacuation.take(frame) {
                return Some(frame);
            }
        }
        None
    }

    /// Moves the page of slot `number` to `frame`, and hands its own over.
    fn move_to(&mut self, number: u32, mut frame: FrameMut, evacuation: &mut Evacuation<'_>) {
        let tag = self.tag | number;
        let Some(Some(slot)) = self.slots.get_mut(number as usize) else { return };
        let Some(page) = slot.frame.first_chunk() else { return };
        *frame = *page;
        let frame = frame.freeze();
        frame.set_tag(tag);
        let old = std::mem::replace(&mut slot.frame, frame);
        self.moved += 1;
        hand_over(old, evacuation);
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
        statistics.missed += self.missed;
        statistics.given_back += self.given_back;
        statistics.moved += self.moved;
    }
}

/// Gives a frame of the chunk to whoever empties it. Nobody else reaches a slot's frame, and it was
/// unpinned just now; where it is pinned after all the chunk stays.
fn hand_over(frame: Frame, evacuation: &mut Evacuation<'_>) {
    if let Ok(frame) = frame.try_thaw() {
        drop(evacuation.take(frame));
    }
}

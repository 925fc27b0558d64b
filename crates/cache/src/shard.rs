//! One shard of the cache: a hash table over slots, and two queues of them ([`crate::rows::policy`]).
//!
//! Owned by a mutex in [`crate::PageCache`]. A slot is found by the table while it is occupied and
//! listed in `free` while it is not; never both. Slots are made as pages come, up to a limit. The
//! frame of a page is tagged with the page's slot, so that whoever empties a chunk of frames finds
//! what lies there.

use arena::{Evacuation, Frame, FrameMut, FramePool, Heat, Page};
use bytes::Bytes;
use hashbrown::HashTable;

use crate::blocks::Blocks;
use crate::page_queue::{Links, PageQueue};
use crate::rows::Ghost;
use crate::rows::policy::{self, Fate, Queue};
use crate::scm::{Leaving, ScmTier};
use crate::{CacheStatistics, KindStatistics, PageKey, PageKind};

pub(crate) struct Shard {
    /// The upper bits of its frames' tags.
    tag: u32,
    index: HashTable<u32>,
    slots: Vec<Option<Slot>>,
    slots_max: usize,
    free: Vec<u32>,
    /// Pages read once, and the others.
    new: PageQueue,
    main: PageQueue,
    /// What was read once when it went.
    ghost: Ghost,
    pub(crate) data: KindStatistics,
    pub(crate) meta: KindStatistics,
    pub(crate) refused: u64,
    /// What went last, and how many of it were missed soon.
    shadow: Ghost,
    pub(crate) missed: u64,
    /// Pages evicted and moved to give chunks back.
    pub(crate) given_back: u64,
    pub(crate) moved: u64,
    /// By slot, of data pages.
    pub(crate) blocks: Blocks,
}

/// A page that is put in.
pub(crate) struct Entry {
    pub(crate) key: PageKey,
    pub(crate) hash: u64,
    pub(crate) kind: PageKind,
    /// It was asked for again and again.
    pub(crate) is_warm: bool,
}

/// What is cached of a page.
#[derive(Debug)]
pub enum Cached {
    /// The page as stored.
    Page {
        /// Its content.
        frame: Frame,
        /// Whether its block, decompressed, is worth keeping ([`crate::PageCache::hang`]).
        wants_block: bool,
    },
    /// Its block, decompressed.
    Block(Bytes),
}

struct Slot {
    key: PageKey,
    kind: PageKind,
    queue: Queue,
    heat: Heat,
    links: Links,
    frame: Frame,
}

/// What a slot costs beside its frame once it is used, bytes: the slot, its place in the free list,
/// and the hash table's entry at its least occupancy (7/16: it doubles at 7/8).
pub(crate) const SLOT_BYTES: usize = size_of::<Option<Slot>>() + 4 + 4 * 16 / 7;

/// What a slot costs before it is used: the hash table's control byte, as above, and the memory of
/// what went.
pub(crate) const UNUSED_SLOT_BYTES: usize = 3 + 5;

/// The heat of a data page that is read again and again.
const HEAT_MAX: Heat = 3;

/// The heat of a page of this kind when it is put in, and at least whenever it is read: metadata
/// serves a hundred data pages, and outlives them by as many turns.
const fn heat_of(kind: PageKind) -> Heat {
    match kind {
        PageKind::Data => 0,
        PageKind::Meta => 8,
    }
}

/// A page is as warm as this where its block is worth keeping: it was read twice since it was put in.
const BLOCK_HEAT: Heat = 2;

/// The most turns of a page before it goes.
const TURNS_MAX: usize = heat_of(PageKind::Meta) as usize + 2;

/// The bits of a tag that name the slot.
const SLOT_BITS: u32 = 26;

/// The most slots of a shard: one less than the bits name, since a tag of ones means none.
pub(crate) const SLOTS_MAX: usize = (1 << SLOT_BITS) - 1;

/// The shard and the slot that a tag names.
pub(crate) const fn place_of(tag: u32) -> (usize, u32) {
    ((tag >> SLOT_BITS) as usize, tag & SLOTS_MAX as u32)
}

/// Frames that are free or on their way down while there is a tier below, of so many or fewer: so that a
/// page can leave in its frame while another takes its place.
const RESERVE_MAX: usize = 64;
const RESERVE_PART: usize = 16;

/// How many pages are pushed out, at most, to keep one that lies in the way. Most of them would go
/// anyway: where pages came in order, it is the turn of the chunk that is being emptied.
const MOVE_TRIES: usize = 64;

impl Shard {
    /// An empty shard, the `number`th, of at most `slots` pages, that remembers the last
    /// `shadow` that went: memory for pages is taken as they are used.
    pub(crate) fn new(number: usize, slots: usize, shadow: usize, blocks: Blocks) -> Self {
        Self {
            tag: (number as u32) << SLOT_BITS,
            index: HashTable::with_capacity(slots),
            slots: Vec::with_capacity(slots),
            slots_max: slots,
            free: Vec::with_capacity(slots),
            new: PageQueue::default(),
            main: PageQueue::default(),
            ghost: Ghost::new(policy::remembered(slots)),
            data: KindStatistics::default(),
            meta: KindStatistics::default(),
            refused: 0,
            shadow: Ghost::new(shadow),
            missed: 0,
            given_back: 0,
            moved: 0,
            blocks,
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

    fn find(&self, key: PageKey, hash: u64) -> Option<u32> {
        let is_key = |slot: &u32| self.slot(*slot).is_some_and(|slot| slot.key == key);
        self.index.find(hash, is_key).copied()
    }

    fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number as usize)?.as_ref()
    }

    /// The slot of a page that is asked for, which is warmer for it.
    #[inline]
    fn ask(&mut self, key: PageKey, hash: u64, kind: PageKind) -> Option<u32> {
        let found = self.find(key, hash);
        let counts = self.counts(kind);
        match &found {
            Some(_) => counts.hits += 1,
            None => counts.misses += 1,
        }
        let slot = self.slots.get_mut(found? as usize)?.as_mut()?;
        slot.heat = heat_of(slot.kind).max((slot.heat + 1).min(HEAT_MAX));
        found
    }

    pub(crate) fn get(&mut self, key: PageKey, hash: u64, kind: PageKind) -> Option<Frame> {
        let number = self.ask(key, hash, kind)?;
        self.slot(number).map(|slot| slot.frame.clone())
    }

    /// The page, and how often it was asked for since it was read; once more, where it was before it left and
    /// came again.
    pub(crate) fn peek(&self, key: PageKey, hash: u64) -> Option<(Frame, u8)> {
        let slot = self.slot(self.find(key, hash)?)?;
        let heat = slot.heat.min(HEAT_MAX).max(u8::from(slot.queue == Queue::Main));
        Some((slot.frame.clone(), heat))
    }

    /// As [`Shard::get`]; the page's block, where that hangs on it.
    pub(crate) fn read(&mut self, key: PageKey, hash: u64, kind: PageKind) -> Option<Cached> {
        let number = self.ask(key, hash, kind)?;
        if let Some(block) = self.blocks.get(number) {
            return Some(Cached::Block(block.clone()));
        }
        let slot = self.slot(number)?;
        let is_warm = slot.kind == PageKind::Data && slot.heat >= BLOCK_HEAT;
        let frame = slot.frame.clone();
        Some(Cached::Page { frame, wants_block: is_warm && self.blocks.has_room() })
    }

    /// Hangs `block` on its page, where that is still there and there is memory.
    pub(crate) fn hang(&mut self, key: PageKey, hash: u64, block: &Bytes) {
        if let Some(number) = self.find(key, hash) {
            self.blocks.hang(number, block);
        }
    }

    /// Caches a copy of `page`; the cached one if there is one already. `None` where no slot or
    /// frame can be had. What has to leave for it goes to the tier `below` where that wants it.
    pub(crate) fn insert(
        &mut self,
        entry: Entry,
        page: &Page,
        pool: &FramePool,
        below: Option<&ScmTier>,
    ) -> Option<Frame> {
        let Entry { key, hash, kind, is_warm } = entry;
        if let Some(number) = self.find(key, hash) {
            return self.slot(number).map(|slot| slot.frame.clone());
        }
        // One that lay below cost no device read: it says nothing of what a miss costs.
        self.missed += u64::from(self.shadow.recall(hash) && !is_warm);
        let reserve = below.map_or(0, |_| RESERVE_MAX.min(pool.frames_max() / RESERVE_PART));
        let taken = match self.free_slot() {
            Some(number) => match pool.alloc_beside(reserve).or_else(|| self.alloc_again(pool)) {
                Some(frame) => Some((number, frame)),
                None => {
                    self.free.push(number);
                    None
                }
            },
            None => None,
        };
        let Some((number, mut frame)) = taken.or_else(|| self.make_room(pool, below, reserve))
        else {
            self.refused += 1;
            return None;
        };
        frame.copy_from_slice(page);
        let frame = frame.freeze();
        frame.set_tag(self.tag | number);
        let queue = match kind {
            PageKind::Data if !self.ghost.recall(hash) && !is_warm => Queue::New,
            _ => Queue::Main,
        };
        let (heat, links, kept) = (heat_of(kind), Links::NONE, frame.clone());
        let slot = Slot { key, kind, queue, heat, links, frame: kept };
        if let Some(place) = self.slots.get_mut(number as usize) {
            *place = Some(slot);
        }
        self.enqueue(number, queue);
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

    /// A frame for the memory of all blocks, which are the first to go.
    fn alloc_again(&mut self, pool: &FramePool) -> Option<FrameMut> {
        if self.blocks.clear() > 0 { pool.alloc() } else { None }
    }

    /// Puts slot `number` at the end of `queue`.
    fn enqueue(&mut self, number: u32, queue: Queue) {
        if let Some(Some(slot)) = self.slots.get_mut(number as usize) {
            slot.queue = queue;
        }
        let of = match queue {
            Queue::New => &mut self.new,
            Queue::Main => &mut self.main,
        };
        of.push(number, &mut self.slots, links_of);
    }

    /// Takes slot `number` out of its queue.
    fn dequeue(&mut self, number: u32) {
        let slot = self.slots.get(number as usize).and_then(Option::as_ref);
        let of = match slot.map(|slot| slot.queue) {
            Some(Queue::New) => &mut self.new,
            Some(Queue::Main) => &mut self.main,
            None => return,
        };
        of.remove(number, &mut self.slots, links_of);
    }

    /// A slot and a frame of a page that had to leave. Where it goes down it does so in its frame, as it
    /// is, and a free one takes its place; where there is none, that of the next page to leave, as long as
    /// fewer frames than the reserve are on their way.
    fn make_room(
        &mut self,
        pool: &FramePool,
        below: Option<&ScmTier>,
        reserve: usize,
    ) -> Option<(u32, FrameMut)> {
        let (number, frame, left) = self.evict()?;
        let Some(tier) = below.filter(|tier| tier.wants(left)) else {
            return Some((number, frame));
        };
        if let Some(spare) = pool.alloc() {
            tier.stage(left, frame.freeze());
            return Some((number, spare));
        }
        tier.is_late();
        if tier.staged() >= reserve {
            return Some((number, frame));
        }
        tier.stage(left, frame.freeze());
        self.free.push(number);
        self.evict().map(|(number, frame, _)| (number, frame))
    }

    /// Takes a page that is to go out, with its slot.
    fn evict(&mut self) -> Option<(u32, FrameMut, Leaving)> {
        for _ in 0..self.slots.len() * TURNS_MAX {
            let queue = policy::victim(self.new.len() as u64, self.main.len() as u64);
            let number = match queue {
                Queue::New => self.new.oldest()?,
                Queue::Main => self.main.oldest()?,
            };
            let slot = self.slots.get_mut(number as usize)?.as_mut()?;
            let fate = match policy::fate(queue, slot.heat) {
                // Who holds it reads it now.
                _ if !slot.frame.is_unique() => Fate::Stays(slot.heat),
                fate => fate,
            };
            let remembered = match fate {
                Fate::Stays(heat) => {
                    slot.heat = heat;
                    self.dequeue(number);
                    self.enqueue(number, Queue::Main);
                    continue;
                }
                Fate::Goes { remembered } => remembered,
            };
            let slot = self.take(number)?;
            self.counts(slot.kind).evicted += 1;
            let hash = slot.key.hash();
            self.shadow.remember(hash);
            if remembered {
                self.ghost.remember(hash);
            }
            let (key, kind, is_warm) = (slot.key, slot.kind, queue == Queue::Main);
            let left = Leaving { key, kind, is_warm, is_demoted: true };
            match slot.frame.try_thaw() {
                Ok(frame) => return Some((number, frame, left)),
                // Nobody else reaches a slot's frame, and it was unpinned just now.
                Err(_pinned) => self.free.push(number),
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
        if (slot.heat > 0 || slot.queue == Queue::Main)
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
            // It may be the turn of the page itself.
            let slot = self.slots.get(keep as usize)?.as_ref()?;
            let pin = slot.frame.clone();
            let evicted = self.evict();
            drop(pin);
            let (number, frame, _) = evicted?;
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
        self.dequeue(number);
        self.blocks.remove(number);
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
        statistics.blocks += self.blocks.count();
        statistics.block_bytes += self.blocks.bytes();
    }
}

fn links_of(slot: &mut Option<Slot>) -> Option<&mut Links> {
    slot.as_mut().map(|slot| &mut slot.links)
}

/// Gives a frame of the chunk to whoever empties it. Nobody else reaches a slot's frame, and it was
/// unpinned just now; where it is pinned after all the chunk stays.
fn hand_over(frame: Frame, evacuation: &mut Evacuation<'_>) {
    if let Ok(frame) = frame.try_thaw() {
        drop(evacuation.take(frame));
    }
}

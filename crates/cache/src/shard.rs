//! One shard of the cache: its pages in two queues ([`crate::rows::policy`]), and what became of others.
//!
//! Owned by a mutex in [`crate::PageCache`], which no hit takes: hits find frames by the index, whose part
//! of this number the shard alone changes, and say in the frame itself that it is warmer. A frame that is
//! listed in a slot is in the index, and no other is. A slot is used, or listed in `free`; never both.
//! Slots are made as pages come, up to a limit. The frame of a page is tagged with the page's slot, so that
//! whoever finds a frame, or empties a chunk of them, finds the slot.

mod vacate;

use arena::{Frame, FrameBlock, FrameIndex, FrameMut, FramePool, Heat, Page};
use bytes::Bytes;

use crate::attached_blocks::{self, AttachedBlocks};
use crate::page_queue::{Links, PageQueue};
use crate::reuse::KindReuse;
use crate::rows::Ghost;
use crate::rows::policy::{self, Queue, Verdict};
use crate::scm::{EvictedPage, ScmTier};
use crate::{CacheStatistics, KindStatistics, PageKey, PageKind};

pub(crate) struct Shard {
    /// Its number, and the part of the index that is its.
    part: usize,
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
    pub(crate) missed_below: u64,
    /// Reuse of pages of the main queue: those for which they stayed, since they had been asked for, and
    /// those at which they went.
    reuse: KindReuse,
    /// Pages evicted and moved to give chunks back.
    pub(crate) given_back: u64,
    pub(crate) moved: u64,
    /// Blocks that attach on its pages.
    blocks: usize,
}

/// What shards share.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub(crate) pool: &'a FramePool,
    pub(crate) index: &'a FrameIndex,
    pub(crate) blocks: &'a AttachedBlocks,
}

/// A page that is put in.
pub(crate) struct PageEntry {
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
        /// Whether its block, decompressed, is worth keeping ([`crate::PageCache::attach`]).
        wants_block: bool,
    },
    /// Its block, decompressed.
    Block(FrameBlock),
}

struct Slot {
    kind: PageKind,
    queue: Queue,
    links: Links,
    frame: Frame,
}

impl Slot {
    fn key(&self) -> Option<PageKey> {
        self.frame.name().map(PageKey::from)
    }
}

/// What a slot costs beside its frame once it is used, bytes: the slot and its place in the free list.
pub(crate) const SLOT_BYTES: usize = size_of::<Option<Slot>>() + 4;

/// What a slot costs before it is used: the memory of what went. Its place in the index is charged there.
pub(crate) const UNUSED_SLOT_BYTES: usize = 5;

/// The heat of a data page that is read again and again.
const HEAT_MAX: Heat = 3;

/// The heat of a page of this kind when it is put in, and at least whenever it is read: metadata
/// serves a hundred data pages, and outlives them by as many turns.
const fn least_heat(kind: PageKind) -> Heat {
    match kind {
        PageKind::Data => 0,
        PageKind::Meta => 8,
    }
}

/// Says of a page that was asked for that it is warmer, and how warm it is.
#[inline]
pub(crate) fn touch(frame: &Frame, kind: PageKind) -> u32 {
    let seen = frame.heat();
    let heat = u32::from(least_heat(kind)).max((seen + 1).min(u32::from(HEAT_MAX)));
    // What is as warm as can be is a line that nobody writes.
    if heat != seen {
        frame.set_heat(heat);
    }
    heat
}

/// A page is as warm as this where its block is worth keeping: it was read twice since it was put in.
pub(crate) const BLOCK_HEAT: u32 = 2;

/// The most turns of a page before it goes.
const TURNS_MAX: usize = least_heat(PageKind::Meta) as usize + 2;

/// The bits of a tag that name the slot.
const SLOT_BITS: u32 = 26;

/// The most slots of a shard: one less than the bits name, since a tag of ones means none.
pub(crate) const SLOTS_MAX: usize = (1 << SLOT_BITS) - 1;

/// The shard and the slot that a tag names.
pub(crate) const fn slot_of_tag(tag: u32) -> (usize, u32) {
    ((tag >> SLOT_BITS) as usize, tag & SLOTS_MAX as u32)
}

/// Frames that are free or on their way down while there is a tier below, of so many or fewer: so that a
/// page can leave in its frame while another takes its place.
const RESERVE_MAX: usize = 64;
const RESERVE_PART: usize = 16;

impl Shard {
    /// An empty shard, the `number`th, of at most `slots` pages, that remembers the last
    /// `shadow` that went: memory for pages is taken as they are used.
    pub(crate) fn new(number: usize, slots: usize, shadow: usize) -> Self {
        Self {
            part: number,
            slots: Vec::with_capacity(slots),
            slots_max: slots,
            free: Vec::with_capacity(slots),
            new: PageQueue::default(),
            main: PageQueue::default(),
            ghost: Ghost::new(policy::ghost_entries(slots)),
            data: KindStatistics::default(),
            meta: KindStatistics::default(),
            refused: 0,
            shadow: Ghost::new(shadow),
            missed: 0,
            missed_below: 0,
            reuse: KindReuse::default(),
            given_back: 0,
            moved: 0,
            blocks: 0,
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

    /// The tag of the frame of slot `number`.
    const fn tag(&self, number: u32) -> u32 {
        (self.part as u32) << SLOT_BITS | number
    }

    fn find(&self, key: PageKey, hash: u64, shared: Shared<'_>) -> Option<Frame> {
        shared.index.find(self.part, hash, |place| shared.pool.find(place, key.into()))
    }

    /// The page, and how often it was asked for since it was read; once more, where it was before it left and
    /// came again.
    pub(crate) fn peek(
        &self,
        key: PageKey,
        hash: u64,
        shared: Shared<'_>,
    ) -> Option<(Frame, Heat)> {
        let frame = self.find(key, hash, shared)?;
        let (_, number) = slot_of_tag(frame.tag()?);
        let slot = self.slots.get(number as usize)?.as_ref()?;
        let heat = frame.heat().min(u32::from(HEAT_MAX)) as Heat;
        Some((frame, heat.max(Heat::from(slot.queue == Queue::Main))))
    }

    /// Hangs `block` on its page, where that is still there and there is memory.
    pub(crate) fn attach(&mut self, key: PageKey, hash: u64, block: &Bytes, shared: Shared<'_>) {
        let frame = self.find(key, hash, shared);
        if frame.is_some_and(|frame| shared.blocks.attach(&frame, block)) {
            self.blocks += 1;
        }
    }

    /// Puts every page into its part of the index, which is empty.
    pub(crate) fn index_all(&self, index: &FrameIndex) {
        for frame in self.slots.iter().flatten().map(|slot| &slot.frame) {
            if let (Some(place), Some(name)) = (frame.place(), frame.name()) {
                index.insert(self.part, PageKey::from(name).hash(), place);
            }
        }
    }

    /// Gives up all blocks that nobody looks at now; the bytes that were charged for them.
    pub(crate) fn clear_blocks(&mut self, shared: Shared<'_>) -> u64 {
        let mut given = 0;
        for place in &mut self.slots {
            if self.blocks == 0 {
                break;
            }
            let Some(slot) = place.take_if(|slot| slot.frame.block().is_some()) else { continue };
            let Slot { kind, queue, links, frame } = slot;
            let frame = match frame.try_thaw() {
                Err(pinned) => pinned,
                Ok(mut frame) => {
                    if let Some(block) = frame.take_block() {
                        given += attached_blocks::cost(&block);
                        self.blocks -= 1;
                        shared.blocks.detached(attached_blocks::cost(&block));
                    }
                    frame.freeze()
                }
            };
            *place = Some(Slot { kind, queue, links, frame });
        }
        given
    }

    /// Makes a frame that was taken out of its slot one to be filled again, without its block.
    ///
    /// # Errors
    /// The frame, where somebody holds it; the block goes with it.
    fn thaw(&mut self, frame: Frame, shared: Shared<'_>) -> Result<FrameMut, Frame> {
        if let Some(block) = frame.block() {
            self.blocks -= 1;
            shared.blocks.detached(attached_blocks::cost(block));
        }
        let mut frame = frame.try_thaw()?;
        drop(frame.take_block());
        Ok(frame)
    }

    /// Caches a copy of `page`; the cached one if there is one already. `None` where no slot or
    /// frame can be had. What has to leave for it goes to the tier `below` where that wants it.
    pub(crate) fn insert(
        &mut self,
        entry: PageEntry,
        page: &Page,
        shared: Shared<'_>,
        below: Option<&ScmTier>,
    ) -> Option<Frame> {
        let PageEntry { key, hash, kind, is_warm } = entry;
        let pool = shared.pool;
        if let Some(frame) = self.find(key, hash, shared) {
            return Some(frame);
        }
        // One that is warm lay below, and cost no device read.
        let missed = if is_warm { &mut self.missed_below } else { &mut self.missed };
        *missed += u64::from(self.shadow.recall(hash));
        let reserve = below.map_or(0, |_| RESERVE_MAX.min(pool.frames_max() / RESERVE_PART));
        let taken = match self.free_slot() {
            Some(number) => {
                match pool.alloc_beside(reserve).or_else(|| self.alloc_after_detach(shared)) {
                    Some(frame) => Some((number, frame)),
                    None => {
                        self.free.push(number);
                        None
                    }
                }
            }
            None => None,
        };
        let Some((number, mut frame)) = taken.or_else(|| self.make_room(shared, below, reserve))
        else {
            self.refused += 1;
            return None;
        };
        frame.copy_from_slice(page);
        frame.set_name(key.into());
        let frame = frame.freeze();
        frame.set_tag(self.tag(number));
        frame.set_heat(u32::from(least_heat(kind)));
        let is_in = frame.place().is_some_and(|place| shared.index.insert(self.part, hash, place));
        if !is_in {
            self.free.push(number);
            self.refused += 1;
            return Some(frame);
        }
        let queue = match kind {
            PageKind::Data if !self.ghost.recall(hash) && !is_warm => Queue::New,
            _ => Queue::Main,
        };
        let slot = Slot { kind, queue, links: Links::NONE, frame: frame.clone() };
        if let Some(place) = self.slots.get_mut(number as usize) {
            *place = Some(slot);
        }
        self.enqueue(number, queue);
        let counts = self.counts(kind);
        counts.inserted += 1;
        counts.resident += 1;
        Some(frame)
    }

    /// Remembers a page that was asked for and is not kept; whether it was remembered already.
    pub(crate) fn seen_before(&mut self, hash: u64) -> bool {
        let is_known = self.ghost.recall(hash);
        self.ghost.remember(hash);
        is_known
    }

    /// A frame for the memory of all blocks, which are the first to go.
    fn alloc_after_detach(&mut self, shared: Shared<'_>) -> Option<FrameMut> {
        if self.clear_blocks(shared) > 0 { shared.pool.alloc() } else { None }
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
        shared: Shared<'_>,
        below: Option<&ScmTier>,
        reserve: usize,
    ) -> Option<(u32, FrameMut)> {
        let (number, frame, left) = self.evict(shared)?;
        let Some(tier) = below.filter(|tier| tier.admit(left)) else {
            return Some((number, frame));
        };
        if let Some(spare) = shared.pool.alloc() {
            tier.stage(left, frame.freeze());
            return Some((number, spare));
        }
        tier.note_late();
        if tier.staged() >= reserve {
            return Some((number, frame));
        }
        tier.stage(left, frame.freeze());
        self.free.push(number);
        self.evict(shared).map(|(number, frame, _)| (number, frame))
    }

    /// Takes a page that is to go out, with its slot.
    fn evict(&mut self, shared: Shared<'_>) -> Option<(u32, FrameMut, EvictedPage)> {
        for _ in 0..self.slots.len() * TURNS_MAX {
            let queue = policy::victim(self.new.len() as u64, self.main.len() as u64);
            let number = match queue {
                Queue::New => self.new.oldest()?,
                Queue::Main => self.main.oldest()?,
            };
            let slot = self.slots.get(number as usize)?.as_ref()?;
            let before = slot.frame.heat().min(u32::from(Heat::MAX)) as Heat;
            let verdict = match policy::verdict(queue, before) {
                // Who holds it reads it now.
                _ if !slot.frame.is_unique() => Verdict::Keep(before),
                verdict => verdict,
            };
            let (kind, counts) = (slot.kind, queue == Queue::Main);
            let remember = match verdict {
                Verdict::Keep(heat) => {
                    slot.frame.set_heat(u32::from(heat));
                    let was_asked = kind == PageKind::Data || before == least_heat(kind);
                    self.reuse.of(kind).kept += u64::from(counts && was_asked);
                    self.dequeue(number);
                    self.enqueue(number, Queue::Main);
                    continue;
                }
                Verdict::Evict { remember } => remember,
            };
            self.reuse.of(kind).evicted += u64::from(counts);
            let slot = self.unlink(number, shared)?;
            self.counts(slot.kind).evicted += 1;
            let key = slot.key()?;
            let hash = key.hash();
            self.shadow.remember(hash);
            if remember {
                self.ghost.remember(hash);
            }
            let left = EvictedPage { key, kind: slot.kind, is_demoted: true };
            match self.thaw(slot.frame, shared) {
                Ok(frame) => return Some((number, frame, left)),
                // A reader found it just now: it goes with that one.
                Err(_pinned) => self.free.push(number),
            }
        }
        None
    }

    /// Empties a slot and forgets its page; the caller decides what becomes of the number, and thaws the
    /// frame.
    fn unlink(&mut self, number: u32, shared: Shared<'_>) -> Option<Slot> {
        self.dequeue(number);
        let slot = self.slots.get_mut(number as usize)?.take()?;
        if let (Some(place), Some(key)) = (slot.frame.place(), slot.key()) {
            shared.index.remove(self.part, key.hash(), place);
        }
        self.counts(slot.kind).resident -= 1;
        Some(slot)
    }

    /// Removes every page of `file`, slot by slot.
    pub(crate) fn remove_file(&mut self, file: u64, shared: Shared<'_>) {
        for number in 0..self.slots.len() {
            let slot = self.slots.get(number).and_then(Option::as_ref);
            if slot.and_then(Slot::key).is_some_and(|key| key.file == file) {
                self.clear(number as u32, shared);
            }
        }
    }

    /// Removes the page, if it is cached.
    pub(crate) fn remove(&mut self, key: PageKey, hash: u64, shared: Shared<'_>) {
        let place = self.find(key, hash, shared).and_then(|frame| frame.tag());
        if let Some((_, number)) = place.map(slot_of_tag) {
            self.clear(number, shared);
        }
    }

    /// Frees slot `number`; its frame goes with its last reader.
    fn clear(&mut self, number: u32, shared: Shared<'_>) {
        if let Some(slot) = self.unlink(number, shared) {
            drop(self.thaw(slot.frame, shared));
            self.free.push(number);
        }
    }

    /// How many of the pages that went last are remembered.
    pub(crate) const fn shadow_pages(&self) -> usize {
        self.shadow.capacity()
    }

    /// See [`KindReuse`].
    pub(crate) const fn reuse(&self) -> KindReuse {
        self.reuse
    }

    pub(crate) fn add_to(&self, statistics: &mut CacheStatistics) {
        statistics.data.add(&self.data);
        statistics.meta.add(&self.meta);
        statistics.refused += self.refused;
        statistics.missed += self.missed;
        statistics.missed_below += self.missed_below;
        statistics.given_back += self.given_back;
        statistics.moved += self.moved;
    }
}

fn links_of(slot: &mut Option<Slot>) -> Option<&mut Links> {
    slot.as_mut().map(|slot| &mut slot.links)
}

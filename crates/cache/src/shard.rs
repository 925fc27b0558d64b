//! One shard of the page cache: its pages in two queues ([`crate::rows::policy`]), and its ghost lists.
//!
//! A mutex in [`crate::PageCache`] owns each shard. Hits take no lock: they find frames by the index and
//! change the heat in the frame. Only the shard changes its part of the index.
//!
//! Invariants: the frame of a used slot is in the index, and no other frame of this shard is. A slot is used,
//! or listed in `free`, never both. Each frame has a tag that names its slot, so that a frame found by a
//! lookup, or in a chunk that is given back, leads to its slot. Slots are made as pages come, up to a limit.

mod evict;
mod heat;
mod hot;
mod slot;
mod vacate;

use arena::{Frame, FrameIndex, FrameMut, FramePool, Heat, Page};
use base::invariant;
use bytes::Bytes;

use crate::attached_blocks::{self, AttachedBlocks};
use crate::page_queue::{Links, PageQueue};
use crate::reuse::KindReuse;
use crate::rows::Ghost;
use crate::rows::policy::{self, Admission, Queue, Rules};
use crate::scm::ScmTier;
use crate::{CacheStatistics, KindStatistics, PageKey, PageKind};
use heat::{HEAT_MAX, least_heat};
use slot::{Slot, tag_of};

pub(crate) use heat::{BLOCK_HEAT, touch};
pub(crate) use slot::{SLOT_BYTES, SLOTS_MAX, UNUSED_SLOT_BYTES, slot_of_tag};

pub(crate) struct Shard {
    /// The shard's number, and that of its part of the index.
    number: usize,
    slots: Vec<Option<Slot>>,
    slots_max: usize,
    free: Vec<u32>,
    /// The queue of pages that were used once, and the main queue.
    new: PageQueue,
    main: PageQueue,
    /// Ghost list of the policy: pages evicted from the queue of new pages. As long as the rules want for
    /// `ghost_slots` pages.
    ghost: Ghost,
    ghost_slots: usize,
    admission: Admission,
    pub(crate) data: KindStatistics,
    pub(crate) meta: KindStatistics,
    pub(crate) refused: u64,
    /// Ghost list of all pages evicted lately, to measure what more memory would have saved, and the misses
    /// that it had: pages read from the device, and from the lower tier.
    shadow: Ghost,
    pub(crate) missed: u64,
    pub(crate) missed_below: u64,
    /// Reuse of pages of the main queue.
    reuse: KindReuse,
    /// Pages evicted and moved to give chunks back.
    pub(crate) given_back: u64,
    pub(crate) moved: u64,
    /// Pages cached as they were written.
    written: u64,
    /// Blocks attached to pages of this shard.
    blocks: usize,
}

/// What all shards share.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub(crate) pool: &'a FramePool,
    pub(crate) index: &'a FrameIndex,
    pub(crate) blocks: &'a AttachedBlocks,
    /// The rules of the policy.
    pub(crate) rules: Rules,
}

/// A page to insert.
pub(crate) struct PageEntry {
    pub(crate) key: PageKey,
    pub(crate) hash: u64,
    pub(crate) kind: PageKind,
    /// The page is promoted from the lower tier: it was used often enough there.
    pub(crate) is_warm: bool,
}

/// With a lower tier, this many frames, or this part of all frames if that is less, stay free or wait to be
/// written: an evicted page can leave in its frame while a new page takes a free one.
const RESERVE_MAX: usize = 64;
const RESERVE_PART: usize = 16;

/// Frames that stay free or wait to be written.
pub(crate) fn reserve(pool: &FramePool, has_lower: bool) -> usize {
    if has_lower { RESERVE_MAX.min(pool.frames_max() / RESERVE_PART) } else { 0 }
}

impl Shard {
    /// An empty shard of at most `slots` pages, whose shadow ghost list has `shadow` entries. Memory for
    /// pages is taken as they come.
    pub(crate) fn new(number: usize, slots: usize, shadow: usize) -> Self {
        Self {
            number,
            slots: Vec::with_capacity(slots),
            slots_max: slots,
            free: Vec::with_capacity(slots),
            new: PageQueue::default(),
            main: PageQueue::default(),
            ghost: Ghost::new(policy::ghost_entries(Rules::Open, slots)),
            ghost_slots: slots,
            admission: Admission::default(),
            data: KindStatistics::default(),
            meta: KindStatistics::default(),
            refused: 0,
            shadow: Ghost::new(shadow),
            missed: 0,
            missed_below: 0,
            reuse: KindReuse::default(),
            given_back: 0,
            moved: 0,
            written: 0,
            blocks: 0,
        }
    }

    /// Changes the most pages of the shard. Pages above the limit stay until they are evicted.
    pub(crate) fn set_slots_max(&mut self, slots: usize) {
        invariant!(slots <= SLOTS_MAX, "a tag can name every slot of a shard");
        self.slots_max = slots;
    }

    /// An unused slot, if there is one or the limit allows another.
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
        tag_of(self.number, number)
    }

    fn find(&self, key: PageKey, hash: u64, shared: Shared<'_>) -> Option<Frame> {
        shared.index.find(self.number, hash, |place| shared.pool.find(place, key.into()))
    }

    /// The page and its heat, at most [`HEAT_MAX`], at least 1 if it is in the main queue.
    pub(crate) fn peek(
        &self,
        key: PageKey,
        hash: u64,
        shared: Shared<'_>,
    ) -> Option<(Frame, Heat)> {
        let frame = self.find(key, hash, shared)?;
        let (_, number) = slot_of_tag(frame.tag()?);
        let slot = self.slots.get(number as usize)?.as_ref()?;
        invariant!(slot.key() == Some(key), "the tag of an indexed frame leads to its slot");
        let heat = frame.heat().min(u32::from(HEAT_MAX)) as Heat;
        Some((frame, heat.max(Heat::from(slot.queue == Queue::Main))))
    }

    /// Attaches `block` to its page, if the page is still cached and there is memory.
    pub(crate) fn attach(&mut self, key: PageKey, hash: u64, block: &Bytes, shared: Shared<'_>) {
        let frame = self.find(key, hash, shared);
        if frame.is_some_and(|frame| shared.blocks.attach(&frame, block)) {
            self.blocks += 1;
        }
    }

    /// Puts every page into the shard's part of the index, which is empty and larger than before.
    pub(crate) fn index_all(&self, index: &FrameIndex) {
        for frame in self.slots.iter().flatten().map(|slot| &slot.frame) {
            if let (Some(place), Some(name)) = (frame.id(), frame.name()) {
                let is_in = index.insert(self.number, PageKey::from(name).hash(), place);
                invariant!(is_in, "a larger index has room for every page");
            }
        }
    }

    /// Detaches all blocks that nobody uses now; returns the bytes that were charged for them.
    pub(crate) fn clear_blocks(&mut self, shared: Shared<'_>) -> u64 {
        let mut freed = 0;
        for place in &mut self.slots {
            if self.blocks == 0 {
                break;
            }
            let Some(slot) = place.take_if(|slot| slot.frame.block().is_some()) else { continue };
            let Slot { kind, queue, links, frame } = slot;
            let (frame, block_bytes) = detach(frame, shared);
            freed += block_bytes;
            self.blocks -= usize::from(block_bytes > 0);
            *place = Some(Slot { kind, queue, links, frame });
        }
        freed
    }

    /// Makes a frame that was taken out of its slot writable, and detaches its block.
    ///
    /// # Errors
    /// The frame, if a reader holds it. Its block then is freed with it, and no longer counts.
    fn thaw(&mut self, frame: Frame, shared: Shared<'_>) -> Result<FrameMut, Frame> {
        if let Some(block) = frame.block() {
            invariant!(self.blocks > 0, "attached blocks are counted");
            self.blocks -= 1;
            shared.blocks.detached(attached_blocks::cost(block));
        }
        let mut frame = frame.try_thaw()?;
        drop(frame.take_block());
        Ok(frame)
    }

    /// Caches a copy of `page`, or finds the cached one. `None` if there is no slot or frame for it. Evicts
    /// another page if it must, and offers that to the lower tier.
    pub(crate) fn insert(
        &mut self,
        entry: PageEntry,
        page: &Page,
        shared: Shared<'_>,
        lower: Option<&ScmTier>,
    ) -> Option<Frame> {
        let PageEntry { key, hash, is_warm, .. } = entry;
        if let Some(frame) = self.find(key, hash, shared) {
            return Some(frame);
        }
        // A warm page came from the lower tier and cost no device read.
        let missed = if is_warm { &mut self.missed_below } else { &mut self.missed };
        *missed += u64::from(self.shadow.recall(hash));
        let Some((number, mut frame)) = self.free_place(shared, lower) else {
            self.refused += 1;
            return None;
        };
        frame.copy_from_slice(page);
        Some(self.place(entry, number, frame, shared))
    }

    /// As [`Shard::insert_if_free`], for a page that was written just now.
    pub(crate) fn insert_written(
        &mut self,
        entry: PageEntry,
        page: &Page,
        shared: Shared<'_>,
        reserve: usize,
    ) -> bool {
        let resident = self.data.resident + self.meta.resident;
        let is_cached = self.insert_if_free(entry, page, shared, reserve);
        self.written += self.data.resident + self.meta.resident - resident;
        is_cached
    }

    /// Caches a copy of `page` if a slot and a frame are free: evicts nothing and leaves `reserve` frames
    /// free. Returns whether the page is cached.
    pub(crate) fn insert_if_free(
        &mut self,
        entry: PageEntry,
        page: &Page,
        shared: Shared<'_>,
        reserve: usize,
    ) -> bool {
        if self.find(entry.key, entry.hash, shared).is_some() {
            return true;
        }
        let Some(number) = self.free_slot() else { return false };
        let Some(mut frame) = shared.pool.alloc_above(reserve) else {
            self.free.push(number);
            return false;
        };
        frame.copy_from_slice(page);
        let refused = self.refused;
        drop(self.place(entry, number, frame, shared));
        self.refused == refused
    }

    /// Takes the page out of the shard, to be put into another one under another name. `None` if it is not
    /// cached or somebody holds its frame, in which case it is no longer cached.
    pub(crate) fn take(
        &mut self,
        key: PageKey,
        hash: u64,
        shared: Shared<'_>,
    ) -> Option<(PageKind, FrameMut)> {
        let tag = self.find(key, hash, shared)?.tag()?;
        let (shard, number) = slot_of_tag(tag);
        invariant!(shard == self.number, "a shard's part of the index leads to its own frames");
        let slot = self.unlink(number, shared)?;
        self.free.push(number);
        self.counts(slot.kind).inserted -= 1;
        let kind = slot.kind;
        Some((kind, self.thaw(slot.frame, shared).ok()?))
    }

    /// Caches the page in `frame`, which was written just now. Returns whether the page is cached: not
    /// without a slot.
    pub(crate) fn put_written(
        &mut self,
        entry: PageEntry,
        frame: FrameMut,
        shared: Shared<'_>,
    ) -> bool {
        if self.find(entry.key, entry.hash, shared).is_some() {
            return true;
        }
        let Some(number) = self.free_slot() else { return false };
        let refused = self.refused;
        drop(self.place(entry, number, frame, shared));
        self.refused == refused
    }

    /// Puts the page that was copied to `frame` into the free slot `number`. Without a place in the index it
    /// is not cached, and its frame is free once the result is dropped.
    fn place(
        &mut self,
        entry: PageEntry,
        number: u32,
        mut frame: FrameMut,
        shared: Shared<'_>,
    ) -> Frame {
        let PageEntry { key, hash, kind, is_warm } = entry;
        frame.set_name(key.into());
        let frame = frame.freeze();
        frame.set_tag(self.tag(number));
        frame.set_heat(u32::from(least_heat(kind)));
        let is_in = frame.id().is_some_and(|place| shared.index.insert(self.number, hash, place));
        if !is_in {
            self.free.push(number);
            self.refused += 1;
            return frame;
        }
        self.ghost.set_len(policy::ghost_entries(shared.rules, self.ghost_slots));
        let is_recalled = kind == PageKind::Data && self.ghost.recall(hash);
        let queue = match kind {
            PageKind::Data if !is_warm => {
                self.admission.queue_of_admitted(shared.rules, is_recalled)
            }
            _ => Queue::Main,
        };
        let slot = Slot { kind, queue, links: Links::NONE, frame: frame.clone() };
        if let Some(place) = self.slots.get_mut(number as usize) {
            invariant!(place.is_none(), "a slot is used or free, never both");
            *place = Some(slot);
        }
        self.enqueue(number, queue);
        let counts = self.counts(kind);
        counts.inserted += 1;
        counts.resident += 1;
        self.check_counts();
        frame
    }

    /// A free slot and a frame for a new page: unused ones, else those of evicted blocks, else those of an
    /// evicted page.
    fn free_place(
        &mut self,
        shared: Shared<'_>,
        lower: Option<&ScmTier>,
    ) -> Option<(u32, FrameMut)> {
        let pool = shared.pool;
        let reserve = reserve(pool, lower.is_some());
        if let Some(number) = self.free_slot() {
            match pool.alloc_above(reserve).or_else(|| self.alloc_after_detach(shared)) {
                Some(frame) => return Some((number, frame)),
                None => self.free.push(number),
            }
        }
        self.make_room(shared, lower, reserve)
    }

    /// Whether the page is in the ghost list. Adds it: it was read and is not cached.
    pub(crate) fn seen_before(&mut self, hash: u64) -> bool {
        let is_known = self.ghost.recall(hash);
        self.ghost.remember(hash);
        is_known
    }

    /// A frame in the memory of all attached blocks, which make room before any page does.
    fn alloc_after_detach(&mut self, shared: Shared<'_>) -> Option<FrameMut> {
        if self.clear_blocks(shared) > 0 { shared.pool.alloc() } else { None }
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
        let tag = self.find(key, hash, shared).and_then(|frame| frame.tag());
        if let Some((shard, number)) = tag.map(slot_of_tag) {
            invariant!(shard == self.number, "a shard's part of the index leads to its own frames");
            self.clear(number, shared);
        }
    }

    /// Checks the counts of pages against the queues and the slots.
    fn check_counts(&self) {
        let resident = self.data.resident + self.meta.resident;
        invariant!(
            resident == (self.new.len() + self.main.len()) as u64,
            "every resident page is in a queue"
        );
        invariant!(
            resident as usize + self.free.len() <= self.slots.len(),
            "a slot is used or free, never both"
        );
        invariant!(self.blocks as u64 <= resident, "an attached block belongs to a resident page");
    }

    /// Frees slot `number`. A reader that holds its frame frees the frame.
    fn clear(&mut self, number: u32, shared: Shared<'_>) {
        if let Some(slot) = self.unlink(number, shared) {
            drop(self.thaw(slot.frame, shared));
            self.free.push(number);
        }
    }

    /// Entries of the shadow ghost list.
    pub(crate) const fn shadow_pages(&self) -> usize {
        self.shadow.capacity()
    }

    /// Reuse of pages of the main queue so far.
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
        statistics.written += self.written;
    }
}

/// Detaches the block of a frame that nobody else holds; returns the frame and the bytes charged for the
/// block, 0 if somebody holds the frame.
fn detach(frame: Frame, shared: Shared<'_>) -> (Frame, u64) {
    match frame.try_thaw() {
        Err(pinned) => (pinned, 0),
        Ok(mut frame) => {
            let bytes = frame.take_block().map_or(0, |block| attached_blocks::cost(&block));
            if bytes > 0 {
                shared.blocks.detached(bytes);
            }
            (frame.freeze(), bytes)
        }
    }
}

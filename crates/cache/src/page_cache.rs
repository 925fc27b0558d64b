//! The cache: shards by hash over one pool of frames.
//!
//! It takes memory as pages come, where its account has room, and gives chunks of 2 MiB back when
//! others need them ([`Reclaim`]): the coldest pages go, and those that are hot and lie in the
//! chunk move to where the coldest were.
//!
//! Concurrency: a lookup takes no lock and allocates nothing. It reads a bucket of the index, counts a
//! handle of the frame that it leads to, and compares the name then: two cache lines, and the page's own.
//! What is being moved at that moment it may miss, and nothing else. One mutex a shard is held for an
//! insertion and never over I/O; giving back takes one at a time, another capacity all of them. Nothing is
//! charged with a shard's mutex held but to the cache's own account, which asks nobody.
//! Cost: [`SLOT_BYTES`] of DRAM a page beside its frame, charged together (I10), and its place in the index.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arena::{Frame, FrameIndex, FramePool, Page, prefetch, prefetch_all};
use base::limits::PAGE_BYTES;
use base::{Account, Charge, Counter, Reclaim, Result};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::attached_blocks::AttachedBlocks;
use crate::live_files::LiveFiles;
use crate::reuse::KindReuse;
use crate::rows::Ghost;
use crate::scm::{EvictedPage, ScmTier};
use crate::shard::{
    BLOCK_HEAT, Cached, PageEntry, SLOT_BYTES, SLOTS_MAX, Shard, Shared, UNUSED_SLOT_BYTES,
    slot_of_tag, touch,
};
use crate::{CacheStatistics, KindStatistics, LiveFile, PageKey, PageKind};

/// A cache of 4 KiB pages, shared by any number of threads and stores.
///
/// A page that was got or inserted stays readable for as long as its frame is held, whatever
/// becomes of it in the cache.
pub struct PageCache {
    account: Account,
    pool: FramePool,
    index: FrameIndex,
    blocks: AttachedBlocks,
    shards: Box<[Padded]>,
    data: Lookups,
    meta: Lookups,
    /// Where pages go that leave.
    lower_tier: OnceLock<Arc<ScmTier>>,
    files: Arc<LiveFiles>,
    _charge: Charge,
}

/// The stages of [`PageCache::prefetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Where it is.
    Index,
    /// What is known of its frame.
    Frame,
    /// What it holds.
    Content,
}

/// How much of what a page holds is asked for, bytes: a walk asks for the rest as it goes.
const AHEAD_BYTES: usize = 512;

/// Lookups of one kind of page.
#[derive(Default)]
struct Lookups {
    hits: Counter,
    misses: Counter,
}

impl Lookups {
    fn add_to(&self, statistics: &mut KindStatistics) {
        statistics.hits += self.hits.get();
        statistics.misses += self.misses.get();
    }
}

/// Shards' locks do not share cache lines.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// What went last is remembered as far as it lay in one such part of all of the memory.
const SHADOW_PART: usize = 32;

/// Few pages in a shard make its queues poor ones; few shards make threads wait.
const SHARD_PAGES_MIN: usize = 1024;
const SHARDS_MAX: usize = 64;

/// The address space of the index, in multiples of what the capacity needs: a capacity may be raised.
const ROOM_TO_GROW: usize = 8;

/// Chunks that it keeps whatever others need: without a metadata page every read takes two.
const CHUNKS_MIN: usize = 1;

/// Chunks tried for each that is given back: pages are pinned while a chunk is emptied.
const CHUNK_TRIES: usize = 4;

impl PageCache {
    /// A cache that takes at most `capacity_bytes`, all of its own memory included. Frames are
    /// charged as they are first used, 2 MiB at a time.
    ///
    /// # Errors
    /// `Retry` where the budget does not hold the slots.
    pub fn new(account: &Account, capacity_bytes: u64) -> Result<Self> {
        let shadow =
            usize::try_from(capacity_bytes).unwrap_or(usize::MAX) / PAGE_BYTES / SHADOW_PART;
        let shadow_bytes = Ghost::bytes_of(shadow);
        let frames = frames_within(capacity_bytes.saturating_sub(shadow_bytes));
        let shards = (frames / SHARD_PAGES_MIN).clamp(1, SHARDS_MAX).next_power_of_two();
        let slots = (frames / shards).min(SLOTS_MAX);
        let charge = account.charge((slots * shards * UNUSED_SLOT_BYTES) as u64 + shadow_bytes)?;
        let shard = |number| Padded(Mutex::new(Shard::new(number, slots, shadow / shards)));
        Ok(Self {
            account: account.clone(),
            pool: FramePool::new(account, slots * shards, SLOT_BYTES)?,
            index: FrameIndex::new(account, shards, slots, slots.saturating_mul(ROOM_TO_GROW))?,
            blocks: AttachedBlocks::new(account, capacity_bytes),
            shards: (0..shards).map(shard).collect(),
            data: Lookups::default(),
            meta: Lookups::default(),
            lower_tier: OnceLock::new(),
            files: Arc::default(),
            _charge: charge,
        })
    }

    /// Has pages that leave go to `tier`, from now on; the first caller's stays.
    pub fn set_lower_tier(&self, tier: &Arc<ScmTier>) {
        let _ = self.lower_tier.set(Arc::clone(tier));
    }

    /// The tier below, where there is one.
    #[must_use]
    pub fn lower_tier(&self) -> Option<&Arc<ScmTier>> {
        self.lower_tier.get()
    }

    /// Changes the most it takes, as far as there is memory now for finding so many pages, and up to some
    /// eight times what it began with. What it holds above that stays until it is asked for it.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        let slots = (frames_within(capacity_bytes) / self.shards.len()).min(SLOTS_MAX);
        self.blocks.set_capacity(capacity_bytes);
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.0.lock()).collect();
        if self.index.grow(slots) {
            shards.iter().for_each(|shard| shard.index_all(&self.index));
        }
        // A page that is not found is of no use, and takes the place of one that is.
        let slots = slots.min(self.index.entries());
        self.pool.set_frames_max(slots * self.shards.len());
        shards.iter_mut().for_each(|shard| shard.set_slots_max(slots));
    }

    const fn shared(&self) -> Shared<'_> {
        Shared { pool: &self.pool, index: &self.index, blocks: &self.blocks }
    }

    /// The number of the shard of a hash.
    #[inline]
    fn shard_number(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    fn shard(&self, hash: u64) -> Option<&Mutex<Shard>> {
        self.shards.get(self.shard_number(hash)).map(|padded| &padded.0)
    }

    /// The page of this hash, if it is cached. Takes no lock, and counts nothing.
    #[inline]
    fn find_frame(&self, key: PageKey, hash: u64) -> Option<Frame> {
        let name = key.into();
        self.index.find(self.shard_number(hash), hash, |place| self.pool.find(place, name))
    }

    /// The page, if it is cached, and how warm it is now; a hit or a miss of `kind`.
    #[inline]
    fn lookup(&self, key: PageKey, kind: PageKind) -> Option<(Frame, u32)> {
        let found = self.find_frame(key, key.hash());
        let lookups = match kind {
            PageKind::Data => &self.data,
            PageKind::Meta => &self.meta,
        };
        match found {
            Some(frame) => {
                lookups.hits.add(1);
                let heat = touch(&frame, kind);
                Some((frame, heat))
            }
            None => {
                lookups.misses.add(1);
                None
            }
        }
    }

    /// The page, if it is cached; a hit or a miss of `kind`.
    #[inline]
    #[must_use]
    pub fn get(&self, key: PageKey, kind: PageKind) -> Option<Frame> {
        self.lookup(key, kind).map(|(frame, _)| frame)
    }

    /// As [`PageCache::get`]; the block of the page instead, where one hangs on it.
    #[inline]
    #[must_use]
    pub fn read(&self, key: PageKey, kind: PageKind) -> Option<Cached> {
        let (frame, heat) = self.lookup(key, kind)?;
        if kind == PageKind::Meta {
            return Some(Cached::Page { frame, wants_block: false });
        }
        let frame = match frame.into_block() {
            Ok(block) => return Some(Cached::Block(block)),
            Err(frame) => frame,
        };
        let wants_block = heat >= BLOCK_HEAT && self.blocks.has_room();
        Some(Cached::Page { frame, wants_block })
    }

    /// Asks the processor for what finding the page reads, one `stage` after the other, each of which reads
    /// what the one before asked for: where it is, its frame's header, its first bytes. Counts nothing, and
    /// does nothing of a page that is not cached.
    #[inline]
    pub fn prefetch(&self, key: PageKey, stage: Stage) {
        let hash = key.hash();
        match stage {
            Stage::Index => self.index.prefetch(self.shard_number(hash), hash),
            Stage::Frame => {
                let ask = |place| {
                    self.pool.prefetch(place);
                    Some(())
                };
                let _: Option<()> = self.index.find(self.shard_number(hash), hash, ask);
            }
            Stage::Content => {
                let Some(frame) = self.find_frame(key, hash) else { return };
                let content = frame.block().map_or(&*frame, |block| block);
                prefetch_all(content.get(..content.len().min(AHEAD_BYTES)).unwrap_or_default());
                // A block's parts are known by its end.
                prefetch(content, content.len().wrapping_sub(1));
            }
        }
    }

    /// The page and how often it was asked for lately, up to three, if it is cached. Nobody counts it as
    /// asked for.
    #[must_use]
    pub fn peek(&self, key: PageKey) -> Option<(Frame, u8)> {
        let hash = key.hash();
        self.shard(hash)?.lock().peek(key, hash, self.shared())
    }

    /// Keeps `block`, what the page of `key` holds, decompressed, for as long as the page stays and
    /// nobody needs the memory. It must not keep the page's frame.
    pub fn attach(&self, key: PageKey, block: &Bytes) {
        let hash = key.hash();
        if let Some(shard) = self.shard(hash) {
            shard.lock().attach(key, hash, block, self.shared());
        }
    }

    /// Caches a copy of `page`, which the caller verified (I8), and returns it. Where the page is
    /// cached already, that one; where every frame it could take is pinned, a frame of its own.
    ///
    /// Bytes past the first 4 KiB are left out; fewer are filled up with zeros.
    #[must_use]
    pub fn insert(&self, key: PageKey, kind: PageKind, page: &[u8]) -> Frame {
        match page.first_chunk::<PAGE_BYTES>() {
            Some(page) => self.insert_page(key, kind, page),
            None => {
                let mut filled = [0; PAGE_BYTES];
                for (to, from) in filled.iter_mut().zip(page) {
                    *to = *from;
                }
                self.insert_page(key, kind, &filled)
            }
        }
    }

    fn insert_page(&self, key: PageKey, kind: PageKind, page: &Page) -> Frame {
        let passes = EvictedPage { key, kind, is_demoted: false };
        if let Some(tier) = self.lower_tier()
            && tier.takes_on_miss(key, kind)
            && tier.admit(passes)
        {
            let frame = self.uncached(page);
            tier.stage(passes, frame.clone());
            return frame;
        }
        let cached = self.insert_as(key, kind, page, false);
        cached.unwrap_or_else(|| self.uncached(page))
    }

    /// As [`PageCache::insert`] where the page was asked for, in any way, and not kept lately; otherwise a
    /// frame that the cache does not keep, and that it was asked for is remembered. For what most likely
    /// nobody asks for again.
    #[must_use]
    pub fn insert_if_seen_before(&self, key: PageKey, kind: PageKind, page: &Page) -> Frame {
        let hash = key.hash();
        let is_known = self.shard(hash).is_some_and(|shard| shard.lock().seen_before(hash));
        if is_known { self.insert_page(key, kind, page) } else { self.uncached(page) }
    }

    fn insert_as(&self, key: PageKey, kind: PageKind, page: &Page, is_warm: bool) -> Option<Frame> {
        let hash = key.hash();
        let entry = PageEntry { key, hash, kind, is_warm };
        let shard = self.shard(hash)?;
        shard.lock().insert(entry, page, self.shared(), self.lower_tier().map(|tier| &**tier))
    }

    /// As [`PageCache::insert`], of a page of the tier below that was asked for again and again. `None`
    /// where every frame it could take is pinned.
    pub fn insert_warm(&self, key: PageKey, kind: PageKind, page: &Page) -> Option<Frame> {
        self.insert_as(key, kind, page, true)
    }

    /// A frame with a copy of `page` that is not in the cache, charged to the cache's account.
    #[must_use]
    pub fn uncached(&self, page: &Page) -> Frame {
        Frame::heap(&self.account, page)
    }

    /// Says that somebody may read `file`, for as long as what it returns is held. Who says it of one file
    /// says it of each before it is read: pages of all others are not written below any more.
    #[must_use]
    pub fn keep_file(&self, file: u64) -> LiveFile {
        self.files.keep(file)
    }

    /// Whether somebody may read `file`.
    pub(crate) fn is_live(&self, file: u64) -> bool {
        self.files.contains(file)
    }

    /// Removes every page of a file that is gone, of `pages` pages; what lies below goes by and by. Asks
    /// for each of its pages, or walks the cache where that is shorter.
    pub fn remove_file(&self, file: u64, pages: u32) {
        if let Some(tier) = self.lower_tier() {
            tier.remove_file(file, pages);
        }
        if pages as usize > self.pool.frames_max() {
            for shard in &self.shards {
                shard.0.lock().remove_file(file, self.shared());
            }
            return;
        }
        for page in 0..pages {
            let key = PageKey { file, page };
            let hash = key.hash();
            // Most pages of a file that goes are not cached.
            let is_cached = self.find_frame(key, hash).is_some();
            if let Some(shard) = self.shard(hash).filter(|_| is_cached) {
                shard.lock().remove(key, hash, self.shared());
            }
        }
    }

    /// What went last is remembered as far as it lay in so many bytes.
    pub(crate) fn shadow_bytes(&self) -> u64 {
        let pages = self.shards.iter().map(|shard| shard.0.lock().shadow_pages());
        (pages.sum::<usize>() * PAGE_BYTES) as u64
    }

    /// The memory of pages, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.pool.frames_grown() * PAGE_BYTES) as u64
    }

    /// What became of pages that were asked for again and again, so far.
    pub(crate) fn reuse(&self) -> KindReuse {
        let mut reuse = KindReuse::default();
        self.shards.iter().for_each(|shard| reuse += shard.0.lock().reuse());
        reuse
    }

    /// Whether it could take another chunk now.
    pub(crate) fn has_room(&self) -> bool {
        self.account.has_room(FramePool::CHUNK_BYTES)
    }

    /// The counts so far.
    #[must_use]
    pub fn statistics(&self) -> CacheStatistics {
        let mut statistics = CacheStatistics {
            capacity_pages: self.pool.frames_max() as u64,
            memory_pages: self.pool.frames_grown() as u64,
            blocks: self.blocks.count(),
            block_bytes: self.blocks.bytes(),
            ..CacheStatistics::default()
        };
        self.data.add_to(&mut statistics.data);
        self.meta.add_to(&mut statistics.meta);
        for shard in &self.shards {
            shard.0.lock().add_to(&mut statistics);
        }
        statistics
    }
}

impl PageCache {
    /// Gives one chunk back; its bytes, 0 where pinned pages are everywhere.
    fn give_back_chunk(&self) -> usize {
        let below = self.lower_tier().map(|tier| &**tier);
        for _ in 0..CHUNK_TRIES {
            let Some(mut evacuation) = self.pool.evacuate(CHUNKS_MIN) else { return 0 };
            let tags: Vec<u32> = evacuation.in_use().collect();
            for tag in tags {
                let (shard, slot) = slot_of_tag(tag);
                if let Some(shard) = self.shards.get(shard) {
                    shard.0.lock().vacate(slot, &mut evacuation, self.shared(), below);
                }
            }
            match evacuation.finish() {
                0 => {}
                bytes => return bytes,
            }
        }
        0
    }
}

impl PageCache {
    /// Gives blocks up until as many bytes were theirs; how many were.
    pub(crate) fn detach_blocks(&self, bytes: u64) -> u64 {
        let mut given = 0;
        for shard in &self.shards {
            if given >= bytes {
                break;
            }
            given += shard.0.lock().clear_blocks(self.shared());
        }
        given
    }
}

impl Reclaim for PageCache {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut given = self.detach_blocks(bytes);
        while given < bytes {
            match self.give_back_chunk() {
                0 => break,
                chunk => given += chunk as u64,
            }
        }
        given
    }
}

/// The most pages that cost no more than `bytes` in all.
fn frames_within(bytes: u64) -> usize {
    const BESIDE: usize = SLOT_BYTES + UNUSED_SLOT_BYTES + FrameIndex::ENTRY_BYTES;
    let cost = PAGE_BYTES + BESIDE;
    let mut frames = usize::try_from(bytes).unwrap_or(usize::MAX) / cost;
    let over = |frames: usize| {
        let indexes = SHARDS_MAX * 2 * FrameIndex::ENTRY_BYTES * 5;
        FramePool::cost_bytes(frames) + (frames * BESIDE + indexes) as u64 > bytes
    };
    while frames > 0 && over(frames) {
        frames -= frames.div_ceil(256);
    }
    frames
}

impl fmt::Debug for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageCache({:?} in {} shards)", self.pool, self.shards.len())
    }
}

#[cfg(test)]
mod block_tests;
#[cfg(test)]
mod reclaim_tests;
#[cfg(test)]
mod tests;

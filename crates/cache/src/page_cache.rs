//! The page cache: the upper tier's pages, in shards by hash over one pool of frames.
//!
//! The cache takes memory as pages come, if its account has room, and gives chunks of 2 MiB back when others
//! need memory ([`base::Reclaim`]): the coldest pages are evicted, and hot pages in the chunk move to the
//! frames of colder ones.
//!
//! Concurrency: any thread may call. A lookup takes no lock and allocates nothing. It reads a bucket of the
//! index, counts a handle of the frame that the bucket names, and then compares the frame's name: two cache
//! lines beside the page's own. A lookup may miss a page that is being moved; it never gets another page.
//! Each shard has a mutex, held for an insertion and never over I/O. Reclaim locks one shard at a time, a
//! change of capacity locks all. While a shard's mutex is held only the cache's own account is charged, which
//! reclaims from nobody. Cost: [`SLOT_BYTES`] of DRAM per page beside its frame, charged together (I10), and
//! its entry in the index.

mod hot;
mod reclaim;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arena::{Frame, FrameBlock, FrameIndex, FramePool, Page, prefetch, prefetch_all};
use base::limits::PAGE_BYTES;
use base::{Account, Charge, Counter, Result, invariant};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::attached_blocks::AttachedBlocks;
use crate::curve::{Contest, Subject};
use crate::live_files::LiveFiles;
use crate::reuse::KindReuse;
use crate::rows::Ghost;
use crate::scm::{EvictedPage, ScmTier};
use crate::shard::{
    BLOCK_HEAT, PageEntry, SLOT_BYTES, SLOTS_MAX, Shard, Shared, UNUSED_SLOT_BYTES, reserve, touch,
};
use crate::{CacheStatistics, KindStatistics, LiveFile, PageKey, PageKind};

/// A cache of 4 KiB pages, shared by any number of threads and stores.
///
/// A page that a caller got or inserted stays readable while the caller holds its frame, evicted or not.
pub struct PageCache {
    account: Account,
    pool: FramePool,
    index: FrameIndex,
    blocks: AttachedBlocks,
    shards: Box<[Padded]>,
    data: Lookups,
    meta: Lookups,
    /// The tier that evicted pages are offered to.
    lower_tier: OnceLock<Arc<ScmTier>>,
    files: Arc<LiveFiles>,
    contest: Contest,
    /// The last number that [`PageCache::unnamed_file`] gave.
    unnamed: AtomicU64,
    _charge: Charge,
}

/// Difference of two numbers of unfinished files: odd, so that all are different, and without a pattern of
/// bits that a digest is likely to share.
const UNNAMED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Stages of [`PageCache::prefetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The page's bucket in the index.
    Index,
    /// The header of the page's frame.
    Frame,
    /// The start of the page's content.
    Content,
}

/// Content of a cached page.
#[derive(Debug)]
pub enum Cached {
    /// The page as stored.
    Page {
        /// The page's frame.
        frame: Frame,
        /// Whether the page is used often enough that the caller should attach its decompressed block
        /// ([`PageCache::attach`]).
        wants_block: bool,
    },
    /// The page's decompressed block.
    Block(FrameBlock),
}

/// Bytes of content that are prefetched: a search of the page prefetches the rest itself.
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

/// Alignment that keeps the shards' locks on different cache lines.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// The shadow ghost lists cover this part of the cache's memory.
const SHADOW_PART: usize = 32;

/// Least pages per shard: the queues of a smaller shard order its pages badly. The more shards there are, the
/// less threads wait for each other.
const SHARD_PAGES_MIN: usize = 1024;
const SHARDS_MAX: usize = 64;

/// Address space of the index, in multiples of the first capacity: a capacity may be raised.
const ROOM_TO_GROW: usize = 8;

impl PageCache {
    /// A cache that takes at most `capacity_bytes`, all of its own memory included. Frames are charged when
    /// they are first used, 2 MiB at a time.
    ///
    /// # Errors
    /// `Retry` if the account has no room for the slots.
    pub fn new(account: &Account, capacity_bytes: u64) -> Result<Self> {
        let shadow =
            usize::try_from(capacity_bytes).unwrap_or(usize::MAX) / PAGE_BYTES / SHADOW_PART;
        let shadow_bytes = Ghost::bytes_of(shadow);
        let frames = frames_within(capacity_bytes.saturating_sub(shadow_bytes));
        let shards = (frames / SHARD_PAGES_MIN).clamp(1, SHARDS_MAX).next_power_of_two();
        let slots = (frames / shards).min(SLOTS_MAX);
        invariant!(shards.is_power_of_two(), "the shard of a hash is some of its bits");
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
            contest: Contest::new(account, Subject::Pages, capacity_bytes),
            unnamed: AtomicU64::new(0),
            _charge: charge,
        })
    }

    /// Sets the tier that evicted pages are offered to. The first caller's tier stays.
    pub fn set_lower_tier(&self, tier: &Arc<ScmTier>) {
        let _ = self.lower_tier.set(Arc::clone(tier));
    }

    /// The lower tier, if there is one.
    #[must_use]
    pub fn lower_tier(&self) -> Option<&Arc<ScmTier>> {
        self.lower_tier.get()
    }

    /// Changes the capacity, up to some eight times the first one, and as far as there is memory for the
    /// index now. Pages above the new capacity stay until the memory is reclaimed.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        let slots = (frames_within(capacity_bytes) / self.shards.len()).min(SLOTS_MAX);
        self.blocks.set_capacity(capacity_bytes);
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.0.lock()).collect();
        if self.index.grow(slots) {
            shards.iter().for_each(|shard| shard.index_all(&self.index));
        }
        // A page that the index has no room for would not be found, and would take the place of one that is.
        let slots = slots.min(self.index.entries());
        self.pool.set_frames_max(slots * self.shards.len());
        shards.iter_mut().for_each(|shard| shard.set_slots_max(slots));
    }

    fn shared(&self) -> Shared<'_> {
        let (pool, index, blocks) = (&self.pool, &self.index, &self.blocks);
        Shared { pool, index, blocks, rules: self.contest.rules() }
    }

    /// The number of the shard for a hash.
    #[inline]
    fn shard_number(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    fn shard(&self, hash: u64) -> Option<&Mutex<Shard>> {
        let shard = self.shards.get(self.shard_number(hash));
        invariant!(shard.is_some(), "every hash has a shard");
        shard.map(|padded| &padded.0)
    }

    /// The page's frame, if it is cached. Takes no lock and counts nothing.
    #[inline]
    fn find_frame(&self, key: PageKey, hash: u64) -> Option<Frame> {
        let name = key.into();
        self.index.find(self.shard_number(hash), hash, |place| self.pool.find(place, name))
    }

    /// The page and its heat after this use. Counts a hit or a miss of `kind`.
    #[inline]
    fn lookup(&self, key: PageKey, kind: PageKind) -> Option<(Frame, u32)> {
        let hash = key.hash();
        let lookups = match kind {
            PageKind::Data => &self.data,
            PageKind::Meta => &self.meta,
        };
        let Some(frame) = self.find_frame(key, hash) else {
            lookups.misses.add(1);
            return None;
        };
        lookups.hits.add(1);
        self.contest.ask(hash, PAGE_BYTES, kind, || self.bytes());
        let heat = touch(&frame, kind);
        Some((frame, heat))
    }

    /// Looks the page up; counts a hit or a miss of `kind`.
    #[inline]
    #[must_use]
    pub fn get(&self, key: PageKey, kind: PageKind) -> Option<Frame> {
        self.lookup(key, kind).map(|(frame, _)| frame)
    }

    /// As [`PageCache::get`], but returns the page's decompressed block if one is attached.
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

    /// Prefetches the memory that a lookup of the page reads, one `stage` at a time: the index bucket, the
    /// frame's header, the first bytes of the content. Each stage reads what the stage before prefetched.
    /// Counts nothing, and does nothing if the page is not cached.
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
                // A block's layout is found from its end.
                prefetch(content, content.len().wrapping_sub(1));
            }
        }
    }

    /// The page and its heat (0 to 3), if it is cached. Does not count as a use.
    #[must_use]
    pub fn peek(&self, key: PageKey) -> Option<(Frame, u8)> {
        let hash = key.hash();
        self.shard(hash)?.lock().peek(key, hash, self.shared())
    }

    /// Attaches `block`, the decompressed content of the page `key`, to the cached page. It stays until the
    /// page is evicted or memory is needed. `block` must not hold the page's frame.
    pub fn attach(&self, key: PageKey, block: &Bytes) {
        let hash = key.hash();
        if let Some(shard) = self.shard(hash) {
            shard.lock().attach(key, hash, block, self.shared());
        }
    }

    /// Caches a copy of `page`, which the caller verified (I8), and returns its frame. Returns the cached
    /// frame if the page is cached already, and a frame outside the cache if every frame it could take is
    /// pinned.
    ///
    /// Bytes beyond 4 KiB are ignored; a shorter page is filled up with zeros.
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
        let bypasses_dram = EvictedPage { key, kind, is_demoted: false };
        if let Some(tier) = self.lower_tier()
            && tier.takes_on_miss(key, kind)
            && tier.admit(bypasses_dram)
        {
            let frame = self.uncached(page);
            tier.stage(bypasses_dram, frame.clone());
            return frame;
        }
        let cached = self.insert_as(key, kind, page, false);
        cached.unwrap_or_else(|| self.uncached(page))
    }

    /// As [`PageCache::insert`] if the ghost list has the page. Otherwise returns a frame outside the cache
    /// and adds the page to the ghost list. For pages that are unlikely to be read again, such as those of a
    /// scan.
    #[must_use]
    pub fn insert_if_seen_before(&self, key: PageKey, kind: PageKind, page: &Page) -> Frame {
        let hash = key.hash();
        let is_known = self.shard(hash).is_some_and(|shard| shard.lock().seen_before(hash));
        if is_known { self.insert_page(key, kind, page) } else { self.uncached(page) }
    }

    fn insert_as(&self, key: PageKey, kind: PageKind, page: &Page, is_warm: bool) -> Option<Frame> {
        let hash = key.hash();
        let entry = PageEntry { key, hash, kind, is_warm };
        self.contest.ask(hash, PAGE_BYTES, kind, || self.bytes());
        let shard = self.shard(hash)?;
        shard.lock().insert(entry, page, self.shared(), self.lower_tier().map(|tier| &**tier))
    }

    /// As [`PageCache::insert`], for a page that is promoted from the lower tier: it enters the main queue.
    /// `None` if every frame it could take is pinned.
    pub fn insert_warm(&self, key: PageKey, kind: PageKind, page: &Page) -> Option<Frame> {
        self.insert_as(key, kind, page, true)
    }

    /// Caches a copy of `page`, which a flush or a merge just wrote, while the cache may still take more
    /// memory: nothing is evicted for it. Returns whether the page is cached.
    ///
    /// Frames that became free in a cache that was full are left to pages that are read.
    pub fn insert_written(&self, key: PageKey, kind: PageKind, page: &Page) -> bool {
        self.grows() && self.insert_free(key, kind, page)
    }

    /// As [`PageCache::insert_written`], but also takes a frame that became free in a cache that was full:
    /// for a page that takes the place of another one.
    pub fn insert_free(&self, key: PageKey, kind: PageKind, page: &Page) -> bool {
        let hash = key.hash();
        let entry = PageEntry { key, hash, kind, is_warm: false };
        let reserve = reserve(&self.pool, self.lower_tier().is_some());
        let shard = self.shard(hash);
        shard.is_some_and(|it| it.lock().insert_written(entry, page, self.shared(), reserve))
    }

    /// Whether the cache may take more memory now.
    pub(crate) fn grows(&self) -> bool {
        self.pool.frames_grown() < self.pool.frames_max() && self.has_room()
    }

    /// A number that stands for a file without a digest, different from all others of this cache. That a
    /// file has it as its digest is as unlikely as that two files have the same digest.
    pub(crate) fn unnamed_file(&self) -> u64 {
        self.unnamed.fetch_add(UNNAMED_STEP, Relaxed).wrapping_add(UNNAMED_STEP)
    }

    /// Gives the page `from`, if it is cached and nobody reads it, the name `to`. It stays in its frame.
    /// Returns whether `to` is cached.
    pub(crate) fn rename(&self, from: PageKey, to: PageKey) -> bool {
        let (old, new) = (from.hash(), to.hash());
        let shard = self.shard(old);
        let Some((kind, frame)) = shard.and_then(|it| it.lock().take(from, old, self.shared()))
        else {
            return false;
        };
        let entry = PageEntry { key: to, hash: new, kind, is_warm: false };
        self.shard(new).is_some_and(|it| it.lock().put_written(entry, frame, self.shared()))
    }

    /// Removes one page. Returns whether it was cached.
    pub fn remove_page(&self, key: PageKey) -> bool {
        let hash = key.hash();
        // Most pages that are removed are not cached.
        let is_cached = self.find_frame(key, hash).is_some();
        if let Some(shard) = self.shard(hash).filter(|_| is_cached) {
            shard.lock().remove(key, hash, self.shared());
        }
        is_cached
    }

    /// A frame with a copy of `page`, outside the cache, charged to the cache's account.
    #[must_use]
    pub fn uncached(&self, page: &Page) -> Frame {
        Frame::heap(&self.account, page)
    }

    /// Marks `file` live, that is readable, while the returned value exists. Once any file was marked live,
    /// pages of files that are not live are no longer demoted: so a caller must mark each file before the
    /// file is read.
    #[must_use]
    pub fn keep_file(&self, file: u64) -> LiveFile {
        self.files.keep(file)
    }

    /// Whether `file` may be read by anyone.
    pub(crate) fn is_live(&self, file: u64) -> bool {
        self.files.contains(file)
    }

    /// Removes every page of an obsolete file of `pages` pages; the lower tier removes its pages in the
    /// background. Looks up each page of the file, or walks the cache if that is shorter.
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
            self.remove_page(PageKey { file, page });
        }
    }

    /// Bytes of pages that the shadow ghost lists cover.
    pub(crate) fn shadow_bytes(&self) -> u64 {
        let pages = self.shards.iter().map(|shard| shard.0.lock().shadow_pages());
        (pages.sum::<usize>() * PAGE_BYTES) as u64
    }

    /// Memory of all frames, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.pool.frames_grown() * PAGE_BYTES) as u64
    }

    /// Reuse of pages that had been used before, so far.
    pub(crate) fn reuse(&self) -> KindReuse {
        let mut reuse = KindReuse::default();
        self.shards.iter().for_each(|shard| reuse += shard.0.lock().reuse());
        reuse
    }

    /// Whether the account has room for another chunk now.
    pub(crate) fn has_room(&self) -> bool {
        self.account.has_room(FramePool::CHUNK_BYTES)
    }

    /// The statistics since the cache was made.
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

/// Most pages with memory, all costs included, within `bytes`.
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

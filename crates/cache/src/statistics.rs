//! Statistics of the page cache.

/// Statistics since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Data pages.
    pub data: KindStatistics,
    /// Metadata pages.
    pub meta: KindStatistics,
    /// Pages that were cached as a flush or a merge wrote them.
    pub written: u64,
    /// Pages that were not cached, because every frame they could take was pinned.
    pub refused: u64,
    /// Pages read from flash that the shadow ghost list had: a little more memory would have kept them.
    pub missed: u64,
    /// The same for pages that were promoted from the lower tier.
    pub missed_below: u64,
    /// Most pages that the cache may hold; it holds fewer while others need the memory.
    pub capacity_pages: u64,
    /// Pages that the cache has memory for now.
    pub memory_pages: u64,
    /// Pages evicted, and pages moved, to give memory back.
    pub given_back: u64,
    /// See `given_back`.
    pub moved: u64,
    /// Attached decompressed blocks, and their memory, bytes.
    pub blocks: u64,
    /// See `blocks`.
    pub block_bytes: u64,
}

/// Statistics of one kind of page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStatistics {
    /// Lookups that found the page.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Pages inserted.
    pub inserted: u64,
    /// Pages evicted.
    pub evicted: u64,
    /// Pages in the cache now.
    pub resident: u64,
}

impl KindStatistics {
    pub(crate) fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.inserted += other.inserted;
        self.evicted += other.evicted;
        self.resident += other.resident;
    }
}

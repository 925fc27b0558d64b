//! What the cache counts.

/// The counts at one moment, since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Data pages.
    pub data: KindStatistics,
    /// Metadata pages.
    pub meta: KindStatistics,
    /// Pages that found every frame they could take pinned and were not cached.
    pub refused: u64,
    /// Pages read from flash soon after they went: what a little more memory would have kept.
    pub missed: u64,
    /// The same of pages that were copied up from the tier below.
    pub missed_below: u64,
    /// The most pages at once; there are fewer where others need the memory.
    pub capacity_pages: u64,
    /// Pages there is memory for now.
    pub memory_pages: u64,
    /// Pages evicted because others needed the memory, and pages moved for that.
    pub given_back: u64,
    /// See `given_back`.
    pub moved: u64,
    /// Pages on which their block hangs, decompressed, and what these take, bytes.
    pub blocks: u64,
    /// See `blocks`.
    pub block_bytes: u64,
}

/// The counts of one kind of page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStatistics {
    /// Lookups that found the page.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Pages put in.
    pub inserted: u64,
    /// Pages pushed out by others.
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

//! The profiles of RocksDB's options.

/// A profile of RocksDB's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The defaults with Bloom filters and a block cache, as the wiki recommends to everyone. The cache is
    /// LRU, which was faster here than the clock cache on two cores, and slower on sixteen.
    Default,
    /// For reads: the clock cache, a hash index in each block, partitioned index and filters, direct I/O.
    Read,
    /// As `Default`, with half of the cache for single rows.
    Row,
    /// For gets: a hash index in each block and filters of memtables, as `OptimizeForPointLookup` sets them;
    /// index and filters stay in memory, beside the cache.
    Point,
    /// For writes: large write buffers, pipelined writes to log and memtable, wide upper levels.
    Write,
}

//! What RocksDB can be tuned for.

/// What RocksDB is tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Its defaults, with Bloom filters and a block cache, as its wiki asks of everyone; the cache by
    /// LRU, which was faster here than the clock on two cores, and slower on sixteen.
    Default,
    /// Reads: the clock cache, a hash in each block, partitioned index and filters, direct I/O.
    Read,
    /// As `Default`, half of the cache for single rows.
    Row,
    /// Writes: large write buffers, a pipeline between log and memtable, wide upper levels.
    Write,
}

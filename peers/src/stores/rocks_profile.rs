//! What RocksDB can be tuned for.

/// What RocksDB is tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Its defaults, with a block cache and Bloom filters, as its wiki asks of everyone.
    Default,
    /// Reads: the clock cache, a hash in each block, partitioned index and filters, direct I/O.
    Read,
    /// As `Default`, half of the cache for single rows.
    Row,
    /// Writes: large write buffers, no pipeline between log and memtable, wide upper levels.
    Write,
}

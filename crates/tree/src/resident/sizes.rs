//! The sizes of a resident keyspace, for statistics.

/// Sizes of a resident keyspace.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResidentSizes {
    /// Entries of the index.
    pub entries: u64,
    /// Those that are tombstones.
    pub tombstones: u64,
    /// Memory of the index, bytes.
    pub index_bytes: u64,
}

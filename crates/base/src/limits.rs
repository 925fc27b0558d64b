//! Every limit of the store, in one place, with the relations between them proved at compile time.

/// The unit of storage and caching, bytes.
pub const PAGE_BYTES: usize = 4096;

/// The longest key, bytes. The shortest is one byte.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value, bytes. The shortest is none.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// The largest write batch as encoded, bytes: room for one value of any size, or many small ones.
pub const BATCH_BYTES_MAX: usize = 128 << 20;

/// The most operations in one write batch.
pub const BATCH_OPS_MAX: usize = 1 << 20;

/// The longest keyspace name, bytes of UTF-8.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// The longest name of a merge operator, bytes of UTF-8.
pub const OPERATOR_NAME_BYTES_MAX: usize = 255;

/// The most keyspaces in one store: the manifest and each flush list them all.
pub const KEYSPACES_MAX: usize = 1024;

/// The least memory a store works in, bytes.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// A value over this part of the memory budget is refused.
pub const VALUE_MEMORY_PART: u64 = 8;

/// Values of this length or more leave the tree: their keys' entries point into value files. A value
/// of one page more costs a read of its own; from four pages on what merges save is worth it.
pub const VALUE_APART_BYTES: usize = 16 << 10;

/// The most pages in one run: a block's compressed form never exceeds it.
pub const RUN_PAGES_MAX: usize = 1 << 15;

/// The most pages in one table: page numbers are 32 bits.
pub const TABLE_PAGES_MAX: u64 = u32::MAX as u64;

// One entry, headers and the worst expansion of a codec (an eighth, generously) fit a run.
const _: () =
    assert!((VALUE_BYTES_MAX + KEY_BYTES_MAX) / 8 * 9 + PAGE_BYTES <= RUN_PAGES_MAX * PAGE_BYTES);
// Every permitted single write fits a batch.
const _: () = assert!(VALUE_BYTES_MAX + KEY_BYTES_MAX + PAGE_BYTES <= BATCH_BYTES_MAX);
// A batch's length fits the log's 28-bit length field.
const _: () = assert!(BATCH_BYTES_MAX < 1 << 28);

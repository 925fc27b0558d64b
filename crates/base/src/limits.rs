//! All limits of a store. Assertions below prove the relations between them at compile time.

/// The unit of storage and caching, bytes.
pub const PAGE_BYTES: usize = 4096;

/// The longest key, bytes. The shortest is one byte.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value, bytes. A value may be empty.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// The largest encoded write batch, bytes: room for one value of any size, or for many small ones.
pub const BATCH_BYTES_MAX: usize = 128 << 20;

/// The most operations in one write batch.
pub const BATCH_OPS_MAX: usize = 1 << 20;

/// The longest keyspace name, bytes of UTF-8.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// The shortest window of a hashed keyspace, bytes.
pub const WINDOW_BYTES_MIN: u64 = 64 << 10;

/// The longest name of a merge operator, bytes of UTF-8.
pub const OPERATOR_NAME_BYTES_MAX: usize = 255;

/// The most keyspaces in one store. The manifest and each flush list all of them.
pub const KEYSPACES_MAX: usize = 1024;

/// The smallest memory limit that a store accepts, bytes.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// A value longer than the memory limit divided by this number is refused.
pub const VALUE_MEMORY_PART: u64 = 8;

/// Values of this length or more are separated: they are stored in value files, and their keys' entries
/// hold pointers. A separated value costs its own device read; from four pages on, the bytes that merges need
/// not rewrite outweigh that read.
pub const VALUE_APART_BYTES: usize = 16 << 10;

/// The most pages in one run of pages, which holds one compressed block.
pub const RUN_PAGES_MAX: usize = 1 << 15;

/// The most pages in one table: page numbers have 32 bits.
pub const TABLE_PAGES_MAX: u64 = u32::MAX as u64;

// Direct I/O and huge pages align to pages.
const _: () = assert!(PAGE_BYTES.is_power_of_two());
// A block with one entry fits, with its headers and an expansion by the codec of at most an eighth.
const _: () =
    assert!((VALUE_BYTES_MAX + KEY_BYTES_MAX) / 8 * 9 + PAGE_BYTES <= RUN_PAGES_MAX * PAGE_BYTES);
// Every single write of permitted size fits into a batch.
const _: () = assert!(VALUE_BYTES_MAX + KEY_BYTES_MAX + PAGE_BYTES <= BATCH_BYTES_MAX);
// A batch's length fits into the 28-bit length field of a log record.
const _: () = assert!(BATCH_BYTES_MAX < 1 << 28);

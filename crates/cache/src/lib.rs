//! The page cache: fixed 4 KiB frames holding pages as stored, keyed by table and page number.
//!
//! Level 2 (docs/ARCHITECTURE.md). Knows nothing of what a page means: the caller verifies a page
//! before it inserts it (I8), and must expect any page to be gone (I6).

mod balance;
mod blocks;
mod key;
mod page_cache;
mod page_queue;
pub mod rows;
mod shard;
mod statistics;

pub use balance::Balance;
pub use key::{PageKey, PageKind};
pub use page_cache::PageCache;
pub use rows::{RowCache, RowHit, RowOwner, RowStatistics};
pub use shard::Cached;
pub use statistics::{CacheStatistics, KindStatistics};

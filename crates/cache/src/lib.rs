//! The cache: pages as stored, in 4 KiB frames of DRAM; single rows in DRAM; and a lower tier of pages and
//! rows on storage-class memory.
//!
//! Level 2 (docs/ARCHITECTURE.md). The cache does not interpret pages: the caller verifies a page before it
//! inserts it (I8), and any page or row may be evicted at any time (I6).

mod attached_blocks;
mod balance;
pub mod curve;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hot_pages;
mod key;
mod live_files;
mod page_cache;
mod page_queue;
mod reuse;
pub mod rows;
pub mod scm;
mod shard;
mod statistics;
mod written_pages;

pub use balance::Balance;
pub use hot_pages::{HotFile, HotPages, HotRows};
pub use key::{PageKey, PageKind};
pub use live_files::LiveFile;
pub use page_cache::{Cached, PageCache, Stage};
pub use rows::{RowCache, RowHit, RowOwner, RowRefusals, RowStatistics};
pub use scm::{
    Placement, Prior, Refusals, RowSetStatistics, SCM_MAGIC, ScmHit, ScmOptions, ScmPage, ScmRead,
    ScmStatistics, ScmTier,
};

pub use statistics::{CacheStatistics, KindStatistics};
pub use written_pages::WrittenPages;

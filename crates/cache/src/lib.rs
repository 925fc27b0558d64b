//! The cache: fixed 4 KiB frames in DRAM that hold pages as stored, by file and page number; single rows;
//! and a second tier of pages below, on storage-class memory.
//!
//! Level 2 (docs/ARCHITECTURE.md). Knows nothing of what a page means: the caller verifies a page
//! before it inserts it (I8), and must expect any page to be gone (I6).

mod attached_blocks;
mod balance;
pub mod curve;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod key;
mod live_files;
mod page_cache;
mod page_queue;
mod reuse;
pub mod rows;
pub mod scm;
mod shard;
mod statistics;

pub use balance::Balance;
pub use key::{PageKey, PageKind};
pub use live_files::LiveFile;
pub use page_cache::{Cached, PageCache, Stage};
pub use rows::{RowCache, RowHit, RowOwner, RowStatistics};
pub use scm::{
    Placement, Prior, Refusals, RowSetStatistics, SCM_MAGIC, ScmHit, ScmOptions, ScmPage, ScmRead,
    ScmStatistics, ScmTier,
};

pub use statistics::{CacheStatistics, KindStatistics};

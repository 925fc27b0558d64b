//! Concurrent containers and raw memory: the ordered map of a memtable, the row in which writers
//! publish, and frames for pages.
//!
//! Level 1 (docs/ARCHITECTURE.md). `unsafe` is allowed here: raw memory from the operating system,
//! and structures that threads change at once, live in this crate and nowhere else. All of them
//! are used through safe interfaces.

mod attached_blocks;
mod chunk;
mod cursor;
mod entry;
mod evacuation;
mod frame;
mod frame_header;
mod frame_index;
mod frame_pool;
mod frame_set;
mod node;
mod ordered_map;
mod prefetch;
mod publish;
mod region;
mod region_pool;
mod stripe;
mod sync;
mod tag_buckets;
mod words;

pub use cursor::Cursor;
pub use evacuation::Evacuation;
pub use frame::{Frame, FrameBlock, FrameMut, Page};
pub use frame_header::FrameName;
pub use frame_index::FrameIndex;
pub use frame_pool::{FrameId, FramePool};
pub use ordered_map::{OrderedMap, ValueRef};
pub use prefetch::{prefetch, prefetch_all};
pub use publish::PublishRing;
pub use region_pool::RegionPool;
pub use tag_buckets::{Awaited, Bucket, Heat, Position, Removed, TagBuckets, TagEntry};
pub use words::{CHUNK_WORDS, WORD_BYTES, Words};

//! Concurrent containers and raw memory: the ordered map of a memtable, the ring that publishes batches in
//! seqno order, the frames that hold cached pages, and hash indexes of frames and rows.
//!
//! Level 1 (docs/ARCHITECTURE.md). This crate may use `unsafe`: it gets raw memory from the operating system
//! and holds structures that several threads change at the same time. Their public interfaces are safe.

mod attached_blocks;
mod chunk;
mod cursor;
mod entry;
mod evacuation;
mod frame;
mod frame_chunk;
mod frame_header;
mod frame_index;
mod frame_pool;
mod frame_pool_state;
mod frame_set;
mod node;
mod ordered_map;
mod prefetch;
mod publish;
mod region;
mod region_pool;
mod spare_region;
mod stripe;
mod sync;
mod tag_buckets;
mod words;

pub use cursor::Cursor;
pub use evacuation::Evacuation;
pub use frame::{Frame, FrameBlock, FrameMut, Page};
pub use frame_chunk::FrameId;
pub use frame_header::FrameName;
pub use frame_index::FrameIndex;
pub use frame_pool::FramePool;
pub use ordered_map::{OrderedMap, ValueRef};
pub use prefetch::{prefetch, prefetch_all};
pub use publish::PublishRing;
pub use region_pool::RegionPool;
pub use tag_buckets::{Awaited, Bucket, Heat, Position, Removed, TagBuckets, TagEntry};
pub use words::{CHUNK_WORDS, WORD_BYTES, Words};

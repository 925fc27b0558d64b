//! The read path below the tree: a read is a resumable [`ReadOp`] that asks for pages and never touches a
//! device itself.
//!
//! A [`PageReader`] gets the pages from DRAM, from the SCM tier, or from flash: one at a time on the calling
//! thread ([`PageReader::run`]), or many in flight from one thread ([`Queue`]). Cursors read ahead
//! ([`ReadAhead`]), and a seek reads from all runs at once (`parts.rs`).
//!
//! Level 4 (docs/ARCHITECTURE.md). The reads themselves, of a key or a range, are in the crate `tree`.

mod counters;
mod curves;
mod depth;
mod page_file;
mod page_reader;
mod parts;
mod queue;
mod queued_read;
mod read_ahead;
mod read_op;
mod ready;
mod tier_reader;

pub use counters::ReadCounters;
pub use curves::Curves;
pub use depth::Depth;
pub use page_file::PageFile;
pub use page_reader::{CACHED_RUN_PAGES_MAX, PageReader};
pub use queue::{Completed, Queue};
pub use queued_read::QueuedRead;
pub use read_ahead::ReadAhead;
pub use read_op::ReadOp;

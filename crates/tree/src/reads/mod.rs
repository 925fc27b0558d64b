//! Reads of keys and ranges. [`Lookup`] finds one key, [`MergingIter`] walks memtables and runs in key order;
//! both are resumable operations that ask a [`Reader`] for pages.

mod cursor;
mod filters_ahead;
mod iter;
mod lookup;
mod merging_iter;
mod range_delete_filter;
mod read_queue;
mod reader;
mod resolver;
mod rows;
mod source;
mod walk_bounds;

pub use cursor::{Cursor, CursorSource};
pub use iter::{Entry, Iter, KeyEntry, after_prefix, iterate, iterate_prefix};
pub use lookup::Lookup;
pub use merging_iter::{FastStep, MergingIter, Move};
pub(crate) use read_queue::start_row_ahead;
pub use read_queue::{QueuePool, ReadQueue, open_queue, reads_from, start_get};
pub use reader::Reader;
pub use resolver::Value;
pub use rows::{Probe, RowValue, Rows};

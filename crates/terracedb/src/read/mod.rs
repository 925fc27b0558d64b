//! Reads of keys and ranges, as resumable operations: [`Lookup`] finds one key, [`MergingIter`] walks many
//! sources in key order. Both ask a [`Reader`] for pages.

mod covers;
mod lookup;
mod merging_iter;
mod read_queue;
mod reader;
mod resolver;
mod rows;
mod source;

pub(crate) use lookup::Lookup;
pub(crate) use merging_iter::{FastStep, MergingIter, Move};
pub(crate) use read_queue::QueuePool;
pub use read_queue::ReadQueue;
pub(crate) use reader::Reader;
pub(crate) use resolver::Value;
pub(crate) use rows::{Probe, Rows};

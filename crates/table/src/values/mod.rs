//! Value files: files of separated values (key-value separation).
//!
//! A flush moves a value of [`base::limits::VALUE_APART_BYTES`] or more out of the tree: the entry of
//! its key holds a [`Pointer`](crate::Pointer), and merges move only pointers. A value file is
//! immutable, written in one stream, and exists as long as a table points into it. Each value is a run
//! of pages that begins with the value's key, so that a read can verify that it got the value of its
//! key. docs/format/values.md describes the format.

mod check;
mod footer;
mod head;
mod read;
#[cfg(test)]
mod tests;
mod writer;

pub use check::{ValueDamage, ValuesReport};
pub use footer::ValuesFooter;
pub use read::{ValueRead, Values};
pub use writer::{ValuesSpec, ValuesSummary, ValuesWriter};

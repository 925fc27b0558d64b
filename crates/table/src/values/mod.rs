//! Value files: long values, apart from their keys.
//!
//! A value of [`base::limits::VALUE_APART_BYTES`] or more leaves the tree when it is flushed: its
//! key's entry holds a [`Pointer`](crate::Pointer), and merges move pointers. A value file is
//! immutable, written in one stream, and lives for as long as a table points into it. Each value is a
//! run of pages with its key before it, so that a read can tell that it met the value it came for.
//! The format is in docs/format/values.md.

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

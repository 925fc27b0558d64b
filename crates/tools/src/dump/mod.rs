//! The stream format of a dump: every keyspace of a store with its options and its live entries, independent
//! of the formats of tables, log and manifest. Byte format: docs/format/dump.md.
//!
//! [`DumpWriter`] writes one front to back, [`DumpReader`] reads it and verifies each frame before it passes
//! on an entry. Neither seeks, so a dump may be a pipe. Memory: one frame.

mod frame;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use reader::{DumpItem, DumpReader};
pub use writer::DumpWriter;

/// A keyspace of a dump: its name, and the names and values of the options to create it with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpedKeyspace {
    /// The name of the keyspace.
    pub name: String,
    /// Its options, as `KeyspaceOptions::to_pairs` returns them.
    pub options: Vec<(String, String)>,
}

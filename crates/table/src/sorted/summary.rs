//! The summary of a finished table.

use std::ops::Range;

use base::TableId;

use super::properties::Properties;

/// Summary of a finished table, for the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The table.
    pub table: TableId,
    /// Length of its file, bytes.
    pub file_bytes: u64,
    /// Number of pages in its file.
    pub pages: u32,
    /// The hash of the checksums of all pages except footers.
    pub digest: u64,
    /// The properties that the table stores.
    pub properties: Properties,
    /// The pages with hot keys ([`Writer::set_hot`](super::Writer::set_hot)), including their metadata pages:
    /// ascending, disjoint and not adjacent.
    pub hot: Vec<Range<u32>>,
}

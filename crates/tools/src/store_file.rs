//! What the files of a store are, as their names say.

use base::{DictionaryId, TableId};
use table::Dictionary;

/// The kind of a store's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFile {
    /// Names the others.
    Manifest,
    /// A segment of the commit log.
    Segment,
    /// Immutable, of sealed pages.
    Table(TableId),
    /// Immutable, of sealed pages: long values.
    Values(TableId),
    /// Immutable.
    Dictionary(DictionaryId),
}

impl StoreFile {
    /// The file called `name`; `None` where it is none of a store's.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if let Some(table) = table::parse_file_name(name) {
            Some(Self::Table(table))
        } else if let Some(values) = table::parse_values_file_name(name) {
            Some(Self::Values(values))
        } else if let Some(dictionary) = Dictionary::parse_file_name(name) {
            Some(Self::Dictionary(dictionary))
        } else if wal::parse_segment_name(name).is_some() {
            Some(Self::Segment)
        } else {
            manifest::parse_file_name(name).map(|_| Self::Manifest)
        }
    }
}

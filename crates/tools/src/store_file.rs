//! Kinds of a store's files, by their names.

use base::{DictionaryId, TableId};
use manifest::KeyspaceFile;
use table::Dictionary;

/// A file of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFile {
    /// A manifest, which names the other files.
    Manifest,
    /// A segment of the log.
    Segment,
    /// A table: immutable sealed pages.
    Table(TableId),
    /// A value file: immutable sealed pages of separated values.
    Values(TableId),
    /// A dictionary: immutable.
    Dictionary(DictionaryId),
    /// The file of a keyspace, which an open writes: no copy has it.
    Keyspace,
}

impl StoreFile {
    /// Parses a file name; `None` if it is not the name of a store's file.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if let Some(table) = table::parse_file_name(name) {
            Some(Self::Table(table))
        } else if let Some(values) = table::parse_values_file_name(name) {
            Some(Self::Values(values))
        } else if let Some(dictionary) = Dictionary::parse_file_name(name) {
            Some(Self::Dictionary(dictionary))
        } else if wal::parse_segment_name(name).is_some() {
            Some(Self::Segment)
        } else if KeyspaceFile::parse_file_name(name).is_some() {
            Some(Self::Keyspace)
        } else {
            manifest::parse_file_name(name).map(|_| Self::Manifest)
        }
    }
}

/// Whether `name` is that of a manifest: a copy is a store once it has one.
pub(crate) fn is_manifest(name: &str) -> bool {
    StoreFile::of(name) == Some(StoreFile::Manifest)
}

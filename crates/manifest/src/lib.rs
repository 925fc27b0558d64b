//! The manifest: a log of edits that states which keyspaces, tables, value files and dictionaries make up a
//! store. Byte format: docs/format/manifest.md.
//!
//! The manifest in force is the file with the highest number whose first record is intact. A new manifest
//! begins with one record that holds the whole state; the file is synced before older ones are removed. Every
//! change is one record, synced before the store relies on it (I3). A failed append poisons the manifest,
//! because the bytes on the device are unknown until the store is opened again.
//!
//! Level 4 (docs/ARCHITECTURE.md).

mod edit;
mod frame;
#[cfg(test)]
mod hashed_tests;
mod header;
mod keyspace;
mod keyspace_file;
mod keyspace_kind;
mod manifest;
mod name;
mod reader;
mod salvage;
mod show;
mod state;
#[cfg(test)]
mod state_tests;
mod table_entry;
mod table_options;
#[cfg(test)]
mod tests;
mod values_entry;

pub use edit::{Edit, ScrubPosition};
pub use keyspace::{KeyspaceEntry, LivePiece, LiveTable, LiveValues};
pub use keyspace_file::KeyspaceFile;
pub use keyspace_kind::{BASE_FILTER_BITS_MAX, KeyspaceKind};
pub use manifest::{Manifest, encode};
pub use name::{file_name, is_file_name, parse_file_name};
pub use reader::{ManifestRecord, Recovered, inspect, recover};
pub use salvage::{Salvage, salvage_state};
pub use state::ManifestState;
pub use table_entry::{TableEntry, range_of};
pub use table_options::TableOptions;
pub use values_entry::ValuesEntry;

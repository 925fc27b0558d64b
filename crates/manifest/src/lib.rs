//! The manifest: which keyspaces, tables, value files and dictionaries a store has, as a log of edits.
//! Bytes: docs/format/manifest.md.
//!
//! One manifest is in force: the file with the highest number whose first record is good. A new one begins
//! with the whole state in one record and is synced before older ones are removed. Every change is one
//! record, synced before anyone relies on it (I3). A failed append poisons the manifest: what the device
//! holds is unknown until the store is opened again.
//!
//! Level 4 (docs/ARCHITECTURE.md).

#![expect(
    missing_docs,
    reason = "this crate was cut out of a larger one; its words are written next"
)]

mod edit;
mod frame;
mod header;
mod manifest;
mod name;
mod reader;
mod salvage;
mod show;
mod state;
#[cfg(test)]
mod state_tests;
mod table_entry;
#[cfg(test)]
mod tests;
mod values_entry;

pub use edit::{Edit, KeyspaceKind, ScrubPosition};
pub use manifest::{Manifest, encode};
pub use name::{file_name, is_file_name, parse_file_name};
pub use reader::{InForce, ManifestRecord, Recovered, inspect, recover};
pub use salvage::salvage_state;
pub use state::{KeyspaceEntry, LivePiece, LiveTable, LiveValues, ManifestState};
pub use table_entry::{TableEntry, range_of};
pub use values_entry::ValuesEntry;

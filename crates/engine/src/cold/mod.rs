//! Cold tables: the oldest tables of a store live in an object store, and the caches are their cache.
//!
//! A table is a candidate once nothing older lies below it and it has been so for a time
//! ([`ColdConfig::after`]). [`ColdTask`] uploads it ([`upload`]), states that in the manifest, and switches
//! its open file ([`media::Cold`]); only then the local file is removed. Readers, merges and copies keep the
//! name of the local file and do not know the difference. A cold table that a merge made obsolete is removed
//! from the object store after the manifest stopped naming it.
//!
//! A prefix of an object store belongs to one store ([`claim`]): the newest process that has opened it. Files
//! that the manifest does not name are removed when a process claims the prefix. Names are never used again.
//!
//! After every crash: the manifest names a table once its object is complete and verified, so an upload that
//! was not finished is an orphan and the local file is in force; a local file that the manifest does not name
//! any more is removed at the next open.

mod claim;
mod config;
mod due;
mod status;
mod task;
mod upload;

pub use config::ColdConfig;
use due::Due;
pub use status::{ColdStatistics, ColdStatus};
pub(crate) use task::{ColdTask, Work};

use std::collections::BTreeMap;

use base::TableId;
use manifest::ManifestState;
use media::ColdName;

/// The name of an object store's file with the content of `table`. `nonce` is drawn by the process, and
/// `number` counts its uploads.
pub(crate) fn cold_file_name(table: TableId, nonce: u64, number: u64) -> String {
    format!("{}.{nonce:016x}.{number}", table::file_name(table))
}

/// Whether `name` is one that [`cold_file_name`] gives.
pub(crate) fn is_cold_file_name(name: &str) -> bool {
    let mut parts = name.rsplitn(3, '.');
    let number = parts.next().is_some_and(|number| number.parse::<u64>().is_ok());
    let nonce = parts.next().is_some_and(|nonce| nonce.len() == 16);
    number && nonce && parts.next().is_some_and(|table| table::parse_file_name(table).is_some())
}

/// The cold names of the store with this state.
pub(crate) fn cold_names(state: &ManifestState) -> BTreeMap<String, ColdName> {
    let named = state.cold_tables().map(|(table, len, file)| {
        (table::file_name(table), ColdName { file: file.to_string(), len })
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cold_files_have_one_form() {
        let name = cold_file_name(TableId(7), 0xab, 12);
        assert_eq!(name, "00000000000000000007.table.00000000000000ab.12");
        assert!(is_cold_file_name(&name));
        for other in
            ["7.table.00000000000000ab.12", "store-1", "00000000000000000007.table", "a.b.c"]
        {
            assert!(!is_cold_file_name(other), "{other}");
        }
    }
}

//! Gives back memory of tables that merges cut in part.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{KeyRange, TableId};
use table::Table;

use crate::Version;

/// Gives back the memory that `tables` pin for keys which they have no more in `version`. Readers of earlier
/// versions get by without. It does not have to succeed: the tables go with later merges.
pub(crate) fn trim_tables(version: &Version, tables: &[TableId]) {
    let mut live: BTreeMap<TableId, (&Arc<Table>, Vec<KeyRange>)> = BTreeMap::new();
    for piece in version.pieces().filter(|piece| tables.contains(&piece.entry().id)) {
        let Ok(table) = piece.table() else { continue };
        let (_, ranges) = live.entry(table.id()).or_insert((table, Vec::new()));
        ranges.push(piece.range().clone());
    }
    for (table, ranges) in live.into_values() {
        debug_assert!(ranges.iter().all(|range| !range.is_empty()), "a piece of a table has keys");
        let _ = table.trim(&ranges);
    }
}

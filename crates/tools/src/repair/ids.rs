//! Ids of the files that a repair writes.

use base::TableId;

/// The lowest id after `id`.
pub(crate) const fn after_id(id: TableId) -> TableId {
    TableId(id.0.saturating_add(1))
}

/// Returns an id that no table or value file had.
pub(crate) fn next_id(below: &mut TableId) -> TableId {
    let id = *below;
    *below = after_id(id);
    id
}

//! Numbered batches, the contents that result from a prefix of them, and the last batch of a store.

use base::Result;
use terracedb::Db;

use super::{Cells, Change};

/// The keyspace to which each batch writes its number.
pub(super) const JOURNAL: &str = "journal";

/// The key with the number of the last write: in the journal, or in a keyspace that was ingested into.
pub(super) const LAST: &str = "last";

/// Identifies a keyspace from its creation to its drop.
pub(super) type Incarnation = u64;

/// The keyspace and the change of one operation.
pub(super) type Op = (Incarnation, Change);

/// The operations of one atomic write.
#[derive(Clone)]
pub(super) struct Batch {
    /// Unique per batch, also among batches that were attempts at the same number.
    pub(super) attempt: u64,
    pub(super) ops: Vec<Op>,
}

/// Applies the operations of `batch` on one keyspace to `cells`.
pub(super) fn apply(cells: &mut Cells, batch: &Batch, incarnation: Incarnation) {
    let own = batch.ops.iter().filter(|(of, _)| *of == incarnation);
    own.for_each(|(_, change)| cells.apply(change));
}

/// The contents of one keyspace after `batches`.
pub(super) fn cells_of(batches: &[Batch], incarnation: Incarnation) -> Cells {
    let mut cells = Cells::default();
    batches.iter().for_each(|batch| apply(&mut cells, batch, incarnation));
    cells
}

/// The number and the attempt of the store's last batch.
pub(super) fn last_of(db: &Db) -> Result<(usize, u64)> {
    let mut last = (0, 0);
    for keyspace in db.keyspaces() {
        if let Some(last_write) = keyspace.get(LAST)? {
            let (number, attempt) =
                std::str::from_utf8(&last_write).unwrap().split_once(' ').unwrap();
            last = last.max((number.parse().unwrap(), attempt.parse().unwrap()));
        }
    }
    Ok(last)
}

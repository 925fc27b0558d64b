//! Numbered batches, what a prefix of them adds up to, and which of them was a store's last.

use base::Result;
use terracedb::Db;

use super::{Cells, Change};

/// The keyspace that each batch writes its number to.
pub(super) const JOURNAL: &str = "journal";

/// The key that says which write was the last: in the journal, and in a keyspace with an ingest.
pub(super) const LAST: &str = "last";

/// A keyspace from its creation to its drop.
pub(super) type Incarnation = u64;

/// One operation of a batch, and where.
pub(super) type Op = (Incarnation, Change);

/// What one writer wrote at once.
#[derive(Clone)]
pub(super) struct Batch {
    /// No two batches have the same, and no two that took the same place.
    pub(super) attempt: u64,
    pub(super) ops: Vec<Op>,
}

/// Has `cells` hold what `batch` does to one keyspace.
pub(super) fn apply(cells: &mut Cells, batch: &Batch, incarnation: Incarnation) {
    let own = batch.ops.iter().filter(|(of, _)| *of == incarnation);
    own.for_each(|(_, change)| cells.apply(change));
}

/// What `batches` add up to in one keyspace.
pub(super) fn cells_of(batches: &[Batch], incarnation: Incarnation) -> Cells {
    let mut cells = Cells::default();
    batches.iter().for_each(|batch| apply(&mut cells, batch, incarnation));
    cells
}

/// The number of the store's last batch, and which attempt it was.
pub(super) fn last_of(db: &Db) -> Result<(usize, u64)> {
    let mut last = (0, 0);
    for keyspace in db.keyspaces() {
        if let Some(told) = keyspace.get(LAST)? {
            let (number, attempt) = std::str::from_utf8(&told).unwrap().split_once(' ').unwrap();
            last = last.max((number.parse().unwrap(), attempt.parse().unwrap()));
        }
    }
    Ok(last)
}

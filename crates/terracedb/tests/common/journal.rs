//! Numbered batches, what a prefix of them adds up to, and which of them was a store's last.

use base::Result;
use terracedb::Db;

use super::{Cells, Change};

/// The keyspace that each batch writes its number to.
pub(super) const JOURNAL: &str = "journal";

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
    let Some(journal) = db.existing_keyspace(JOURNAL) else { return Ok((0, 0)) };
    let Some(last) = journal.get("last")? else { return Ok((0, 0)) };
    let text = std::str::from_utf8(&last).unwrap();
    let (number, attempt) = text.split_once(' ').unwrap();
    Ok((number.parse().unwrap(), attempt.parse().unwrap()))
}

//! The order walk of a check: verifies that newer data lies above older data (I4), which reads rely on. The
//! tables of a run do not overlap, and every version of a key in a run is newer than all versions of it in
//! the runs below.
//!
//! Ranges of sequence numbers alone do not prove the order: a merge of a slice puts new sequence numbers into
//! an old run for the keys of its slice, and leaves older numbers of other keys in the runs above. So if a
//! table may break the order, by its keys and sequence numbers, it is compared with the table below key by
//! key, range deletes included. Tables that no partial merge touched are not read for that.
//!
//! Memory: two open tables and a block of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, KeyRange, Result, RunId, Seqno, StoreId};
use manifest::{KeyspaceEntry, LivePiece, TableEntry};
use media::Purpose;
use table::{
    Bounds, PinnedRangeDeletes, Step, StoreDictionaries, Table, TableCursor, file_name, reread,
};

use super::Walk;
use super::table_walk::Owner;

/// The pieces of a run in key order, with their tables.
type Pieces<'a> = Vec<(&'a LivePiece, &'a TableEntry)>;

impl Walk<'_> {
    /// Checks the order of the tables of `keyspace`.
    pub(super) fn order(
        &mut self,
        store: StoreId,
        keyspace: &KeyspaceEntry,
        dictionaries: &Arc<StoreDictionaries>,
    ) -> Result<()> {
        let runs = runs(keyspace);
        for (entry, error) in overlaps(&runs) {
            self.report.note(Owner::of(keyspace, entry).problem(error));
        }
        for (run, pieces) in &runs {
            for upper in pieces {
                let mut open = None;
                for (lower, range) in suspects(&runs, *run, upper) {
                    if open.is_none() {
                        open = self.open(store, upper.1, dictionaries)?;
                    }
                    // Damage is skipped here: the table walk reports it.
                    let Some(above) = &open else { break };
                    let Some(below) = self.open(store, lower, dictionaries)? else { continue };
                    match misplaced(above, &below, &range) {
                        Ok(None) => {}
                        Ok(Some((key, error))) => {
                            let owner = Owner::of(keyspace, upper.1);
                            let mut problem = owner.problem(error);
                            problem.keys = Some((key.clone(), key));
                            self.report.note(problem);
                        }
                        Err(error) if error.is_retryable() => return Err(error),
                        Err(_) => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens a table; `None` if it is damaged or missing.
    fn open(
        &self,
        store: StoreId,
        entry: &TableEntry,
        dictionaries: &Arc<StoreDictionaries>,
    ) -> Result<Option<Arc<Table>>> {
        if self.listed(&file_name(entry.id)).is_none() {
            return Ok(None);
        }
        let (bytes, dictionaries) = (Some(entry.file_bytes), Arc::clone(dictionaries) as _);
        let (medium, account) = (&**self.medium, &self.account);
        match Table::open(medium, store, entry.id, bytes, entry.seqno, dictionaries, account) {
            Ok(table) => Ok(Some(table)),
            Err(error) if error.is_retryable() => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// The runs of a keyspace.
fn runs(keyspace: &KeyspaceEntry) -> BTreeMap<RunId, Pieces<'_>> {
    let mut runs: BTreeMap<RunId, Pieces<'_>> = BTreeMap::new();
    for table in keyspace.tables.values() {
        for piece in &table.pieces {
            runs.entry(piece.run).or_default().push((piece, &table.entry));
        }
    }
    for pieces in runs.values_mut() {
        pieces.sort_by(|(one, _), (other, _)| one.range.first.cmp(&other.range.first));
    }
    runs
}

/// Tables that overlap the table before them in their run.
fn overlaps<'a>(runs: &BTreeMap<RunId, Pieces<'a>>) -> Vec<(&'a TableEntry, Error)> {
    let pairs = runs.values().flat_map(|pieces| pieces.iter().zip(pieces.iter().skip(1)));
    let bad = pairs.filter(|((left, _), (right, _))| left.range.overlaps(&right.range));
    bad.map(|((_, left), (_, right))| {
        let error = Error::corrupt("tables of a run (I4)");
        (*right, error.expected(format_args!("keys after table {}", left.id)).got("an overlap"))
    })
    .collect()
}

/// The tables in runs below `run` that may hold a newer version than `upper` of a key of both, each with the
/// range of their common keys.
fn suspects<'a>(
    runs: &BTreeMap<RunId, Pieces<'a>>,
    run: RunId,
    (upper, entry): &(&'a LivePiece, &'a TableEntry),
) -> impl Iterator<Item = (&'a TableEntry, KeyRange)> {
    let (range, oldest) = (&upper.range, entry.seqno_min);
    runs.range(..run).flat_map(move |(_, pieces)| {
        let from = pieces.partition_point(|(piece, _)| piece.range.is_before(range));
        let reached = pieces.iter().skip(from);
        reached
            .take_while(|(piece, _)| range.is_end_after(&piece.range.first))
            .filter(move |(piece, lower)| lower.seqno_max > oldest && piece.range.overlaps(range))
            .map(|(piece, lower)| (*lower, piece.range.intersection(range)))
    })
}

/// The first key in `range` of which `below` has a newer version than the oldest in `above`. Equal sequence
/// numbers are the same version: a repair leaves such tables if it does not know which keys were cut out of
/// them.
fn misplaced(
    above: &Arc<Table>,
    below: &Arc<Table>,
    range: &KeyRange,
) -> Result<Option<(Vec<u8>, Error)>> {
    let (mut upper, mut lower) = (Side::new(above, range)?, Side::new(below, range)?);
    upper.next()?;
    lower.next()?;
    loop {
        let key = match (&upper.at, &lower.at) {
            (Some(one), Some(other)) => one.key.as_slice().min(&other.key),
            (Some(one), None) => &one.key,
            (None, Some(other)) => &other.key,
            (None, None) => return Ok(None),
        };
        if let (Some((oldest, _)), Some((_, newest))) = (upper.numbers(key), lower.numbers(key))
            && newest > oldest
        {
            let error = Error::corrupt("order of tables (I4)");
            let error = error.expected(format_args!("only above {newest}, in {}", below.id()));
            return Ok(Some((key.to_vec(), error.got(oldest))));
        }
        let (first, second) = (upper.is_at(key), lower.is_at(key));
        if first {
            upper.next()?;
        }
        if second {
            lower.next()?;
        }
    }
}

/// A table that is walked key by key.
struct Side {
    cursor: TableCursor,
    range_deletes: Arc<PinnedRangeDeletes>,
    started: bool,
    /// The current key; `None` at the end.
    at: Option<Versions>,
}

/// The sequence numbers of a key's versions.
struct Versions {
    key: Vec<u8>,
    oldest: Seqno,
    newest: Seqno,
}

impl Side {
    fn new(table: &Arc<Table>, range: &KeyRange) -> Result<Self> {
        let cursor = TableCursor::with_bounds(Arc::clone(table), Bounds::from(range));
        let range_deletes = table.range_deletes()?;
        Ok(Self { cursor, range_deletes, started: false, at: None })
    }

    /// Advances to the next key.
    fn next(&mut self) -> Result<()> {
        if !self.started {
            self.started = true;
            self.cursor.seek_first();
            self.arrive()?;
        }
        // The buffer of the previous key is reused.
        let mut key = self.at.take().map(|before| before.key).unwrap_or_default();
        let Some(newest) = self.cursor.trailer() else { return Ok(()) };
        key.clear();
        key.extend_from_slice(self.cursor.key());
        let mut oldest = newest;
        while let Some(trailer) = self.cursor.trailer().filter(|_| self.cursor.key() == key) {
            oldest = trailer;
            self.cursor.next();
            self.arrive()?;
        }
        self.at = Some(Versions { key, oldest: oldest.seqno(), newest: newest.seqno() });
        Ok(())
    }

    fn is_at(&self, key: &[u8]) -> bool {
        self.at.as_ref().is_some_and(|at| at.key == key)
    }

    /// The oldest and newest sequence number of the table's versions and range deletes of `key`; `None` if it
    /// has none. `key` must not lie behind the current key.
    fn numbers(&self, key: &[u8]) -> Option<(Seqno, Seqno)> {
        debug_assert!(
            self.at.as_ref().is_none_or(|at| at.key.as_slice() >= key),
            "keys are compared before a side passes them"
        );
        let versions = self.at.as_ref().filter(|at| at.key == key);
        let versions = versions.map(|at| (at.oldest, at.newest));
        let deletes = self.range_deletes.fragment_at(key);
        let deletes = deletes.and_then(|it| Some((*it.seqnos.last()?, *it.seqnos.first()?)));
        match (versions, deletes) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        }
    }

    /// Steps the cursor until it has reached its position, reading the pages that it asks for.
    fn arrive(&mut self) -> Result<()> {
        let mut supplied = None;
        while let Step::Need(span) = self.cursor.step(supplied.take())? {
            let read = || self.cursor.table().read(span, Purpose::Scrub);
            supplied = Some(read().or_else(|first| reread(first, read))?);
        }
        Ok(())
    }
}

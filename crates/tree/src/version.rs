//! The tables of an ordered keyspace at one moment: immutable, shared, arranged for lookup.
//!
//! Tables are arranged in runs: within a run no two tables overlap in keys, so that one binary
//! search finds the only candidate, and where two tables overlap the newer sits in the higher run
//! (I4). Data written in key order makes one run, whatever the number of tables.
//!
//! A run holds [`Piece`]s: a table file and the range in which its keys count. A merge of a part of
//! a table leaves the rest in place, cut; one file may have several pieces.

use std::sync::{Arc, OnceLock};

use base::{Error, Result, RunId, TableId};
use table::{Bounds, Table, TableCursor};

use crate::{TableFile, ValueFile};
use base::KeyRange;
use manifest::TableEntry;

/// A part of a table, or all of it.
#[derive(Debug)]
pub struct Piece {
    file: Arc<TableFile>,
    range: KeyRange,
    level: u8,
}

impl Piece {
    pub fn new(file: Arc<TableFile>, range: KeyRange, level: u8) -> Arc<Self> {
        Arc::new(Self { file, range, level })
    }

    /// All of a table.
    pub fn whole(file: Arc<TableFile>) -> Arc<Self> {
        let TableEntry { range, level, .. } = &**file.entry();
        let (range, level) = (range.clone(), *level);
        Self::new(file, range, level)
    }

    /// 0 for what a flush wrote, and a merge of little of that; other outputs of merges lie deeper.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// What is left of it without the keys in `cut`.
    fn without(&self, cut: &KeyRange) -> impl Iterator<Item = Arc<Self>> {
        let part =
            |range| Arc::new(Self { file: Arc::clone(&self.file), range, level: self.level });
        self.range.subtract(cut).into_iter().map(part)
    }

    /// The table.
    ///
    /// # Errors
    /// Why it could not be opened: reads of its key range cannot be answered.
    pub fn table(&self) -> Result<&Arc<Table>> {
        self.file.table()
    }

    /// A cursor over the keys of the table that count.
    ///
    /// # Errors
    /// As [`Piece::table`].
    pub fn cursor(&self) -> Result<TableCursor> {
        let table = Arc::clone(self.table()?);
        if self.range == self.entry().range {
            return Ok(TableCursor::new(table));
        }
        Ok(TableCursor::with_bounds(table, Bounds::from(&self.range)))
    }

    pub fn file(&self) -> &Arc<TableFile> {
        &self.file
    }

    pub fn entry(&self) -> &Arc<TableEntry> {
        self.file.entry()
    }

    /// The keys that count: no others of the table are in the tree by this piece.
    pub fn range(&self) -> &KeyRange {
        &self.range
    }
}

/// Pieces that do not overlap, by key.
#[derive(Clone, Debug)]
pub struct Run {
    id: RunId,
    pieces: Vec<Arc<Piece>>,
    /// Whether a table has range deletes, once someone asked.
    has_range_deletes: OnceLock<bool>,
}

impl Run {
    fn new(id: RunId, pieces: Vec<Arc<Piece>>) -> Self {
        Self { id, pieces, has_range_deletes: OnceLock::new() }
    }

    pub fn id(&self) -> RunId {
        self.id
    }

    /// The only piece of the run that may hold `key`.
    pub fn find(&self, key: &[u8]) -> Option<&Arc<Piece>> {
        let piece = self.pieces.get(self.at_or_after(key))?;
        (*piece.range.first <= *key).then_some(piece)
    }

    /// The position of the first piece that holds `key` or later keys.
    pub fn at_or_after(&self, key: &[u8]) -> usize {
        self.pieces.partition_point(|piece| !piece.range.is_end_after(key))
    }

    pub fn pieces(&self) -> &[Arc<Piece>] {
        &self.pieces
    }

    /// Whether a table has range deletes.
    pub fn has_range_deletes(&self) -> bool {
        let has =
            |piece: &Arc<Piece>| piece.table().is_ok_and(|table| !table.range_deletes().is_empty());
        *self.has_range_deletes.get_or_init(|| self.pieces.iter().any(has))
    }

    /// The pieces with keys in `range`.
    pub fn overlapping(&self, range: &KeyRange) -> &[Arc<Piece>] {
        let from = self.pieces.get(self.at_or_after(&range.first)..).unwrap_or_default();
        let count = from.partition_point(|piece| range.is_end_after(&piece.range.first));
        from.get(..count).unwrap_or_default()
    }

    fn overlaps(&self, range: &KeyRange) -> bool {
        !range.is_empty() && !self.overlapping(range).is_empty()
    }

    /// Adds `piece`, where nothing of the run lies.
    fn insert(&mut self, piece: Arc<Piece>) {
        debug_assert!(!self.overlaps(&piece.range), "{piece:?} overlaps its run {:?}", self.id);
        let at = self.at_or_after(&piece.range.first);
        self.pieces.insert(at, piece);
        self.has_range_deletes = OnceLock::new();
    }
}

/// What a merge, a move or a drop made of a version: one key range of consecutive runs, replaced.
#[derive(Debug)]
pub struct Change {
    /// The newest and the oldest run, and the keys, of what is replaced.
    pub rectangle: Rectangle,
    /// Files of the rectangle whose keys within it go.
    pub inputs: Vec<TableId>,
    /// What takes their place, with the run of each.
    pub outputs: Vec<(RunId, Arc<Piece>)>,
}

/// A key range of consecutive runs: what one job works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rectangle {
    pub oldest: RunId,
    pub newest: RunId,
    pub range: KeyRange,
    /// About what the job takes in, and may write.
    pub bytes: u64,
}

impl Rectangle {
    pub fn overlaps(&self, other: &Self) -> bool {
        self.oldest <= other.newest
            && other.oldest <= self.newest
            && self.range.overlaps(&other.range)
    }

    pub fn holds(&self, run: RunId) -> bool {
        self.oldest <= run && run <= self.newest
    }
}

/// The tables of a keyspace.
#[derive(Clone, Debug, Default)]
pub struct Version {
    /// Newest run first; none of them empty.
    runs: Vec<Arc<Run>>,
    /// No run had a higher id: a run that is emptied does not give its id to another.
    newest: RunId,
}

impl Version {
    /// The version with these pieces in these runs.
    ///
    /// # Errors
    /// `Corrupt` where two pieces of a run overlap: a lookup would miss one of them.
    pub fn from_pieces(mut pieces: Vec<(RunId, Arc<Piece>)>) -> Result<Self> {
        pieces.sort_by(|(run_a, a), (run_b, b)| {
            run_b.cmp(run_a).then_with(|| a.range.first.cmp(&b.range.first))
        });
        let mut version = Self::default();
        for (id, piece) in pieces {
            match version.runs.last_mut().filter(|run| run.id == id) {
                Some(run) => {
                    let before = run.pieces.last();
                    if let Some(before) = before.filter(|it| it.range.overlaps(&piece.range)) {
                        return Err(Error::corrupt("tables of a run (I4)")
                            .expected(format_args!("keys after table {}", before.entry().id))
                            .got(format_args!("table {} from {}", piece.entry().id, piece.range)));
                    }
                    Arc::make_mut(run).pieces.push(piece);
                }
                None => version.runs.push(Arc::new(Run::new(id, vec![piece]))),
            }
            version.newest = version.newest.max(id);
        }
        Ok(version)
    }

    /// The runs, newest first: for one key, an earlier run holds newer data (I4).
    pub fn runs(&self) -> &[Arc<Run>] {
        &self.runs
    }

    pub fn run(&self, id: RunId) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// Every piece, in no particular order.
    pub fn pieces(&self) -> impl Iterator<Item = &Arc<Piece>> {
        self.runs.iter().flat_map(|run| &run.pieces)
    }

    /// Every table file, by id.
    pub fn files(&self) -> Vec<&Arc<TableFile>> {
        let mut files: Vec<_> = self.pieces().map(|piece| &piece.file).collect();
        files.sort_unstable_by_key(|file| file.entry().id);
        files.dedup_by_key(|file| file.entry().id);
        files
    }

    /// Every value file that a table points into, by id.
    pub fn value_files(&self) -> Vec<&Arc<ValueFile>> {
        let mut files: Vec<_> = self.files().into_iter().flat_map(|file| file.values()).collect();
        files.sort_unstable_by_key(|file| file.id());
        files.dedup_by_key(|file| file.id());
        files
    }

    /// The run for a table over `range` that is newer than all of this version: the oldest one it
    /// can join, since every run it overlaps must stay below. The `busy` rectangles count as full
    /// of keys: what is being merged within them comes back anywhere in them, in their oldest run.
    pub fn place_newest(&self, range: &KeyRange, busy: &[Rectangle]) -> RunId {
        let blocked = self.runs.iter().find(|run| run.overlaps(range)).map(|run| run.id);
        let busy = busy.iter().filter(|it| it.range.overlaps(range)).map(|it| it.newest);
        let blocked = blocked.into_iter().chain(busy).max();
        let above = self.runs.iter().rev().find(|run| blocked.is_none_or(|it| run.id > it));
        above.map_or(RunId(self.newest.0 + 1), |run| run.id)
    }

    /// This version with `piece` added to the run `id`.
    pub fn with_piece(&self, id: RunId, piece: Arc<Piece>) -> Self {
        let mut runs = self.runs.clone();
        insert(&mut runs, id, piece);
        Self { runs, newest: self.newest.max(id) }
    }

    /// This version after `change`.
    pub fn with_change(&self, change: &Change) -> Self {
        let Change { rectangle, inputs, outputs } = change;
        let mut runs: Vec<Arc<Run>> = Vec::with_capacity(self.runs.len() + 1);
        for run in &self.runs {
            if !rectangle.holds(run.id) || !run.overlaps(&rectangle.range) {
                runs.push(Arc::clone(run));
                continue;
            }
            let left = run.pieces.iter().flat_map(|piece| {
                if !inputs.contains(&piece.entry().id) {
                    return vec![Arc::clone(piece)];
                }
                piece.without(&rectangle.range).collect()
            });
            let pieces: Vec<_> = left.collect();
            if !pieces.is_empty() {
                runs.push(Arc::new(Run::new(run.id, pieces)));
            }
        }
        for (id, piece) in outputs {
            insert(&mut runs, *id, Arc::clone(piece));
        }
        Self { runs, newest: self.newest }
    }
}

/// Adds `piece` to the run `id`, which is made where there is none.
fn insert(runs: &mut Vec<Arc<Run>>, id: RunId, piece: Arc<Piece>) {
    let at = runs.partition_point(|run| run.id > id);
    match runs.get_mut(at).filter(|run| run.id == id) {
        Some(run) => Arc::make_mut(run).insert(piece),
        None => runs.insert(at, Arc::new(Run::new(id, vec![piece]))),
    }
}

#[cfg(test)]
#[path = "version_tests.rs"]
mod tests;

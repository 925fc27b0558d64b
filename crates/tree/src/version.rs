//! The tables of a keyspace at one instant: immutable, shared, arranged for lookup.
//!
//! Tables are arranged in runs. The tables of a run do not overlap one another, so one binary search finds
//! the only table of a run that may contain a key. If two tables overlap, the newer one is in the newer run
//! (I4). Data written in key order makes a single run, however many tables it has.
//!
//! A run contains [`Piece`]s: a table file and the key range in which its entries are valid. A merge of a
//! part of a table cuts that part out of the piece and leaves the rest in place, so one file may have several
//! pieces.

use std::sync::{Arc, OnceLock};

use base::{Error, KeyRange, Result, RunId, TableId, invariant};
use manifest::TableEntry;
use table::{Bounds, PinnedRangeDeletes, Table, TableCursor};

use crate::version_filters::VersionFilters;
use crate::{TableFile, ValueFile};

/// A table, or the key range of a table that merges left valid.
#[derive(Debug)]
pub struct Piece {
    file: Arc<TableFile>,
    range: KeyRange,
    level: u8,
    /// The range deletes of the table, at least those within `range`. None if the table is damaged.
    range_deletes: Arc<PinnedRangeDeletes>,
}

impl Piece {
    /// The parts of `file` within the ranges, each at its level, in the same order. The table itself keeps
    /// its range deletes no longer.
    pub fn parts(file: &Arc<TableFile>, parts: Vec<(KeyRange, u8)>) -> Vec<Arc<Self>> {
        let all = range_deletes_of(file);
        let part = |(range, level)| {
            let range_deletes = Arc::clone(&all);
            Arc::new(Self { file: Arc::clone(file), range, level, range_deletes })
        };
        let mut parts: Vec<_> = parts.into_iter().map(part).collect();
        invariant!(
            parts.iter().all(|part: &Arc<Self>| file.entry().range.covers(&part.range)),
            "the pieces of a table lie within its keys"
        );
        give_back_range_deletes(&mut parts);
        parts
    }

    /// All of a table, at the level that its manifest entry states.
    pub fn whole(file: Arc<TableFile>) -> Arc<Self> {
        let TableEntry { range, level, .. } = &**file.entry();
        let (range, level) = (range.clone(), *level);
        let range_deletes = range_deletes_of(&file);
        Arc::new(Self { file, range, level, range_deletes })
    }

    /// The range deletes of the table, at least those within the piece's range.
    pub fn range_deletes(&self) -> &Arc<PinnedRangeDeletes> {
        &self.range_deletes
    }

    /// The level: 0 for outputs of flushes and of merges that are not much larger, higher for outputs of
    /// larger merges.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// The parts that remain after the keys of `cut` are removed.
    fn without(&self, cut: &KeyRange) -> impl Iterator<Item = Arc<Self>> {
        let part = |range| {
            let (file, level) = (Arc::clone(&self.file), self.level);
            let range_deletes = Arc::clone(&self.range_deletes);
            Arc::new(Self { file, range, level, range_deletes })
        };
        self.range.subtract(cut).into_iter().map(part)
    }

    /// The table.
    ///
    /// # Errors
    /// The error of opening it: then reads of the piece's keys fail.
    pub fn table(&self) -> Result<&Arc<Table>> {
        self.file.table()
    }

    /// A cursor over the entries of the table within the piece's range.
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

    /// The table's file.
    pub fn file(&self) -> &Arc<TableFile> {
        &self.file
    }

    /// What the manifest records about the table.
    pub fn entry(&self) -> &Arc<TableEntry> {
        self.file.entry()
    }

    /// The valid keys: entries of the table outside this range are not in the tree through this piece.
    pub fn range(&self) -> &KeyRange {
        &self.range
    }
}

/// Replaces the range deletes that adjacent `pieces` share by copies of those that the pieces need, if these
/// take clearly less memory.
fn give_back_range_deletes(pieces: &mut [Arc<Piece>]) {
    let is_same = |one: &Arc<Piece>, other: &Arc<Piece>| {
        Arc::ptr_eq(&one.range_deletes, &other.range_deletes)
    };
    for group in pieces.chunk_by_mut(is_same) {
        let kept = group.iter().map(|piece| piece.range_deletes.count_within(&piece.range)).sum();
        if group.first().is_some_and(|first| first.range_deletes.is_worth_copying(kept)) {
            for piece in group {
                let Piece { file, range, level, range_deletes } = &**piece;
                let (range_deletes, range) = (range_deletes.copied(range), range.clone());
                let (file, level) = (Arc::clone(file), *level);
                *piece = Arc::new(Piece { file, range, level, range_deletes });
            }
        }
    }
}

/// Takes the range deletes out of a table that was just opened or written.
fn range_deletes_of(file: &TableFile) -> Arc<PinnedRangeDeletes> {
    let Ok(table) = file.table() else { return Arc::default() };
    let range_deletes = table.held_range_deletes();
    invariant!(range_deletes.is_some(), "a table has its range deletes until pieces take them");
    table.release_range_deletes();
    range_deletes.unwrap_or_default()
}

/// Pieces that do not overlap, in key order.
#[derive(Clone, Debug)]
pub struct Run {
    id: RunId,
    pieces: Vec<Arc<Piece>>,
    /// Whether a table has range deletes. Computed on first use.
    has_range_deletes: OnceLock<bool>,
}

impl Run {
    fn new(id: RunId, pieces: Vec<Arc<Piece>>) -> Self {
        Self { id, pieces, has_range_deletes: OnceLock::new() }
    }

    /// The run's id. A newer run has a higher id.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// The only piece of the run that may contain `key`.
    pub fn find(&self, key: &[u8]) -> Option<&Arc<Piece>> {
        let piece = self.pieces.get(self.at_or_after(key))?;
        (*piece.range.first <= *key).then_some(piece)
    }

    /// The index of the first piece that contains `key` or later keys.
    pub fn at_or_after(&self, key: &[u8]) -> usize {
        self.pieces.partition_point(|piece| !piece.range.is_end_after(key))
    }

    /// The pieces, in key order.
    pub fn pieces(&self) -> &[Arc<Piece>] {
        &self.pieces
    }

    /// Whether a table of the run has range deletes. A table that could not be opened counts as one without.
    pub fn has_range_deletes(&self) -> bool {
        let has = |piece: &Arc<Piece>| !piece.range_deletes.is_empty();
        *self.has_range_deletes.get_or_init(|| self.pieces.iter().any(has))
    }

    /// The pieces with keys in `range`, in key order.
    pub fn overlapping(&self, range: &KeyRange) -> &[Arc<Piece>] {
        let from = self.pieces.get(self.at_or_after(&range.first)..).unwrap_or_default();
        let count = from.partition_point(|piece| range.is_end_after(&piece.range.first));
        from.get(..count).unwrap_or_default()
    }

    fn overlaps(&self, range: &KeyRange) -> bool {
        !range.is_empty() && !self.overlapping(range).is_empty()
    }

    /// Adds `piece`, which overlaps no piece of the run.
    fn insert(&mut self, piece: Arc<Piece>) {
        invariant!(!self.overlaps(&piece.range), "pieces of a run do not overlap (I4)");
        let at = self.at_or_after(&piece.range.first);
        self.pieces.insert(at, piece);
        self.has_range_deletes = OnceLock::new();
    }
}

/// The result of a merge, a move or a drop: the pieces of one rectangle are replaced.
#[derive(Debug)]
pub struct Change {
    /// The runs and the key range in which inputs are replaced.
    pub rectangle: Rectangle,
    /// Tables that lose their keys within the rectangle.
    pub inputs: Vec<TableId>,
    /// The pieces that replace them, each with its run.
    pub outputs: Vec<(RunId, Arc<Piece>)>,
}

/// A key range of consecutive runs: the area of one compaction job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// The oldest run; the outputs go there.
    pub oldest: RunId,
    /// The newest run.
    pub newest: RunId,
    /// The keys.
    pub range: KeyRange,
    /// Estimate of the bytes that the job reads, and may write.
    pub bytes: u64,
}

impl Rectangle {
    /// Whether the two have a run and keys in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.oldest <= other.newest
            && other.oldest <= self.newest
            && self.range.overlaps(&other.range)
    }

    /// Whether `run` is one of its runs.
    pub fn holds(&self, run: RunId) -> bool {
        self.oldest <= run && run <= self.newest
    }
}

/// The tables of a keyspace at one instant.
#[derive(Clone, Debug, Default)]
pub struct Version {
    /// Newest run first. No run is empty.
    runs: Vec<Arc<Run>>,
    /// The highest run id ever used: the id of a run that became empty is not used again.
    newest: RunId,
    /// The filters that its tables pin. Taken on first use.
    filters: OnceLock<Option<VersionFilters>>,
}

impl Version {
    /// The version with these pieces in these runs.
    ///
    /// # Errors
    /// `Corrupt` if two pieces of a run overlap: a lookup would miss one of them.
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

    /// The runs, newest first. For each key, an earlier run contains newer data (I4).
    pub fn runs(&self) -> &[Arc<Run>] {
        &self.runs
    }

    /// The filters that its tables pin, if there are any.
    #[inline]
    pub(crate) fn filters(&self) -> Option<&VersionFilters> {
        self.filters.get_or_init(|| VersionFilters::of(&self.runs)).as_ref()
    }

    /// The run with this id.
    pub fn run(&self, id: RunId) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// Every piece, in no particular order.
    pub fn pieces(&self) -> impl Iterator<Item = &Arc<Piece>> {
        self.runs.iter().flat_map(|run| &run.pieces)
    }

    /// Every table file, in order of ids.
    pub fn files(&self) -> Vec<&Arc<TableFile>> {
        let mut files: Vec<_> = self.pieces().map(|piece| &piece.file).collect();
        files.sort_unstable_by_key(|file| file.entry().id);
        files.dedup_by_key(|file| file.entry().id);
        files
    }

    /// Every value file that a table points into, in order of ids.
    pub fn value_files(&self) -> Vec<&Arc<ValueFile>> {
        let mut files: Vec<_> = self.files().into_iter().flat_map(|file| file.values()).collect();
        files.sort_unstable_by_key(|file| file.id());
        files.dedup_by_key(|file| file.id());
        files
    }

    /// The run for a table over `range` that is newer than all tables of this version. This is the oldest run
    /// above all runs that overlap `range`, or a new run.
    ///
    /// `reserved` rectangles count as full of keys: the outputs of their jobs may lie anywhere in them, and
    /// go to their oldest run.
    pub fn place_newest(&self, range: &KeyRange, reserved: &[Rectangle]) -> RunId {
        let blocked = self.runs.iter().find(|run| run.overlaps(range)).map(|run| run.id);
        let reserved = reserved.iter().filter(|it| it.range.overlaps(range)).map(|it| it.newest);
        let blocked = blocked.into_iter().chain(reserved).max();
        let above = self.runs.iter().rev().find(|run| blocked.is_none_or(|it| run.id > it));
        invariant!(
            blocked.is_none_or(|blocked| blocked <= self.newest),
            "no run is newer than the newest"
        );
        let run = above.map_or(RunId(self.newest.0 + 1), |run| run.id);
        debug_assert!(
            self.run(run).is_none_or(|run| !run.overlaps(range)),
            "a table does not overlap its run (I4)"
        );
        run
    }

    /// This version with `piece` added to the run `id`, which is created if the version has none.
    pub fn with_piece(&self, id: RunId, piece: Arc<Piece>) -> Self {
        let mut runs = self.runs.clone();
        insert(&mut runs, id, piece);
        Self { runs, newest: self.newest.max(id), filters: OnceLock::new() }
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
                debug_assert!(
                    inputs.contains(&piece.entry().id) || !piece.range.overlaps(&rectangle.range),
                    "a compaction takes every table of its rectangle (I4)"
                );
                if !inputs.contains(&piece.entry().id) {
                    return vec![Arc::clone(piece)];
                }
                piece.without(&rectangle.range).collect()
            });
            let mut pieces: Vec<_> = left.collect();
            give_back_range_deletes(&mut pieces);
            if !pieces.is_empty() {
                runs.push(Arc::new(Run::new(run.id, pieces)));
            }
        }
        for (id, piece) in outputs {
            invariant!(*id <= self.newest, "compaction outputs go to a run that exists");
            insert(&mut runs, *id, Arc::clone(piece));
        }
        invariant!(
            runs.is_sorted_by(|a, b| a.id > b.id),
            "the runs of a version are in order, the newest first"
        );
        invariant!(
            outputs.iter().all(|(_, piece)| rectangle.range.covers(&piece.range)),
            "a compaction writes within its range of keys (I4)"
        );
        Self { runs, newest: self.newest, filters: OnceLock::new() }
    }
}

/// Adds `piece` to the run `id`, which is created if there is none.
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

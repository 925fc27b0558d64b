//! A tree divided into columns: key ranges in which the same pieces overlap.

use std::collections::HashMap;
use std::ops::Range;

use base::{TableId, invariant};
use bytes::Bytes;

use super::{Piece, Summary};
use crate::Horizon;

/// A boundary between columns. `End` orders after every key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Edge<'a> {
    Key(&'a [u8]),
    End,
}

impl<'a> Edge<'a> {
    pub(super) fn of_end(end: Option<&'a Bytes>) -> Self {
        end.map_or(Self::End, |end| Self::Key(end))
    }
}

/// The part of one piece in one column. All byte counts are estimates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell<'a> {
    /// Index of the run; 0 is the newest.
    pub(super) run: usize,
    pub(super) piece: &'a Piece,
    /// Bytes of the piece in this column: a merge reads and rewrites them.
    pub(super) bytes: u64,
    /// Bytes of the separated values that these entries point at: a merge that drops the pointers lets them
    /// die.
    pub(super) values: u64,
    /// Share of the bytes that the file still holds but no piece uses.
    pub(super) dead: u64,
    /// Share of `bytes` and `values` in versions that no read needs.
    pub(super) superseded: u64,
    /// The level of the piece, or of a newer piece above it if that is higher. So levels never fall with age,
    /// and pieces of one level are adjacent.
    pub(super) level: u8,
}

impl Cell<'_> {
    /// Bytes of content, separated values included, without known garbage.
    pub(super) const fn live_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.values).saturating_sub(self.superseded)
    }

    /// Bytes that rewriting this cell alone frees.
    pub(super) const fn garbage(&self) -> u64 {
        self.dead.saturating_add(self.superseded)
    }
}

/// A range of run indexes from newest to oldest, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Runs {
    pub(super) newest: usize,
    pub(super) oldest: usize,
}

impl Runs {
    pub(super) fn overlaps(self, other: Self) -> bool {
        self.newest <= other.oldest && other.newest <= self.oldest
    }
}

/// One column.
#[derive(Clone, Debug, Default)]
pub(super) struct Column<'a> {
    /// The cells, newest first.
    pub(super) cells: Vec<Cell<'a>>,
    /// The runs of each job that works in this column, even if they hold nothing here.
    pub(super) busy: Vec<Runs>,
}

impl<'a> Column<'a> {
    pub(super) fn bytes(&self) -> u64 {
        self.cells.iter().map(|cell| cell.bytes).sum()
    }

    /// Bytes of content, separated values included, without known garbage.
    pub(super) fn live_bytes(&self) -> u64 {
        self.cells.iter().map(Cell::live_bytes).sum()
    }

    /// Content of the oldest cell.
    pub(super) fn oldest_live_bytes(&self) -> u64 {
        self.cells.last().map_or(0, Cell::live_bytes)
    }

    /// The cells of `runs`; they are adjacent.
    pub(super) fn within(&self, runs: Runs) -> &[Cell<'a>] {
        debug_assert!(runs.newest <= runs.oldest, "{runs:?} holds no run");
        let from = self.cells.partition_point(|cell| cell.run < runs.newest);
        let to = self.cells.partition_point(|cell| cell.run <= runs.oldest);
        self.cells.get(from..to).unwrap_or_default()
    }

    /// Whether a new job may take `runs` here: no job works on them, and no piece is damaged.
    pub(super) fn is_free(&self, runs: Runs) -> bool {
        !self.busy.iter().any(|busy| busy.overlaps(runs))
            && !self.within(runs).iter().any(|cell| cell.piece.damaged)
    }
}

/// All columns of a tree, ascending by key.
#[derive(Clone, Debug)]
pub(super) struct Columns<'a> {
    /// Column `i` lies between edge `i` and edge `i + 1`.
    pub(super) edges: Vec<Edge<'a>>,
    pub(super) all: Vec<Column<'a>>,
}

impl<'a> Columns<'a> {
    /// Columns of at most about `bytes_max`, if the tables have split keys to cut at.
    pub(super) fn new(summary: &'a Summary, bytes_max: u64) -> Self {
        let mut edges = Vec::new();
        for piece in summary.runs.iter().flat_map(|run| &run.pieces) {
            edges.extend([Edge::Key(&piece.first), Edge::of_end(piece.end.as_ref())]);
        }
        for area in &summary.busy {
            edges.extend([Edge::Key(&area.first), Edge::of_end(area.end.as_ref())]);
        }
        if let Some(manual) = &summary.manual {
            edges.extend([Edge::Key(&manual.first), Edge::of_end(manual.end.as_ref())]);
        }
        let coarse = Self::with_edges(summary, edges);
        let mut edges = coarse.edges.clone();
        for (column, bounds) in coarse.all.iter().zip(coarse.edges.windows(2)) {
            let parts = column.bytes().div_ceil(bytes_max.max(1));
            let heaviest = column.cells.iter().max_by_key(|cell| cell.bytes);
            if let (Some(heaviest), [from, to], 2..) = (heaviest, bounds, parts) {
                let inner = heaviest.piece.file.splits.iter().map(|(key, _)| Edge::Key(key));
                let inner: Vec<_> = inner.filter(|edge| from < edge && edge < to).collect();
                let every = (inner.len() + 1).div_ceil(usize::try_from(parts).unwrap_or(1)).max(1);
                edges.extend(inner.iter().skip(every - 1).step_by(every));
            }
        }
        let fine = edges.len() > coarse.edges.len();
        let mut columns = if fine { Self::with_edges(summary, edges) } else { coarse };
        columns.spread_garbage(&summary.readers);
        columns
    }

    /// Distributes each file's garbage over its cells. Rewriting all pieces of a file frees the bytes that no
    /// piece uses, so each cell gets its share of them: a series of slices that cut a file then continues
    /// beside its last cut. Each cell also gets its share of the versions that no read needs. If the pieces
    /// of a file add up to more than the file, because it has too few split keys, they are scaled down.
    fn spread_garbage(&mut self, readers: &Horizon) {
        let mut live: HashMap<TableId, u64> = HashMap::new();
        for cell in self.all.iter().flat_map(|column| &column.cells) {
            // Even a piece that seems empty keeps its file.
            *live.entry(cell.piece.file.id).or_default() += cell.bytes.max(1);
        }
        for cell in self.all.iter_mut().flat_map(|column| &mut column.cells) {
            let file = &cell.piece.file;
            let live = live.get(&file.id).copied().unwrap_or(0);
            if live > file.bytes {
                let part = u128::from(cell.bytes) * u128::from(file.bytes) / u128::from(live);
                cell.bytes = u64::try_from(part).unwrap_or(u64::MAX);
            }
            let dead = u128::from(file.bytes.saturating_sub(live)) * u128::from(cell.bytes.max(1));
            cell.dead = u64::try_from(dead / u128::from(live.max(1))).unwrap_or(u64::MAX);
            let part = cell.bytes.max(1) as f64 / file.bytes.max(1) as f64;
            invariant!(cell.bytes <= file.bytes, "a piece has no more bytes than its file");
            cell.superseded = (file.superseded.garbage(readers) as f64 * part).ceil() as u64;
        }
    }

    /// Column `number`, of a candidate or a placed piece.
    pub(super) fn get(&self, number: usize) -> Option<&Column<'a>> {
        let column = self.all.get(number);
        invariant!(column.is_some(), "a column that was seen exists");
        column
    }

    /// Total content and total garbage of all cells, bytes.
    pub(super) fn live_and_dead(&self) -> (u64, u64) {
        let cells = self.all.iter().flat_map(|column| &column.cells);
        cells.fold((0, 0), |(live, dead), cell| (live + cell.live_bytes(), dead + cell.garbage()))
    }

    fn with_edges(summary: &'a Summary, mut edges: Vec<Edge<'a>>) -> Self {
        edges.sort_unstable();
        edges.dedup();
        let columns = |first: &'a Bytes, end: Option<&'a Bytes>| -> Range<usize> {
            let at = |edge: Edge<'a>| edges.partition_point(|known| *known < edge);
            at(Edge::Key(first))..at(Edge::of_end(end))
        };
        let pieces = summary.runs.iter().enumerate();
        let pieces = pieces.flat_map(|(number, run)| run.pieces.iter().map(move |it| (number, it)));
        let placed =
            pieces.map(|(run, piece)| (run, piece, columns(&piece.first, piece.end.as_ref())));
        let placed: Vec<_> = placed.collect();
        let mut all = Self::empty(edges.len().saturating_sub(1), placed.iter().map(|it| &it.2));
        for (run, piece, range) in placed {
            invariant!(
                range.start < range.end && range.end <= all.len(),
                "every piece covers a column"
            );
            let own = edges.get(range.start..=range.end).unwrap_or_default();
            let bytes_before = bytes_before(piece, own);
            let pointed = piece.file.value_bytes();
            let columns = all.get_mut(range).unwrap_or_default();
            for (column, mark) in columns.iter_mut().zip(bytes_before.windows(2)) {
                let bytes = if let [from, to] = mark { to.saturating_sub(*from) } else { 0 };
                invariant!(
                    column.cells.last().is_none_or(|above| above.run < run),
                    "a run has at most one piece in a column"
                );
                let part = bytes as f64 / piece.file.bytes.max(1) as f64;
                let values = (pointed as f64 * part) as u64;
                let above = column.cells.last().map_or(0, |cell| cell.level);
                let level = piece.level.max(above);
                column.cells.push(Cell {
                    run,
                    piece,
                    bytes,
                    values,
                    dead: 0,
                    superseded: 0,
                    level,
                });
            }
        }
        for area in &summary.busy {
            invariant!(
                area.oldest <= area.newest,
                "the newest run of a job is no older than its oldest"
            );
            let newest = summary.runs.partition_point(|run| run.id > area.newest);
            let oldest = summary.runs.partition_point(|run| run.id >= area.oldest);
            // A job's inputs remain until it is installed. `oldest` counts the runs that are not older than
            // the job's oldest run, so the last of them is one before.
            let runs = Runs { newest, oldest: oldest.saturating_sub(1).max(newest) };
            let range = columns(&area.first, area.end.as_ref());
            for column in all.get_mut(range).unwrap_or_default() {
                column.busy.push(runs);
            }
        }
        invariant!(
            all.is_empty() || edges.len() == all.len() + 1,
            "every column lies between two edges"
        );
        Self { edges, all }
    }

    /// `columns` empty columns, each with capacity for the cells of all ranges that cover it. Growing them
    /// cell by cell would make the allocator's arena grow and shrink page by page.
    fn empty<'r>(
        columns: usize,
        ranges: impl Iterator<Item = &'r Range<usize>>,
    ) -> Vec<Column<'a>> {
        // At each column: ranges that begin there minus ranges that end before it.
        let mut begun = vec![0_isize; columns + 1];
        for range in ranges {
            begun.get_mut(range.start).into_iter().for_each(|it| *it += 1);
            begun.get_mut(range.end).into_iter().for_each(|it| *it -= 1);
        }
        let mut over = 0_isize;
        let cells = begun.into_iter().take(columns).map(|begun| {
            over += begun;
            invariant!(over >= 0, "no more ranges end than began");
            usize::try_from(over).unwrap_or(0)
        });
        let column = |cells| Column { cells: Vec::with_capacity(cells), busy: Vec::new() };
        cells.map(column).collect()
    }
}

/// Estimated bytes of `piece`'s file before each of `edges`; the first and last edge are the piece's own.
///
/// In a short file, which has few split keys, edges between two split keys are taken to be evenly spaced:
/// otherwise some columns would seem empty, and slices would be sized by that. In a long file such edges are
/// taken to lie at the split key before them, because keys may be far apart there with nothing in between.
fn bytes_before(piece: &Piece, edges: &[Edge<'_>]) -> Vec<u64> {
    let file = &piece.file;
    let mut bytes_before: Vec<u64> = Vec::with_capacity(edges.len());
    let few = file.is_short();
    let mut before = (None, 0);
    let splits = file.splits.iter().map(|(key, bytes)| (Some(Edge::Key(key)), *bytes));
    for (to, bytes) in splits.chain([(None, file.bytes)]) {
        let rest = edges.get(bytes_before.len()..).unwrap_or_default();
        let within = rest.partition_point(|edge| to.is_none_or(|to| *edge < to));
        // The first edge lies at the start of the file or at the split key itself; the last lies at the end.
        let at_start = before.0.is_none() || before.0 == rest.first().copied();
        let steps = (within + 1).saturating_sub(usize::from(at_start) + usize::from(to.is_none()));
        let (all, steps) = (u128::from(bytes.saturating_sub(before.1)), steps.max(1) as u128);
        let step = |number: usize| {
            let number =
                if few || number as u128 >= steps { (number as u128).min(steps) } else { 0 };
            before.1 + (all * number / steps) as u64
        };
        let first = usize::from(!at_start);
        bytes_before.extend((first..first + within).map(step));
        before = (to, bytes);
    }
    invariant!(bytes_before.len() == edges.len(), "every edge of a piece has its bytes");
    debug_assert!(bytes_before.is_sorted(), "bytes ascend with the edges: {bytes_before:?}");
    bytes_before
}

//! Actions that read no data: dropping pieces, and moving pieces to older runs (trivial moves).

use base::RunId;

use super::Piece;
use super::action::Move;
use super::columns::Runs;
use super::tree_layout::TreeLayout;

/// Most pieces moved by one plan.
const MOVES_MAX: usize = 64;
/// The number of runs may exceed the pieces of the highest column by this much before pieces are moved.
const SPARE_RUNS: usize = 8;

/// A piece and its position in the layout.
pub(super) struct PlacedPiece<'a> {
    pub(super) piece: &'a Piece,
    /// Index of its run.
    pub(super) run: usize,
    /// The columns that it lies in, each with the index of its cell in the column.
    pub(super) places: Vec<(usize, usize)>,
}

/// All pieces of the tree.
pub(super) fn pieces<'a>(layout: &TreeLayout<'a>) -> Vec<PlacedPiece<'a>> {
    let mut found: Vec<PlacedPiece<'a>> = Vec::new();
    // Index in `found` of the last piece of each run. Columns ascend by key, so the cells of a piece are not
    // interrupted by another piece of its run.
    let mut last: Vec<Option<usize>> = vec![None; layout.summary.runs.len()];
    for (number, column) in layout.columns.all.iter().enumerate() {
        for (place, cell) in column.cells.iter().enumerate() {
            let Some(slot) = last.get_mut(cell.run) else { continue };
            let is_known =
                |at: &usize| found.get(*at).is_some_and(|one| std::ptr::eq(one.piece, cell.piece));
            let at = slot.filter(is_known).unwrap_or(found.len());
            if at == found.len() {
                found.push(PlacedPiece { piece: cell.piece, run: cell.run, places: Vec::new() });
            }
            *slot = Some(at);
            if let Some(placed) = found.get_mut(at) {
                placed.places.push((number, place));
            }
        }
    }
    found
}

/// Pieces that can be dropped unread: every entry expired or is a tombstone, no older piece lies below, and
/// all entries are older than the oldest read. (A tombstone that a read does not see may be its only sign
/// that the key was written since: transactions check this.)
pub(super) fn droppable(layout: &TreeLayout<'_>) -> Vec<(RunId, Piece)> {
    let summary = layout.summary;
    let gone = |piece: &Piece| {
        (piece.is_expired(summary.now_ms) || piece.is_all_deletes())
            && piece.file.seqno_max <= summary.readers.oldest()
    };
    let any = summary.runs.iter().flat_map(|run| &run.pieces).any(gone);
    if !any {
        return Vec::new();
    }
    let found = pieces(layout).into_iter().filter(|PlacedPiece { piece, run, places }| {
        let own = Runs { newest: *run, oldest: *run };
        gone(piece)
            && places.iter().all(|(number, place)| {
                let column = layout.columns.all.get(*number);
                column.is_some_and(|column| place + 1 == column.cells.len() && column.is_free(own))
            })
    });
    let id = |run: usize| summary.runs.get(run).map(|run| run.id);
    found.filter_map(|placed| Some((id(placed.run)?, placed.piece.clone()))).collect()
}

/// Trivial moves of pieces of one run to older runs. Planned only if there are many more runs than any column
/// needs.
pub(super) fn moves(layout: &TreeLayout<'_>) -> Vec<Move> {
    let runs = &layout.summary.runs;
    let highest = layout.columns.all.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let spare = if layout.summary.quiet { 0 } else { SPARE_RUNS };
    let Some(last) = runs.len().checked_sub(1).filter(|_| runs.len() > highest + spare) else {
        return Vec::new();
    };
    let mut found: Vec<Move> = Vec::new();
    // Oldest run first: a moved piece makes way for the pieces above it.
    let mut pieces = pieces(layout);
    pieces.sort_by_key(|placed| std::cmp::Reverse(placed.run));
    for PlacedPiece { piece, run, places } in pieces {
        if piece.damaged || found.len() == MOVES_MAX {
            continue;
        }
        let below = |(number, place): &(usize, usize)| {
            let cells = layout.columns.all.get(*number).map(|column| &column.cells);
            let next = cells.and_then(|cells| cells.get(place + 1));
            next.map_or(last, |cell| cell.run.saturating_sub(1))
        };
        let target = places.iter().map(below).min().unwrap_or(run);
        let way = Runs { newest: run, oldest: target };
        let is_free = |(number, _): &(usize, usize)| {
            layout.columns.all.get(*number).is_some_and(|column| column.is_free(way))
        };
        if target > run
            && places.iter().all(is_free)
            && let (Some(from), Some(into)) = (runs.get(run), runs.get(target))
            && found.first().is_none_or(|first| first.from == from.id)
        {
            found.push(Move { piece: piece.clone(), from: from.id, into: into.id });
        }
    }
    found
}

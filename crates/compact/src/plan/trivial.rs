//! What needs no merge: pieces that go as they are, and pieces that sink to older runs.

use base::RunId;

use super::Piece;
use super::action::Move;
use super::columns::Runs;
use super::tree_layout::TreeLayout;

/// The most pieces one plan moves.
const MOVES_MAX: usize = 64;
/// Runs beyond the highest column's before pieces are moved to make them fewer.
const SPARE_RUNS: usize = 8;

/// A piece and where it lies.
pub(super) struct PlacedPiece<'a> {
    pub(super) piece: &'a Piece,
    /// The position of its run.
    pub(super) run: usize,
    /// The columns it lies in, each with its place among the column's cells.
    pub(super) places: Vec<(usize, usize)>,
}

/// Every piece.
pub(super) fn pieces<'a>(layout: &TreeLayout<'a>) -> Vec<PlacedPiece<'a>> {
    let mut found: Vec<PlacedPiece<'a>> = Vec::new();
    // The last piece met of each run: columns go by key, so no other of the run is met in between.
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

/// Pieces that can go without being read: all of it expired or deletes, and nothing older below; and all from
/// before the oldest reader, so that none is the only sign that a key which that one read was written to.
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

/// Pieces of one run that sink to older ones, where there are far more runs than any column needs.
pub(super) fn moves(layout: &TreeLayout<'_>) -> Vec<Move> {
    let runs = &layout.summary.runs;
    let highest = layout.columns.all.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let spare = if layout.summary.quiet { 0 } else { SPARE_RUNS };
    let Some(last) = runs.len().checked_sub(1).filter(|_| runs.len() > highest + spare) else {
        return Vec::new();
    };
    let mut found: Vec<Move> = Vec::new();
    // Oldest first: what sank makes way for what follows.
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

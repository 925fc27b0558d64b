//! Actions that read no data: dropping pieces, and moving pieces to older runs (trivial moves).

use base::{RunId, invariant};

use super::Piece;
use super::action::Move;
use super::columns::Runs;
use super::placed::{PlacedPiece, placed_pieces};
use super::tree_layout::TreeLayout;

/// Most pieces moved by one plan.
const MOVES_MAX: usize = 64;
/// The number of runs may exceed the pieces of the highest column by this much before pieces are moved.
const SPARE_RUNS: usize = 8;

/// Pieces that can be dropped unread. Either every entry expired or is a tombstone, no older piece lies
/// below, and all entries are older than the oldest read. (A tombstone that a read does not see may be its
/// only sign that the key was written since: transactions check this.) Or a range delete of a newer run hides
/// the whole piece, and what lies below, from every read: so a full device needs no space to free what was
/// deleted.
pub(super) fn droppable(layout: &TreeLayout<'_>) -> Vec<(RunId, Piece)> {
    let summary = layout.summary;
    let hidden: Vec<&Piece> = summary
        .hidden
        .iter()
        .filter(|it| !summary.readers.needs(it.oldest, it.by))
        .filter_map(|it| summary.runs.iter().find(|run| run.id == it.run)?.pieces.get(it.piece))
        .collect();
    let is_hidden = |piece: &Piece| hidden.iter().any(|it| std::ptr::eq(*it, piece));
    let is_droppable = |piece: &Piece| {
        (piece.is_expired(summary.now_ms) || piece.is_all_deletes())
            && piece.file.seqno_max <= summary.readers.oldest()
    };
    let any = summary.runs.iter().flat_map(|run| &run.pieces).any(is_droppable);
    if !any && hidden.is_empty() {
        return Vec::new();
    }
    let found = placed_pieces(layout).into_iter().filter(|PlacedPiece { piece, run, places }| {
        let own = Runs { newest: *run, oldest: *run };
        let is_hidden = is_hidden(piece);
        (is_hidden || is_droppable(piece))
            && places.iter().all(|(number, place)| {
                let column = layout.columns.get(*number);
                column.is_some_and(|column| {
                    (is_hidden || place + 1 == column.cells.len()) && column.is_free(own)
                })
            })
    });
    found.filter_map(|it| Some((layout.run_id(it.run)?, it.piece.clone()))).collect()
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
    let mut pieces = placed_pieces(layout);
    pieces.sort_by_key(|placed| std::cmp::Reverse(placed.run));
    for PlacedPiece { piece, run, places } in pieces {
        if piece.damaged || found.len() == MOVES_MAX {
            continue;
        }
        let below = |(number, place): &(usize, usize)| {
            let cells = layout.columns.get(*number).map(|column| &column.cells);
            let next = cells.and_then(|cells| cells.get(place + 1));
            next.map_or(last, |cell| cell.run.saturating_sub(1))
        };
        invariant!(!places.is_empty(), "every piece lies in a column");
        let target = places.iter().map(below).min().unwrap_or(run);
        let way = Runs { newest: run, oldest: target };
        let is_free = |(number, _): &(usize, usize)| {
            layout.columns.get(*number).is_some_and(|column| column.is_free(way))
        };
        if target > run
            && places.iter().all(is_free)
            && let (Some(from), Some(into)) = (layout.run_id(run), layout.run_id(target))
            && found.first().is_none_or(|first| first.from == from)
        {
            invariant!(from > into, "a trivial move goes to an older run");
            found.push(Move { piece: piece.clone(), from, into });
        }
    }
    found
}

//! Pieces with their position in the layout: the columns they lie in, and their place in each.

use base::invariant;

use super::Piece;
use super::tree_layout::TreeLayout;

/// A piece and its position in the layout.
pub(super) struct PlacedPiece<'a> {
    pub(super) piece: &'a Piece,
    /// Index of its run.
    pub(super) run: usize,
    /// The columns that it lies in, each with the index of its cell in the column.
    pub(super) places: Vec<(usize, usize)>,
}

/// All pieces of the tree.
pub(super) fn placed_pieces<'a>(layout: &TreeLayout<'a>) -> Vec<PlacedPiece<'a>> {
    let mut found: Vec<PlacedPiece<'a>> = Vec::new();
    // Index in `found` of the last piece of each run. Columns ascend by key, so the cells of a piece are not
    // interrupted by another piece of its run.
    let mut last: Vec<Option<usize>> = vec![None; layout.summary.runs.len()];
    for (number, column) in layout.columns.all.iter().enumerate() {
        for (place, cell) in column.cells.iter().enumerate() {
            invariant!(cell.run < last.len(), "every cell belongs to a run of the summary");
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

//! Files that hold much that no piece has any more, and what to do about them where space is short.
//!
//! A file's space comes back with its last piece. What merges of slices leave of a file may be a few
//! pages of it: writing these anew gives back all the rest, for next to no space of its own, where a
//! merge of whole columns finds no room, or gives nothing back before it is through with the file.
//! Pieces are written anew one by one; one that is begun goes on, since its ratio only gets better.

use std::collections::BTreeMap;

use base::TableId;

use super::action::{Merge, Reason};
use super::columns::Runs;
use super::options::{filter_bits, table_bytes};
use super::place::{Placed, pieces};
use super::shape::Shape;

/// What a byte written must give back, where there is no space left.
const GIVES_MIN: f64 = 0.1;

/// What the pieces of one file come to.
#[derive(Default)]
struct File<'a> {
    /// The file's length, bytes.
    bytes: u64,
    /// Bytes in its pieces.
    live: u64,
    /// Its pieces, with their bytes.
    pieces: Vec<(Placed<'a>, u64)>,
    /// Some of them cannot be written anew now.
    stays: bool,
}

/// The rewriting of a piece of the file that gives most back for each byte it costs; none where that
/// is too little.
pub(super) fn rewrite(shape: &Shape<'_>) -> Option<Merge> {
    let mut files: BTreeMap<TableId, File<'_>> = BTreeMap::new();
    for placed in pieces(shape) {
        let own = Runs { newest: placed.run, oldest: placed.run };
        let file = files.entry(placed.piece.file.id).or_default();
        let columns = || placed.places.iter().filter_map(|(at, _)| shape.columns.all.get(*at));
        let cells = columns().flat_map(|column| column.within(own));
        let live: u64 = cells.map(|cell| cell.bytes).sum();
        file.stays |= !columns().all(|column| column.is_free(own));
        file.bytes = placed.piece.file.bytes;
        file.live += live;
        file.pieces.push((placed, live));
    }
    let gives =
        |file: &File<'_>| file.bytes.saturating_sub(file.live) as f64 / file.live.max(1) as f64;
    // The less space is left, the more one byte of it may cost. All of the file has to fit: nothing
    // comes back before its last piece.
    let least = shape.ease().max(GIVES_MIN);
    let fits = |file: &File<'_>| file.live <= shape.room_to_free();
    let thin = files.into_values().filter(|it| !it.stays && gives(it) >= least && fits(it));
    let file = thin.max_by(|one, other| gives(one).total_cmp(&gives(other)))?;
    let (Placed { piece, run, places }, bytes) = file.pieces.into_iter().next()?;
    let oldest = places.iter().all(|(number, place)| {
        shape.columns.all.get(*number).is_some_and(|it| place + 1 == it.cells.len())
    });
    let into = shape.summary.runs.get(run)?.id;
    Some(Merge {
        inputs: vec![(into, vec![piece.clone()])],
        first: piece.first.clone(),
        end: piece.end.clone(),
        into,
        level: piece.level,
        oldest,
        reason: Reason::Space,
        bytes,
        table_bytes: table_bytes(shape.slice, oldest),
        filter_bits: filter_bits(oldest),
        collect: Vec::new(),
    })
}

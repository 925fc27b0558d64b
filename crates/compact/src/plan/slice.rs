//! Makes a job of a candidate: a slice of a series of merges, not more than fits.

use base::RunId;
use bytes::Bytes;

use super::action::{Merge, Reason};
use super::candidate::{Candidate, gain};
use super::columns::{Column, Edge, Runs};
use super::options::filter_bits;
use super::shape::Shape;
use super::{Options, Piece};

/// The merge of `candidate`'s runs in its column and those beside it; none where it finds no room.
pub(super) fn grow(shape: &Shape<'_>, candidate: &Candidate) -> Option<Merge> {
    let columns = &shape.columns.all;
    let wanted =
        |number: usize| columns.get(number).is_some_and(|column| wants(shape, column, candidate));
    let bytes =
        |number: usize| columns.get(number).map_or(0, |column| taken(column, candidate.runs));
    let most = shape.options.slice_bytes.min(shape.room());
    if bytes(candidate.column) > most && shape.room() < shape.options.slice_bytes {
        return None;
    }
    // Columns to the left that want the same come first: a series goes from left to right.
    let mut from = candidate.column;
    while from.checked_sub(1).is_some_and(wanted) {
        from -= 1;
    }
    let mut to = from + 1;
    let mut all = bytes(from);
    while wanted(to) && all + bytes(to) <= most.saturating_mul(2) {
        all += bytes(to);
        to += 1;
    }
    if all > most {
        // What is left for the next slice should not be too little to be worth a job.
        let half = if all > most / 2 * 3 { most } else { all / 2 };
        to = from + 1;
        all = bytes(from);
        while wanted(to) && all + bytes(to) <= half {
            all += bytes(to);
            to += 1;
        }
    }
    let region = columns.get(from..to)?;
    // Columns at the ends in which there is nothing are no part of it.
    let is_used = |column: &Column<'_>| taken(column, candidate.runs) > 0;
    let (start, last) = (region.iter().position(is_used)?, region.iter().rposition(is_used)?);
    let (first, end) =
        (shape.columns.edges.get(from + start)?, shape.columns.edges.get(from + last + 1)?);
    make(shape, candidate, region.get(start..=last)?, *first, *end)
}

fn taken(column: &Column<'_>, runs: Runs) -> u64 {
    column.within(runs).iter().map(|cell| cell.bytes.max(1)).sum()
}

/// Whether a column belongs to a candidate's slice.
fn wants(shape: &Shape<'_>, column: &Column<'_>, candidate: &Candidate) -> bool {
    let cells = column.within(candidate.runs);
    if !column.is_free(candidate.runs) {
        return false;
    }
    if cells.is_empty() {
        return true;
    }
    if candidate.bottom {
        return cells.len() >= 2 && gain(column) >= candidate.gain / 2.0;
    }
    let Options { fanout, settled_runs, .. } = *shape.options;
    let fits = cells.iter().all(|cell| cell.level <= candidate.level);
    let enough = match candidate.reason {
        Reason::Settle => column.cells.len() > settled_runs,
        _ => cells.len() >= fanout / 4 * 3,
    };
    fits && enough && cells.len() >= 2
}

fn make(
    shape: &Shape<'_>,
    candidate: &Candidate,
    region: &[Column<'_>],
    from: Edge<'_>,
    to: Edge<'_>,
) -> Option<Merge> {
    let Edge::Key(first) = from else { return None };
    let end = match to {
        Edge::Key(key) => Some(key),
        Edge::End => None,
    };
    let cells = || region.iter().flat_map(|column| column.within(candidate.runs));
    let into = cells().map(|cell| cell.run).max()?;
    let mut inputs: Vec<(RunId, Vec<Piece>)> = Vec::new();
    for number in candidate.runs.newest..=into {
        let mut pieces: Vec<&Piece> =
            cells().filter(|cell| cell.run == number).map(|cell| cell.piece).collect();
        pieces.dedup_by(|a, b| std::ptr::eq(*a, *b));
        if let Some(run) = shape.summary.runs.get(number).filter(|_| !pieces.is_empty()) {
            inputs
                .push((run.id, pieces.into_iter().map(|piece| clip(piece, first, end)).collect()));
        }
    }
    let below = Runs { newest: into + 1, oldest: usize::MAX };
    let oldest = region.iter().all(|column| column.within(below).is_empty());
    let table_bytes = shape.options.table_bytes / if oldest { 1 } else { 4 };
    Some(Merge {
        into: inputs.last()?.0,
        inputs,
        first: Bytes::copy_from_slice(first),
        end: end.map(Bytes::copy_from_slice),
        level: level(shape, candidate, region),
        oldest,
        reason: candidate.reason,
        bytes: cells().map(|cell| cell.bytes).sum(),
        table_bytes,
        filter_bits: filter_bits(oldest),
    })
}

/// The part of a piece from `first` on and before `end`.
fn clip(piece: &Piece, first: &[u8], end: Option<&[u8]>) -> Piece {
    let mut clipped = piece.clone();
    if &*piece.first < first {
        clipped.first = Bytes::copy_from_slice(first);
    }
    if let Some(end) = end.filter(|end| Edge::Key(end) < Edge::of_end(piece.end.as_ref())) {
        clipped.end = Some(Bytes::copy_from_slice(end));
    }
    clipped
}

/// The level of what comes out: one below the inputs', where two or more of these were of one level
/// and about as long as runs of it are. Short ones, flushed from a nearly idle keyspace, stay.
fn level(shape: &Shape<'_>, candidate: &Candidate, region: &[Column<'_>]) -> u8 {
    let columns = || region.iter().map(|column| column.within(candidate.runs));
    let top = columns().flatten().map(|cell| cell.level).max().unwrap_or(0);
    let at_top = columns().map(|cells| cells.iter().filter(|cell| cell.level == top).count());
    if at_top.max().unwrap_or(0) < 2 {
        return top;
    }
    let runs = shape.summary.runs.get(candidate.runs.newest..=candidate.runs.oldest);
    let pieces = runs.unwrap_or_default().iter().flat_map(|run| &run.pieces);
    let length: u64 = pieces.map(|piece| piece.file.bytes).sum();
    let full = shape.options.fanout as f64;
    let least = shape.summary.unit_bytes as f64 * full.powi(i32::from(top) + 1) / 8.0;
    if length as f64 >= least { top.saturating_add(1) } else { top }
}

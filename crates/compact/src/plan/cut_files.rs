//! Rewrites the last pieces of files that are mostly unused, to free the files when space is short.
//!
//! A file is freed with its last piece. The slices of a series may leave a few pages of a file in use.
//! Rewriting these pages frees the whole file and needs almost no space, while a merge of whole columns may
//! find no room, or frees nothing until the file's last column is merged. The pieces of a file are rewritten
//! one by one, each into a file of its own with the overhead of one. A started file is continued, because
//! each rewritten piece improves its ratio.

use std::collections::BTreeMap;

use base::{TableId, invariant};

use super::action::{Merge, Reason};
use super::columns::Runs;
use super::options::{filter_bits, table_bytes};
use super::placed::{PlacedPiece, placed_pieces};
use super::tree_layout::TreeLayout;

/// Least bytes freed per byte written, however short space is.
const FREED_MIN: f64 = 0.1;

/// A table file and its pieces.
#[derive(Default)]
struct CutFile<'a> {
    /// Length of the file, bytes.
    bytes: u64,
    /// Bytes that a rewrite of its pieces writes.
    written: u64,
    /// Its pieces with their bytes.
    pieces: Vec<(PlacedPiece<'a>, u64)>,
    /// Whether a job or damage keeps one of its pieces from being rewritten.
    is_held: bool,
}

/// A rewrite of one piece of the file that frees most per byte written; `None` if no file frees enough.
pub(super) fn rewrite(layout: &TreeLayout<'_>) -> Option<Merge> {
    let mut files: BTreeMap<TableId, CutFile<'_>> = BTreeMap::new();
    for placed in placed_pieces(layout) {
        let own = Runs { newest: placed.run, oldest: placed.run };
        let file = files.entry(placed.piece.file.id).or_default();
        let columns = || placed.places.iter().filter_map(|(at, _)| layout.columns.get(*at));
        let cells = columns().flat_map(|column| column.within(own));
        let live: u64 = cells.map(|cell| cell.bytes).sum();
        file.is_held |= !columns().all(|column| column.is_free(own));
        file.bytes = placed.piece.file.bytes;
        file.written += live + layout.summary.overhead_bytes;
        file.pieces.push((placed, live));
    }
    let freed = |file: &CutFile<'_>| {
        file.bytes.saturating_sub(file.written) as f64 / file.written.max(1) as f64
    };
    // With less free space, a lower ratio is accepted. All pieces of the file must fit, because nothing is
    // freed before the last one.
    let freed_min = layout.free_share().max(FREED_MIN);
    let fits = |file: &CutFile<'_>| file.written <= layout.room_to_free();
    let candidates =
        files.into_values().filter(|it| !it.is_held && freed(it) >= freed_min && fits(it));
    let file = candidates.max_by(|one, other| freed(one).total_cmp(&freed(other)))?;
    invariant!(file.written <= file.bytes, "a rewrite of a file frees bytes");
    let (PlacedPiece { piece, run, places }, bytes) = file.pieces.into_iter().next()?;
    let oldest = places.iter().all(|(number, place)| {
        layout.columns.get(*number).is_some_and(|it| place + 1 == it.cells.len())
    });
    let into = layout.run_id(run)?;
    Some(Merge {
        inputs: vec![(into, vec![piece.clone()])],
        first: piece.first.clone(),
        end: piece.end.clone(),
        into,
        level: piece.level,
        oldest,
        reason: Reason::Space,
        bytes,
        table_bytes: table_bytes(layout.slice_bytes, oldest),
        filter_bits: filter_bits(oldest),
        collect: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{RunId, TableId};
    use bytes::Bytes;

    use super::super::tests::{table, tree};
    use super::super::{Area, Options, Piece, Plan, Summary, plan};
    use super::*;

    /// A piece from `first` to `end` that uses `live` bytes of a file of 1000 bytes.
    fn piece_of_file(id: u64, first: &'static str, end: &'static str, live: u64) -> Piece {
        let mut piece = table(id, 3, first, end, 1000);
        let file = Arc::make_mut(&mut piece.file);
        file.splits = vec![(Bytes::from_static(end.as_bytes()), live)];
        piece
    }

    fn rewritten(summary: &Summary) -> Option<Merge> {
        rewrite(&TreeLayout::new(summary, &Options::default()))
    }

    /// Two mostly unused files, `m` more than `c`, over a wholly used one.
    fn cut_tree() -> Summary {
        let cut_tree = vec![piece_of_file(5, "c", "d", 200), piece_of_file(6, "m", "n", 100)];
        let whole = table(1, 4, "k", "z", 1000);
        Summary { free_bytes: Some(300), ..tree(vec![cut_tree, vec![whole]]) }
    }

    #[test]
    fn the_file_that_frees_most_is_rewritten() {
        let job = rewritten(&cut_tree()).unwrap();
        assert_eq!((job.inputs.len(), job.inputs[0].0, job.into), (1, RunId(2), RunId(2)));
        assert_eq!(job.inputs[0].1, [piece_of_file(6, "m", "n", 100)]);
        assert_eq!((&*job.first, job.end.as_deref()), (&b"m"[..], Some(&b"n"[..])));
        assert_eq!((job.reason, job.bytes, job.level), (Reason::Space, 100, 3));
        assert!(!job.oldest && job.filter_bits > filter_bits(true), "`k` to `z` lies below");
        // If space is short, the planner rewrites cut files before anything else.
        assert_eq!(plan(&cut_tree(), &Options::default()), Some(Plan::Merge(job)));
    }

    #[test]
    fn a_rewrite_with_nothing_below_is_of_the_oldest_run() {
        let mut summary = cut_tree();
        summary.runs[0].pieces.truncate(1);
        let job = rewritten(&summary).unwrap();
        assert_eq!((job.inputs[0].1[0].file.id, job.oldest), (TableId(5), true));
        assert!(job.filter_bits <= filter_bits(true));
    }

    #[test]
    fn all_pieces_of_the_file_must_fit_into_the_free_space() {
        let fitting = |free| {
            let summary = Summary { free_bytes: Some(free), ..cut_tree() };
            rewritten(&summary).map(|job| job.bytes)
        };
        // Three quarters of the free space, because flushes have none piece_of_file.
        assert_eq!((fitting(132), fitting(136)), (None, Some(100)));
        let mut summary = cut_tree();
        summary.runs[0].pieces = vec![piece_of_file(5, "c", "d", 200)];
        summary.free_bytes = Some(220);
        assert_eq!(rewritten(&summary), None);
    }

    #[test]
    fn a_busy_or_damaged_file_is_not_rewritten() {
        let mut summary = cut_tree();
        let area = |first: &'static str, run| Area {
            newest: RunId(run),
            oldest: RunId(run),
            first: Bytes::from_static(first.as_bytes()),
            end: None,
            bytes: 0,
        };
        summary.busy = vec![area("m", 2)];
        assert_eq!(rewritten(&summary).unwrap().bytes, 200, "the other one");
        summary.busy = vec![area("m", 1)];
        assert_eq!(rewritten(&summary).unwrap().bytes, 100, "a job in another run");
        summary.busy = vec![area("a", 2)];
        assert_eq!(rewritten(&summary), None);
        summary.busy.clear();
        summary.runs[0].pieces[1].damaged = true;
        assert_eq!(rewritten(&summary).unwrap().bytes, 200);
    }

    #[test]
    fn a_file_that_frees_too_little_is_not_rewritten() {
        let of = |live, overhead_bytes| {
            let cut_tree = vec![piece_of_file(5, "c", "d", live)];
            let whole = vec![table(1, 4, "k", "z", 100_000)];
            let summary = tree(vec![cut_tree, whole]);
            rewritten(&Summary { free_bytes: Some(1300), overhead_bytes, ..summary })
                .map(|job| job.bytes)
        };
        // The least ratio is a tenth, however short space is.
        assert_eq!((of(905, 0), of(915, 0)), (Some(905), None));
        // The rewritten piece is a file of its own.
        assert_eq!((of(105, 800), of(105, 810), of(105, 2000)), (Some(105), None, None));
    }

    #[test]
    fn a_file_is_rewritten_piece_by_piece() {
        let mut file = piece_of_file(5, "c", "d", 50);
        Arc::make_mut(&mut file.file).splits =
            [("d", 50), ("s", 900), ("t", 950)].map(|(key, bytes)| (key.into(), bytes)).into();
        let piece = |first: &'static str, end: &'static str| Piece {
            first: first.into(),
            end: Some(end.into()),
            ..file.clone()
        };
        let summary = |pieces| Summary { free_bytes: Some(200), ..tree(vec![pieces]) };
        let job = rewritten(&summary(vec![piece("c", "d"), piece("s", "t")])).unwrap();
        assert_eq!((&*job.first, job.bytes), (&b"c"[..], 50));
        // The rewritten part is a file of its own; the rest of the old file now frees more per byte.
        let job = rewritten(&summary(vec![table(9, 3, "c", "d", 50), piece("s", "t")])).unwrap();
        assert_eq!((&*job.first, job.bytes, job.inputs.len()), (&b"s"[..], 50, 1));
        let done = vec![table(9, 3, "c", "d", 50), table(10, 3, "s", "t", 50)];
        assert_eq!(rewritten(&summary(done)), None);
    }
}

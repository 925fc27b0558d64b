use std::sync::Arc;

use base::{Account, Error, KeyRange, RunId, TableId};
use cache::PageCache;
use manifest::TableEntry;
use media::{Medium, MemoryMedium};

use super::*;
use crate::obsolete_files::ObsoleteFiles;

fn range(first: &str, last: &str) -> KeyRange {
    KeyRange::through(first.as_bytes(), last.as_bytes())
}

fn file(id: u64, run: u64, keys: (&str, &str)) -> Arc<TableFile> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let cache = Arc::new(PageCache::new(&Account::unlimited("cache"), 4 << 20).unwrap());
    let (id, run, range) = (TableId(id), RunId(run), range(keys.0, keys.1));
    let entry = Arc::new(TableEntry { id, run, range, ..TableEntry::default() });
    let obsolete = ObsoleteFiles::new(medium, cache);
    TableFile::new(
        Err(Error::corrupt("no table")),
        entry,
        Vec::new(),
        obsolete,
        &Account::unlimited("test"),
    )
}

fn version(tables: &[(u64, u64, (&str, &str))]) -> Version {
    let piece = |(id, run, keys): &_| (RunId(*run), Piece::whole(file(*id, *run, *keys)));
    Version::from_pieces(tables.iter().map(piece).collect()).unwrap()
}

/// Runs, newest first: the id of each, and the table and range of each of its pieces.
fn shown(version: &Version) -> Vec<(u64, Vec<String>)> {
    let piece = |piece: &Arc<Piece>| format!("{} {}", piece.entry().id, piece.range());
    let run = |run: &Arc<Run>| (run.id().0, run.pieces().iter().map(piece).collect());
    version.runs().iter().map(run).collect()
}

fn rectangle(oldest: u64, newest: u64, first: &str, last: &str) -> Rectangle {
    let range = range(first, last);
    Rectangle { oldest: RunId(oldest), newest: RunId(newest), range, bytes: 0 }
}

#[test]
fn find_returns_the_only_piece_of_a_run_that_may_contain_a_key() {
    let version = version(&[(1, 1, ("b", "d")), (2, 1, ("f", "h")), (3, 4, ("a", "z"))]);
    let found = |run: usize, key: &str| {
        version.runs()[run].find(key.as_bytes()).map(|piece| piece.entry().id.0)
    };
    assert_eq!(found(0, "m"), Some(3));
    assert_eq!(
        ["a", "b", "d", "da", "e", "f", "h", "i"].map(|key| found(1, key)),
        [None, Some(1), Some(1), None, None, Some(2), Some(2), None]
    );
    let overlapping = |first, last| version.runs()[1].overlapping(&range(first, last)).len();
    assert_eq!(
        [("a", "a"), ("d", "e"), ("d", "f"), ("e", "e"), ("h", "z")]
            .map(|(f, l)| overlapping(f, l)),
        [0, 1, 2, 0, 1]
    );
}

#[test]
fn overlapping_tables_of_a_run_are_refused() {
    let pieces = [file(1, 1, ("a", "c")), file(2, 1, ("c", "d"))].map(Piece::whole);
    let error = Version::from_pieces(pieces.map(|piece| (RunId(1), piece)).into()).unwrap_err();
    assert!(error.to_string().contains("I4"), "{error}");
}

#[test] // I4
fn a_new_table_joins_the_oldest_run_above_what_it_overlaps() {
    let version = version(&[(1, 1, ("a", "m")), (2, 3, ("c", "f")), (3, 5, ("d", "e"))]);
    let place =
        |first, last, reserved: &[Rectangle]| version.place_newest(&range(first, last), reserved).0;
    assert_eq!(place("n", "z", &[]), 1);
    assert_eq!(place("g", "h", &[]), 3);
    assert_eq!(place("c", "c", &[]), 5);
    assert_eq!(place("d", "d", &[]), 6);
    // The output of the job may lie anywhere in its keys.
    let reserved = [rectangle(1, 3, "a", "p")];
    assert_eq!(place("n", "z", &reserved), 5);
    assert_eq!(place("q", "z", &reserved), 1);
    assert_eq!(place("n", "z", &[rectangle(1, 5, "a", "z")]), 6);
    // An id is not used twice, even after its run became empty.
    let change = Change {
        rectangle: rectangle(5, 5, "a", "z"),
        inputs: vec![TableId(3)],
        outputs: Vec::new(),
    };
    let version = version.with_change(&change);
    assert_eq!(version.place_newest(&range("c", "c"), &[]).0, 6);
}

#[test] // I4
fn a_change_cuts_the_merged_range_out_of_its_input_pieces() {
    let before = version(&[
        (1, 1, ("a", "m")),
        (2, 1, ("n", "z")),
        (3, 2, ("c", "x")),
        (4, 3, ("e", "f")),
        (5, 4, ("a", "z")),
    ]);
    let output = Piece::whole(file(9, 1, ("d", "g")));
    let change = Change {
        rectangle: rectangle(1, 3, "d", "p"),
        inputs: vec![TableId(1), TableId(2), TableId(3), TableId(4)],
        outputs: vec![(RunId(1), output)],
    };
    let after = before.with_change(&change);
    assert_eq!(
        shown(&after),
        [
            (4, vec!["5 `a` to `z`".to_owned()]),
            (2, vec!["3 `c` to before `d`".to_owned(), "3 `p\\x00` to `x`".to_owned()]),
            (
                1,
                vec![
                    "1 `a` to before `d`".to_owned(),
                    "9 `d` to `g`".to_owned(),
                    "2 `p\\x00` to `z`".to_owned()
                ]
            ),
        ]
    );
    assert_eq!(after.files().len(), 5);
    // A second change removes the rest.
    let change = Change {
        rectangle: rectangle(1, 2, "a", "z"),
        inputs: vec![TableId(1), TableId(2), TableId(3), TableId(9)],
        outputs: Vec::new(),
    };
    assert_eq!(shown(&after.with_change(&change)).len(), 1);
}

#[test]
fn rectangles_overlap_in_runs_and_keys() {
    let one = rectangle(2, 4, "c", "f");
    for (other, overlaps) in [
        (rectangle(4, 6, "a", "c"), true),
        (rectangle(5, 6, "a", "z"), false),
        (rectangle(1, 9, "g", "z"), false),
        (rectangle(1, 9, "a", "z"), true),
        (rectangle(1, 1, "a", "z"), false),
    ] {
        assert_eq!((one.overlaps(&other), other.overlaps(&one)), (overlaps, overlaps), "{other:?}");
    }
}

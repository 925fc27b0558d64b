//! The weight of a piece (part of a table), as the compaction planner sees it.

use std::sync::Arc;

use base::{KeyRange, Rng};
use bytes::Bytes;
use compact::Horizon;
use compact::plan::Options;
use media::MemoryMedium;
use tree::compaction::{bytes_of, weight_within};

use crate::Db;

/// A merge of a key range weighs only that range of a piece. If it weighed the whole piece, the planner would
/// expect new keys to supersede old ones.
#[test]
fn the_weight_of_a_piece_is_the_sum_of_its_ranges() {
    let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..40_000 {
        keyspace.put(format!("{number:08}"), format!("{number:020}")).unwrap();
    }
    db.flush().unwrap();
    let version = Arc::clone(&keyspace.tree().view().version);
    let piece = &version.runs()[0].pieces()[0];
    let all = KeyRange { first: Bytes::new(), end: None };
    let weight = |range: &KeyRange| weight_within(piece, range, &Horizon::default());
    assert_eq!(weight(&all), bytes_of(piece));
    let splits = &piece.file().summary().splits;
    assert!(splits.len() >= 4, "{}", splits.len());
    let mut sum = 0;
    let mut first = Bytes::new();
    for (split, _) in splits.iter().step_by(splits.len() / 4) {
        let part = KeyRange { first, end: Some(split.clone()) };
        assert!(weight(&part) <= weight(&all) / 2);
        sum += weight(&part);
        first = split.clone();
    }
    sum += weight(&KeyRange { first, end: None });
    assert_eq!(sum, weight(&all));
}

/// A table that is too short for split keys gets some once a merge cuts it, and when it is opened later:
/// otherwise what is left of it would count as the whole, and its space would never be claimed.
#[test]
fn the_rest_of_a_short_table_weighs_less_than_the_table() {
    let medium = Arc::new(MemoryMedium::new());
    let open = || {
        // Nothing merges the rest.
        let options = Options { settled_space: 100.0, space_max: 100.0, ..Options::default() };
        let builder = Db::on_medium(Arc::clone(&medium) as _).memory(64 << 20);
        builder.compaction_options(options).open().unwrap()
    };
    let mut db = open();
    let mut rng = Rng::new(3);
    let mut keyspace = db.open_or_create_keyspace("k").unwrap();
    let mut value = [0; 3000];
    for _ in 0..2 {
        for number in 0..200 {
            rng.fill(&mut value);
            keyspace.put(format!("{number:08}"), value).unwrap();
        }
        db.flush().unwrap();
    }
    keyspace.compact_range(..format!("{:08}", 180)).unwrap();
    for _ in 0..2 {
        let version = Arc::clone(&keyspace.tree().view().version);
        let cut = |it: &&Arc<tree::Piece>| it.range() != &it.entry().range;
        let mut pieces = 0;
        for piece in version.runs().iter().flat_map(|run| run.pieces()).filter(cut) {
            let (bytes, all) = (bytes_of(piece), piece.file().summary().bytes);
            assert!(bytes > 0 && bytes < all / 5, "{bytes} of {all}");
            pieces += 1;
        }
        assert_eq!(pieces, 2, "a merge cut both tables");
        (keyspace, db) = {
            drop((keyspace, db));
            let db = open();
            (db.open_or_create_keyspace("k").unwrap(), db)
        };
    }
}

//! The weight of a part of a table, as the planner sees it.

use std::sync::Arc;

use base::KeyRange;
use bytes::Bytes;
use compact::Horizon;
use media::MemoryMedium;
use tree::compaction::{bytes_of, weight_within};

use crate::Db;

/// What a merge of a part takes in is that part: taken for all of it, new keys would look superseded.
#[test]
fn what_a_piece_holds_is_the_sum_of_its_parts() {
    let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
    let keyspace = db.keyspace("k").unwrap();
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

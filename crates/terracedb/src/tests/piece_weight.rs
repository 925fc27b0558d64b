//! The weight of a piece (part of a table), as the compaction planner sees it.

use std::sync::Arc;

use base::KeyRange;
use bytes::Bytes;
use compact::Horizon;
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

//! Stores that are opened often and written little.

use std::sync::Arc;

use crate::common::{Stepped, memory};

/// Scenario: a tool opens the store, writes one key and closes it, many times.
#[test]
fn the_log_of_a_store_that_is_opened_often_stays_short() {
    let medium = memory();
    for round in 0..40u32 {
        // Closed at any point of the background work.
        let stepped = Stepped::new(round.into());
        let db = stepped.on(Arc::clone(&medium)).open().unwrap();
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        for earlier in 0..round {
            assert!(keyspace.get(earlier.to_be_bytes()).unwrap().is_some(), "{earlier} of {round}");
        }
        keyspace.put(round.to_be_bytes(), b"value").unwrap();
        stepped.work(u64::from(round % 8 * 5));
    }
    let names = medium.list().unwrap().into_iter().map(|listing| listing.name);
    let segments = names.filter(|name| name.starts_with("log-")).count();
    assert!(segments <= 8, "{segments} log segments");
}

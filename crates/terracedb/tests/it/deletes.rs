//! Point deletes: a reader pays for them until merges have taken them away, and no longer.
//!
//! Costs are pages asked for, cached or not, and never times.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use common::Stepped;
use compact::plan::Options;
use terracedb::{Db, Keyspace};

/// Keys deleted: enough for a few hundred pages of deletes, and as many again of what they delete.
fn deletes() -> u64 {
    if std::env::var_os("TERRACE_LONG").is_some() { 1_000_000 } else { 100_000 }
}

/// A store whose merges are small beside what is deleted.
fn open() -> (Db, Keyspace) {
    let options = Options { slice_bytes: 1 << 20, ..Options::default() };
    let db = Stepped::new(3).on(common::memory()).compaction_options(options).open().unwrap();
    let keyspace = db.keyspace("k").unwrap();
    (db, keyspace)
}

/// What was written is in tables, and they are merged as far as they would be by themselves.
fn settle(db: &Db) {
    db.flush().unwrap();
    db.wait_until_settled().unwrap();
}

/// How many pages one look for the first entry from `from` on asks for, and what it finds.
fn pages_of_seek(db: &Db, keyspace: &Keyspace, from: u64) -> (u64, u64) {
    let before = db.statistics().read_steps;
    let mut cursor = keyspace.cursor().unwrap();
    cursor.seek(from.to_be_bytes()).unwrap();
    let found = u64::from_be_bytes(cursor.key().unwrap().try_into().unwrap());
    (db.statistics().read_steps - before, found)
}

/// The most that one look may ask for: two pages in each run, for each of its two ends, and a few.
fn bound(db: &Db) -> u64 {
    8 + 8 * db.statistics().keyspaces[0].runs as u64
}

/// Scenario: the oldest nine tenths of a table are deleted key by key; who looks for the first entry
/// passes over all of them.
#[test]
fn a_seek_behind_many_deletes_reads_few_pages_once_settled() {
    let (db, keyspace) = open();
    let deleted = deletes();
    for number in 0..deleted + deleted / 10 {
        keyspace.put(number.to_be_bytes(), [b'v'; 60]).unwrap();
    }
    settle(&db);
    for number in 0..deleted {
        keyspace.delete(number.to_be_bytes()).unwrap();
    }
    let (before, found) = pages_of_seek(&db, &keyspace, 0);
    assert_eq!(found, deleted);
    settle(&db);
    for from in [0, deleted / 3, deleted - 1, deleted] {
        let (pages, found) = pages_of_seek(&db, &keyspace, from);
        assert_eq!(found, deleted, "from {from}");
        assert!(pages <= bound(&db), "{pages} pages from {from} on, {before} before");
    }
    assert!(before > 4 * bound(&db), "{before}: there was nothing to pass over");
}

/// Scenario: a queue. New entries come in at one end, and whoever takes the first one out at the
/// other looks for it behind all that were there before.
#[test]
fn the_head_of_a_queue_is_found_with_few_pages_once_settled() {
    let (db, keyspace) = open();
    let (deleted, length) = (deletes(), 1000);
    for number in 0..deleted + length {
        keyspace.put(number.to_be_bytes(), [b'v'; 60]).unwrap();
        if number >= length {
            keyspace.delete((number - length).to_be_bytes()).unwrap();
        }
        // As the store of a process that runs for long.
        if number % 20_000 == 0 {
            db.flush().unwrap();
        }
    }
    settle(&db);
    let (pages, found) = pages_of_seek(&db, &keyspace, 0);
    assert_eq!(found, deleted);
    assert!(pages <= bound(&db), "{pages} pages");
}

/// Scenario: one key of ten stays, so that no table is deleted as a whole.
#[test]
fn a_walk_among_deletes_reads_little_more_than_a_clean_store_does_once_settled() {
    let walk = |db: &Db, keyspace: &Keyspace| {
        let before = db.statistics().read_steps;
        let count = keyspace.iter().unwrap().map(Result::unwrap).count() as u64;
        (db.statistics().read_steps - before - count, count)
    };
    let (clean, kept) = open();
    let (db, keyspace) = open();
    for number in 0..deletes() {
        keyspace.put(number.to_be_bytes(), [b'v'; 60]).unwrap();
        if number % 10 == 0 {
            kept.put(number.to_be_bytes(), [b'v'; 60]).unwrap();
        }
    }
    settle(&db);
    for number in (0..deletes()).filter(|number| number % 10 != 0) {
        keyspace.delete(number.to_be_bytes()).unwrap();
    }
    settle(&db);
    settle(&clean);
    let ((pages, found), (least, expected)) = (walk(&db, &keyspace), walk(&clean, &kept));
    assert_eq!(found, expected);
    assert!(pages <= 2 * least + bound(&db), "{pages} pages, {least} of a clean store");
}

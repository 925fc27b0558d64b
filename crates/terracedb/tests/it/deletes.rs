//! Point deletes: readers pay for tombstones only until merges have dropped them.
//!
//! The cost is counted in pages requested, cached or not, never in time.

use compact::plan::Options;
use terracedb::{Db, Keyspace};

use crate::common::{self, Stepped};

/// Number of deleted keys: a few hundred pages of tombstones, and as many of the deleted entries.
fn deletes() -> u64 {
    if std::env::var_os("TERRACE_LONG").is_some() { 1_000_000 } else { 100_000 }
}

/// A store with merges that are small compared to the deletes.
fn open() -> (Db, Keyspace) {
    let options = Options { slice_bytes: 1 << 20, ..Options::default() };
    let db = Stepped::new(3).on(common::memory()).compaction_options(options).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    (db, keyspace)
}

/// Flushes all writes and waits until no compaction is due.
fn settle(db: &Db) {
    db.flush().unwrap();
    db.wait_until_settled().unwrap();
}

/// The number of pages that a seek to the first entry from `from` on requests, and the entry.
fn pages_of_seek(db: &Db, keyspace: &Keyspace, from: u64) -> (u64, u64) {
    let before = db.statistics().read_steps;
    let mut cursor = keyspace.cursor().unwrap();
    cursor.seek(from.to_be_bytes()).unwrap();
    let found = u64::from_be_bytes(cursor.key().unwrap().try_into().unwrap());
    (db.statistics().read_steps - before, found)
}

/// The most pages of one seek: two per run for each of its two ends, and a few more.
fn bound(db: &Db) -> u64 {
    8 + 8 * db.statistics().keyspaces[0].runs as u64
}

/// Scenario: the oldest nine tenths of a table are deleted key by key. A seek to the first entry passes all
/// tombstones.
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

/// Scenario: a queue. Entries are added at one end, and the consumer at the other end seeks past all
/// removed entries.
#[test]
fn the_head_of_a_queue_is_found_with_few_pages_once_settled() {
    let (db, keyspace) = open();
    let (deleted, length) = (deletes(), 1000);
    for number in 0..deleted + length {
        keyspace.put(number.to_be_bytes(), [b'v'; 60]).unwrap();
        if number >= length {
            keyspace.delete((number - length).to_be_bytes()).unwrap();
        }
        // Like the store of a long-running process.
        if number % 20_000 == 0 {
            db.flush().unwrap();
        }
    }
    settle(&db);
    let (pages, found) = pages_of_seek(&db, &keyspace, 0);
    assert_eq!(found, deleted);
    assert!(pages <= bound(&db), "{pages} pages");
}

/// Scenario: one key of ten stays, so no table is deleted as a whole.
#[test]
fn a_scan_among_tombstones_reads_little_more_than_a_clean_store_once_settled() {
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

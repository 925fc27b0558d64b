//! What a write was given, background work can carry: no store becomes one that cannot flush, merge or open
//! with the memory limit under which it was written.

use std::sync::Arc;

use base::ErrorKind;
use base::limits::KEYSPACES_MAX;
use media::Medium;
use terracedb::operators::Append;
use terracedb::{Db, Keyspace, KeyspaceOptions};

use crate::common::{self, Stepped, memory};

fn name(number: usize) -> String {
    format!("k{number}")
}

/// Puts one key into each of the keyspaces, which it creates if need be.
fn put_in_each(db: &Db, keyspaces: usize, value: &str) {
    for number in 0..keyspaces {
        db.open_or_create_keyspace(&name(number)).unwrap().put("key", value).unwrap();
    }
}

fn check_each(db: &Db, keyspaces: usize, value: &str) {
    for number in 0..keyspaces {
        let found = db.keyspace(&name(number)).unwrap().get("key").unwrap();
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "keyspace {number}");
    }
}

/// The smallest memory limit and the most keyspaces.
#[test]
fn a_store_with_the_most_keyspaces_is_flushed_reopened_and_shrunk() {
    let medium = memory();
    let open = |seed| Stepped::new(seed).on(Arc::clone(&medium) as Arc<dyn Medium>).open().unwrap();
    let db = open(1);
    put_in_each(&db, KEYSPACES_MAX, "logged");
    drop(db);
    let db = open(2);
    check_each(&db, KEYSPACES_MAX, "logged");
    db.flush().unwrap();
    put_in_each(&db, KEYSPACES_MAX, "newer");
    check_each(&db, KEYSPACES_MAX, "newer");
    db.flush().unwrap();
    let hot = db.keyspace(&name(7)).unwrap();
    for number in 0..400u32 {
        hot.put(number.to_be_bytes(), [b'v'; 100 << 10]).unwrap();
    }
    for number in KEYSPACES_MAX / 2..KEYSPACES_MAX {
        assert!(db.drop_keyspace(&name(number)).unwrap());
    }
    db.flush().unwrap();
    drop((hot, db));
    check_each(&open(3), KEYSPACES_MAX / 2, "newer");
}

/// A batch takes memory in each keyspace that it writes to.
#[test]
fn a_batch_over_the_most_keyspaces_is_written_and_replayed() {
    let medium = memory();
    let open = |seed| Stepped::new(seed).on(Arc::clone(&medium) as Arc<dyn Medium>).open().unwrap();
    let db = open(1);
    let mut batch = terracedb::WriteBatch::new();
    for number in 0..KEYSPACES_MAX {
        batch.put(&db.open_or_create_keyspace(&name(number)).unwrap(), "key", "value").unwrap();
    }
    for _ in 0..3 {
        db.write(&batch).unwrap();
    }
    drop(batch);
    drop(db);
    check_each(&open(2), KEYSPACES_MAX, "value");
}

/// Values near the limit of the smallest memory limit, and operands, which are stored with their keys.
#[test]
fn the_longest_values_and_operands_are_merged() {
    let medium = memory();
    let db = Stepped::new(1).on(Arc::clone(&medium) as Arc<dyn Medium>).open().unwrap();
    let options = KeyspaceOptions::new().merge_operator(Append::NAME);
    let keyspace = db.open_or_create_keyspace_opt("k", &options).unwrap();
    let long = common::noise((8 << 20) - 64);
    let mut ingest = keyspace.ingest().unwrap();
    ingest.put("b", &long).unwrap();
    ingest.finish().unwrap();
    for round in 0..6u8 {
        keyspace.put([b'a', round], "short").unwrap();
        keyspace.merge([b'c', round], &long).unwrap();
        keyspace.merge("d", &long[..1 << 20]).unwrap();
        keyspace.put([b'e', round], "short").unwrap();
        keyspace.flush().unwrap();
    }
    db.compact().unwrap();
    db.wait_until_settled().unwrap();
    assert!(keyspace.get("b").unwrap().as_deref() == Some(&long[..]));
    assert!(keyspace.get("c\u{3}").unwrap().as_deref() == Some(&long[..]));
    assert_eq!(keyspace.get("d").unwrap().unwrap().len(), 6 << 20);
    keyspace.delete_range::<&str>(..).unwrap();
    db.compact().unwrap();
    assert_eq!(db.statistics().keyspaces[0].table_bytes, 0);
}

/// More operands of one key than a read merges: only that key cannot be read.
#[test]
fn a_key_with_too_many_operands_hides_no_other_and_is_merged() {
    let db = Stepped::new(1).on(memory()).open().unwrap();
    let options = KeyspaceOptions::new().merge_operator(Append::NAME);
    let keyspace = db.open_or_create_keyspace_opt("k", &options).unwrap();
    for key in ["a", "c"] {
        keyspace.put(key, "short").unwrap();
    }
    let operand = common::noise(1 << 10);
    for number in 1..=12 << 10 {
        keyspace.merge("b", &operand).unwrap();
        if number == 7000 {
            db.compact().unwrap();
            assert_eq!(keyspace.get("b").unwrap().unwrap().len(), 7000 << 10);
        }
    }
    db.compact().unwrap();
    assert_eq!(keyspace.get("b").unwrap_err().kind(), ErrorKind::Invalid);
    let seen = |entries: Vec<terracedb::Result<_>>| -> Vec<Option<Vec<u8>>> {
        let key = |entry: terracedb::Result<(bytes::Bytes, bytes::Bytes)>| match entry {
            Ok((key, _)) => Some(key.to_vec()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                None
            }
        };
        entries.into_iter().map(key).collect()
    };
    let expected = [Some(b"a".to_vec()), None, Some(b"c".to_vec())];
    assert_eq!(seen(keyspace.iter().unwrap().continue_after_key_errors().collect()), expected);
    let mut backward = seen(keyspace.iter().unwrap().continue_after_key_errors().rev().collect());
    backward.reverse();
    assert_eq!(backward, expected);
    keyspace.delete("b").unwrap();
    db.compact().unwrap();
    assert_eq!(keyspace.get("b").unwrap(), None);
    assert_eq!(keyspace.iter().unwrap().filter(Result::is_ok).count(), 2);
}

/// A transaction whose every write was accepted is committed.
#[test]
fn the_largest_transaction_is_committed() {
    let db = Stepped::new(1).on(memory()).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let refused = |error: terracedb::Error| {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    };
    for bytes in [10, 300, 1 << 20] {
        let mut transaction = db.transaction();
        let mut accepted = 0u32;
        while let Ok(()) =
            transaction.put(&keyspace, accepted.to_be_bytes(), vec![b'v'; bytes]).map_err(refused)
        {
            accepted += 1;
        }
        transaction.commit().unwrap();
        let last = keyspace.get((accepted - 1).to_be_bytes()).unwrap();
        assert_eq!(last.map(|value| value.len()), Some(bytes));
    }
    let mut transaction = db.transaction();
    let mut accepted = 0u32;
    while let Ok(()) = transaction
        .delete_range(&keyspace, (2 * accepted).to_be_bytes()..(2 * accepted + 1).to_be_bytes())
        .map_err(refused)
    {
        accepted += 1;
    }
    transaction.commit().unwrap();
    assert_eq!(keyspace.get(0u32.to_be_bytes()).unwrap(), None);
    assert!(accepted > 10_000, "{accepted}");
}

/// Range deletes over the whole keyspace, each of one key of two, in scattered order, so that each table has
/// some of every part of the keyspace. Returns how many the store accepted, and the error of the next.
fn delete_every_other_key(keyspace: &Keyspace, keys: u32) -> (u32, Option<terracedb::Error>) {
    for number in 0..keys / 2 {
        let first = number * 7919 % (keys / 2) * 2;
        if let Err(error) = keyspace.delete_range(wide_key(first)..wide_key(first + 1)) {
            return (number, Some(error));
        }
    }
    (keys / 2, None)
}

fn wide_key(number: u32) -> String {
    format!("a common prefix {number:08}")
}

/// A snapshot keeps all of them: the store refuses them by name before it has too many to merge or to open.
#[test]
fn range_deletes_that_a_snapshot_keeps_are_merged_and_reopened() {
    const KEYS: u32 = 200_000;
    let medium = memory();
    let open = |seed| Stepped::new(seed).on(Arc::clone(&medium) as Arc<dyn Medium>).open().unwrap();
    let db = open(1);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..KEYS {
        keyspace.put(wide_key(number), number.to_be_bytes()).unwrap();
    }
    let snapshot = db.snapshot();
    let (accepted, error) = delete_every_other_key(&keyspace, KEYS);
    if let Some(error) = error {
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert_eq!(error.what(), "memory for range deletes", "{error}");
    }
    assert!(accepted > 30_000, "{accepted}");
    let left = (KEYS - accepted) as usize;
    db.compact().unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), left);
    assert_eq!(snapshot.iter(&keyspace).unwrap().count(), KEYS as usize);
    db.compact().unwrap();
    drop((keyspace, snapshot, db));
    let db = open(2);
    let keyspace = db.keyspace("k").unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), left);
    keyspace.put("b", "others are still written").unwrap();
    db.compact().unwrap();
    let memory = db.statistics().memory;
    let of_tables = memory.components.iter().find(|it| it.name == "range deletes").unwrap();
    assert_eq!(of_tables.used, 0, "merges drop what no snapshot needs");
    keyspace.delete_range(wide_key(0)..wide_key(9)).unwrap();
    assert_eq!(keyspace.get(wide_key(1)).unwrap(), None);
}

/// Merges drop range deletes before those of tables take too much memory: no refusal lasts.
#[test]
fn any_number_of_range_deletes_is_accepted_while_merges_drop_them() {
    const KEYS: u32 = 200_000;
    let db = Stepped::new(1).on(memory()).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..KEYS {
        keyspace.put(wide_key(number), number.to_be_bytes()).unwrap();
    }
    let mut refusals = 0;
    for number in 0..KEYS / 2 {
        let first = number * 7919 % (KEYS / 2) * 2;
        while let Err(error) = keyspace.delete_range(wide_key(first)..wide_key(first + 1)) {
            assert_eq!(error.when_to_retry(), terracedb::Retry::Later, "{error}");
            refusals += 1;
            assert!(refusals < 1000, "{error}, {:?}", db.statistics().compaction);
        }
    }
    db.compact().unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), KEYS as usize / 2);
}

/// Tables take memory for their metadata. A store refuses writes before it takes what background work needs,
/// and tells the limit; it opens again, and merges free metadata.
#[test]
fn writes_are_refused_before_table_metadata_takes_the_memory_of_background_work() {
    let medium = memory();
    let open = |seed| {
        let never = compact::plan::Options {
            fanout: 1000,
            settled_runs: 1000,
            space_max: 1000.0,
            settled_space: 1000.0,
            deletes_share: 1000.0,
            ..Default::default()
        };
        let builder = Stepped::new(seed).on(Arc::clone(&medium) as Arc<dyn Medium>);
        builder.compaction_options(never).open().unwrap()
    };
    let db = open(1);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    // The first and the last key of each table stay in memory.
    let long = |number: u32| [&number.to_be_bytes()[..], &[b'k'; 60 << 10][..]].concat();
    let mut refused = None;
    for number in 0..2000 {
        match keyspace.put(long(number), "v") {
            Ok(()) => keyspace.flush().unwrap(),
            Err(error) => {
                refused = Some((number, error));
                break;
            }
        }
    }
    let (tables, error) = refused.unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("16.5 MiB"), "{error}");
    assert_eq!(error.when_to_retry(), terracedb::Retry::Never);
    drop((keyspace, db));
    let db = open(2);
    let keyspace = db.keyspace("k").unwrap();
    assert!((0..tables).all(|number| keyspace.contains_key(long(number)).unwrap()));
    keyspace.delete_range::<&[u8]>(..).unwrap();
    db.compact().unwrap();
    keyspace.put(long(0), "again").unwrap();
}

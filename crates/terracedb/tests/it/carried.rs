//! What a write was given, background work can carry: no store becomes one that cannot flush, merge or open
//! with the memory limit under which it was written.

use std::sync::Arc;

use base::ErrorKind;
use base::limits::KEYSPACES_MAX;
use media::Medium;
use terracedb::operators::Append;
use terracedb::{Db, KeyspaceOptions};

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

//! A store whose batches each put one number to two keyspaces, which shows whether batches are whole.

use terracedb::{Db, Entry, Keyspace, Result, WriteBatch};

/// Writes batch `number`, with a value of `bytes` bytes.
pub(crate) fn put_pair(db: &Db, number: u64, bytes: usize) {
    let (one, two) =
        (db.open_or_create_keyspace("one").unwrap(), db.open_or_create_keyspace("two").unwrap());
    let value = vec![number as u8; bytes];
    let mut batch = WriteBatch::new();
    batch.put(&one, number.to_be_bytes(), &value).unwrap();
    batch.put(&two, number.to_be_bytes(), &value).unwrap();
    db.write(&batch).unwrap();
}

/// Asserts that every batch is whole and that the first `acknowledged` batches are present. Returns the
/// number of batches up to the first gap.
pub(crate) fn assert_pairs(db: &Db, acknowledged: u64, why: &str) -> u64 {
    assert!(db.recovery().damaged_tables.is_empty(), "{why}: {:?}", db.recovery());
    let numbers = |keyspace: &Keyspace| -> Vec<u64> {
        let number =
            |entry: Result<Entry>| u64::from_be_bytes(entry.unwrap().0[..].try_into().unwrap());
        keyspace.iter().unwrap().map(number).collect()
    };
    let one = numbers(&db.open_or_create_keyspace("one").unwrap());
    let two = numbers(&db.open_or_create_keyspace("two").unwrap());
    assert!(one == two, "{why}: {} and {} numbers", one.len(), two.len());
    let first = (0..).zip(&one).take_while(|(at, number)| at == *number).count() as u64;
    assert!(first >= acknowledged, "{why}: {acknowledged} acknowledged, {first} there");
    first
}

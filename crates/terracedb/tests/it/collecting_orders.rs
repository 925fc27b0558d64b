//! Puts, deletes and collections of a key in every order: no deleted key comes back, and no older version.

use std::sync::Arc;

use media::{Medium, MemoryMedium};
use terracedb::{Db, Keyspace};

use crate::index_checkpoints::{Store, checkpoints};

/// Collections, each after some writes to each key.
const ROUNDS: u32 = 3;

/// What is written to a key before a collection: versions in order, `false` for a delete.
const WRITES: [&[bool]; 5] = [&[], &[true], &[false], &[true, false], &[false, true]];

/// A key for every choice of writes in all rounds.
const KEYS: u64 = (WRITES.len() as u64).pow(ROUNDS);

/// Long, so that the moved entries of a round fill segments, which later rounds collect.
const VALUE_BYTES: usize = 12 << 10;

fn writes(key: u64, round: u32) -> &'static [bool] {
    WRITES[(key / (WRITES.len() as u64).pow(round)) as usize % WRITES.len()]
}

fn value(key: u64, round: u32) -> Vec<u8> {
    [&key.to_le_bytes()[..], &vec![round as u8; VALUE_BYTES]].concat()
}

/// Makes most of the log dead, and lets the collector work. Returns the entries that it moved.
fn collect(store: &Store, db: &Db, keyspace: &Keyspace) -> u64 {
    let moved = |db: &Db| db.statistics().log_collection.moved_entries;
    let before = moved(db);
    for number in 0..100u64 {
        let key = KEYS + number % 2;
        keyspace.put(key.to_be_bytes(), vec![number as u8; 100 << 10]).unwrap();
    }
    db.flush().unwrap();
    store.stepped.work(2000);
    moved(db) - before
}

/// Checks every key after `round`.
fn assert_newest(keyspace: &Keyspace, round: u32, why: &str) {
    let mut live = 2;
    for key in 0..KEYS {
        let newest = (0..=round).rev().find_map(|round| Some((round, writes(key, round).last()?)));
        let expected = newest.filter(|(_, is_put)| **is_put).map(|(round, _)| value(key, round));
        live += usize::from(expected.is_some());
        let got = keyspace.get(key.to_be_bytes()).unwrap();
        assert!(got.as_deref() == expected.as_deref(), "{why}, round {round}: {key} {newest:?}");
    }
    assert_eq!(keyspace.entries().unwrap().count(), live, "{why}, round {round}");
}

fn in_every_order(lanes: u16, flushes: bool) {
    let why = format!("{lanes} lanes, flushes between two writes: {flushes}");
    let device = Arc::new(MemoryMedium::new());
    let store = Store::new(Arc::clone(&device) as _, 1);
    let mut moved = 0;
    for round in 0..ROUNDS {
        let (db, keyspace) = store.open(lanes).unwrap();
        for at in 0..2 {
            for key in 0..KEYS {
                match writes(key, round).get(at) {
                    Some(true) => keyspace.put(key.to_be_bytes(), value(key, round)).unwrap(),
                    Some(false) => keyspace.delete(key.to_be_bytes()).unwrap(),
                    None => {}
                }
            }
            if flushes {
                db.flush().unwrap();
            }
        }
        moved += collect(&store, &db, &keyspace);
        assert_newest(&keyspace, round, &why);
        drop((keyspace, db));
        // Once with the checkpoint of the index, if there is one, and once with a replay of the whole log.
        for without in [false, true] {
            if without {
                checkpoints(&*device).iter().for_each(|name| device.remove(name).unwrap());
            }
            let (_db, keyspace) = store.open(lanes).unwrap();
            assert_newest(&keyspace, round, &format!("{why}, full replay: {without}"));
        }
    }
    assert!(moved > 2 * KEYS, "{why}: {moved} entries were moved");
}

#[test]
fn no_key_comes_back_whatever_the_order_of_writes_and_collections() {
    in_every_order(1, false);
    in_every_order(2, true);
}

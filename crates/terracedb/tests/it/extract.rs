//! Deletes at a cursor: `retain`, `extract_if` and `drain`, beside a model, and beside other writes.

use std::collections::BTreeMap;

use base::Rng;
use terracedb::hashed::HashedPolicy;
use terracedb::{Db, Entry, ErrorKind, Keyspace, KeyspaceOptions, Result};

use crate::common;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u64) -> Vec<u8> {
    (number as u16).to_be_bytes().to_vec()
}

fn open() -> (Db, Keyspace) {
    let db = common::stepped(&common::memory(), 1).open().unwrap();
    let keyspace = db.create_keyspace("k").unwrap();
    (db, keyspace)
}

fn pair(entry: Result<Entry>) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = entry.unwrap();
    (key.to_vec(), value.to_vec())
}

/// Removes what `picks` picks from the first `most` entries that it picks in `start..end`, and returns it.
fn taken(
    model: &mut Model,
    (start, end): (&Vec<u8>, &Vec<u8>),
    most: usize,
    picks: impl Fn(&[u8], &[u8]) -> bool,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let range = if start <= end { start.clone()..end.clone() } else { vec![]..vec![] };
    let picked = model.range(range).filter(|(key, value)| picks(key, value)).take(most);
    let picked: Vec<_> = picked.map(|(key, value)| (key.clone(), value.clone())).collect();
    picked.iter().for_each(|(key, _)| drop(model.remove(key)));
    picked
}

#[test]
fn deletes_at_a_cursor_agree_with_a_model() {
    for seed in 0..8 {
        let ((db, keyspace), mut rng) = (open(), Rng::new(seed));
        let mut model = Model::new();
        for step in 0..250u32 {
            for _ in 0..rng.below(40) {
                let (key, value) = (key(rng.below(400)), step.to_be_bytes().to_vec());
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            let (start, end) = (key(rng.below(400)), key(rng.below(450)));
            let (part, most) = (1 + rng.below(4) as u8, rng.below(30) as usize);
            let picks = |key: &[u8], _: &[u8]| key[1].is_multiple_of(part);
            let bounds = || start.clone()..end.clone();
            match rng.below(8) {
                0 => {
                    let deleted =
                        keyspace.retain(bounds(), |key, value| !picks(key, value)).unwrap();
                    let expected = taken(&mut model, (&start, &end), usize::MAX, picks).len();
                    assert_eq!(deleted as usize, expected);
                }
                1 => {
                    let found = keyspace.extract_if(bounds(), picks).unwrap().take(most).map(pair);
                    assert!(found.eq(taken(&mut model, (&start, &end), most, picks)));
                }
                2 => {
                    let found = keyspace.drain(bounds()).unwrap().take(most).map(pair);
                    assert!(found.eq(taken(&mut model, (&start, &end), most, |_, _| true)));
                }
                3 => db.flush().unwrap(),
                _ => {
                    // All three in one transaction, over its own writes; half of them are given up.
                    let (mut transaction, mut own) = (db.transaction(), model.clone());
                    for number in 0..rng.below(30) {
                        let (key, value) = (key(rng.below(400)), number.to_be_bytes().to_vec());
                        transaction.put(&keyspace, &key, &value).unwrap();
                        own.insert(key, value);
                    }
                    let extracted = transaction.extract_if(&keyspace, bounds(), picks);
                    let found = extracted.unwrap().take(most).map(pair);
                    assert!(found.eq(taken(&mut own, (&start, &end), most, picks)));
                    let drained = transaction.drain(&keyspace, bounds()).unwrap();
                    let found = drained.take(most / 2).map(pair);
                    assert!(found.eq(taken(&mut own, (&start, &end), most / 2, |_, _| true)));
                    let keep = |key: &[u8], value: &[u8]| !picks(key, value);
                    let deleted = transaction.retain(&keyspace, bounds(), keep).unwrap();
                    let expected = taken(&mut own, (&start, &end), usize::MAX, picks).len();
                    assert_eq!(deleted as usize, expected);
                    if rng.below(2) == 0 {
                        transaction.commit().unwrap();
                        model = own;
                    }
                }
            }
            assert!(keyspace.iter().unwrap().map(pair).eq(model.clone()), "seed {seed}");
        }
    }
}

/// A retain of many entries takes several commits, each of many.
#[test]
fn a_retain_commits_its_deletes_in_chunks() {
    let (db, keyspace) = open();
    (0..5000).for_each(|number| keyspace.put(key(number), b"value").unwrap());
    let before = db.statistics().transactions;
    let is_even = |key: &[u8]| key[1].is_multiple_of(2);
    assert_eq!(keyspace.retain::<&[u8]>(.., |key, _| is_even(key)).unwrap(), 2500);
    assert_eq!(db.statistics().transactions - before, 3);
    assert!(keyspace.iter().unwrap().all(|entry| is_even(&entry.unwrap().0)));
}

/// The predicate itself writes to the entries that it sees: it sees those again, with their new values.
#[test]
fn an_entry_that_another_write_changed_is_looked_at_again() {
    let (_db, keyspace) = open();
    for number in 0..40 {
        keyspace.put(key(number), b"old").unwrap();
    }
    let mut changes = |seen: &[u8], value: &[u8]| {
        if value == b"old" && seen[1].is_multiple_of(4) {
            keyspace.put(seen, b"kept").unwrap();
        } else if value == b"old" && seen[1] % 4 == 1 {
            keyspace.put(seen, b"changed").unwrap();
        } else if value == b"old" && seen[1] % 4 == 2 {
            keyspace.delete(seen).unwrap();
        }
        value != b"kept"
    };
    let found: Vec<_> =
        keyspace.extract_if(key(0)..key(20), &mut changes).unwrap().map(pair).collect();
    let expected = (0..20).filter(|number| number % 2 == 1);
    let value = |number: u64| if number % 4 == 1 { b"changed".to_vec() } else { b"old".to_vec() };
    assert!(found.into_iter().eq(expected.map(|number| (key(number), value(number)))));
    assert_eq!(keyspace.retain(key(20).., |key, value| !changes(key, value)).unwrap(), 10);
    let left = keyspace.iter().unwrap().map(pair);
    let kept = (0..40).filter(|number| number % 4 == 0);
    assert!(left.eq(kept.map(|number| (key(number), b"kept".to_vec()))));
}

#[test]
fn a_hashed_keyspace_refuses_deletes_at_a_cursor_by_name() {
    let db = common::stepped(&common::memory(), 1).open().unwrap();
    let options = KeyspaceOptions::new().hashed(HashedPolicy::Keep);
    let hashed = db.create_keyspace_opt("h", &options).unwrap();
    let mut transaction = db.transaction();
    for error in [
        hashed.retain::<&[u8]>(.., |_, _| true).unwrap_err(),
        hashed.drain::<&[u8]>(..).map(drop).unwrap_err(),
        transaction.drain::<&[u8]>(&hashed, ..).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains("delete at a cursor") && text.contains("`h`"), "{text}");
    }
}

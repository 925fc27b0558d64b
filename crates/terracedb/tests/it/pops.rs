//! Pops, and walks over the tombstones that they leave: counted, not timed.

use std::collections::BTreeMap;
use std::thread;

use base::Rng;
use terracedb::hashed::HashedPolicy;
use terracedb::{Db, ErrorKind, Keyspace, KeyspaceOptions};

use crate::common::{self, Stepped};

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn stepped_over(db: &Db) -> u64 {
    db.statistics().keyspaces[0].walks.stepped_over
}

fn open() -> (Db, Keyspace) {
    let db = common::stepped(&common::memory(), 1).open().unwrap();
    let keyspace = db.create_keyspace("k").unwrap();
    (db, keyspace)
}

/// The first or the last key, taken again and again, with or without tables below.
#[test]
fn a_queue_steps_over_few_versions_a_pop() {
    for (is_first, flushes, keys) in [
        (true, false, 100_000),
        (false, false, 30_000),
        (true, true, 30_000),
        (false, true, 30_000),
    ] {
        let (db, keyspace) = open();
        (0..keys).for_each(|number| keyspace.put(key(number), b"job").unwrap());
        if flushes {
            db.flush().unwrap();
        }
        let before = stepped_over(&db);
        for pop in 0..keys {
            let number = if is_first { pop } else { keys - 1 - pop };
            let popped = if is_first { keyspace.pop_first() } else { keyspace.pop_last() };
            let (popped, value) = popped.unwrap().unwrap();
            assert_eq!((&popped[..], &value[..]), (&key(number)[..], &b"job"[..]));
            if flushes && pop % 10_000 == 5000 {
                db.flush().unwrap();
            }
        }
        assert!(keyspace.pop_first().unwrap().is_none() && keyspace.pop_last().unwrap().is_none());
        let steps = (stepped_over(&db) - before) / u64::from(keys);
        assert!(steps <= 64, "{steps} versions a pop, first: {is_first}, flushes: {flushes}");
        let walks = db.statistics().keyspaces[0].walks;
        assert!(walks.dead_spans > 0 && walks.jumps > u64::from(keys) / 2, "{walks:?}");
    }
}

/// Entries are put behind the queue, before it and into its middle while it is popped.
#[test]
fn pops_and_walks_see_what_a_model_says() {
    for seed in 0..6 {
        let (db, keyspace) = open();
        let mut rng = Rng::new(seed);
        let mut model = BTreeMap::new();
        let mut snapshots = Vec::new();
        for step in 0..4000u32 {
            let number = rng.below(600) as u32;
            match rng.below(100) {
                0..25 => {
                    keyspace.put(key(number), step.to_be_bytes()).unwrap();
                    model.insert(key(number), step.to_be_bytes());
                }
                25..30 => {
                    keyspace.delete(key(number)).unwrap();
                    model.remove(&key(number));
                }
                30..31 => {
                    let end = number + rng.below(40) as u32;
                    keyspace.delete_range(key(number)..key(end)).unwrap();
                    model.retain(|at, _| *at < key(number) || *at >= key(end));
                }
                31..62 => assert_eq!(pair(keyspace.pop_first().unwrap()), model.pop_first()),
                62..88 => assert_eq!(pair(keyspace.pop_last().unwrap()), model.pop_last()),
                88..92 => {
                    let all = || model.iter().map(|(key, value)| (*key, *value));
                    let range = || keyspace.range(key(number)..).unwrap();
                    let rest = range().map(|entry| pair(Some(entry.unwrap())).unwrap());
                    assert!(rest.eq(all().filter(|(at, _)| *at >= key(number))));
                    let back = range().rev().map(|entry| pair(Some(entry.unwrap())).unwrap());
                    assert!(back.eq(all().filter(|(at, _)| *at >= key(number)).rev()));
                }
                92..94 => db.flush().unwrap(),
                94..95 => db.compact().unwrap(),
                95..96 if snapshots.len() < 4 => snapshots.push((db.snapshot(), model.clone())),
                96..97 => drop(snapshots.pop()),
                97..98 => {
                    let mut ingest = keyspace.ingest().unwrap();
                    ingest.put(key(number), step.to_be_bytes()).unwrap();
                    ingest.finish().unwrap();
                    model.insert(key(number), step.to_be_bytes());
                }
                _ => {
                    for (snapshot, model) in &snapshots {
                        let entries = snapshot.iter(&keyspace).unwrap();
                        let entries = entries.map(|entry| pair(Some(entry.unwrap())).unwrap());
                        assert!(entries.eq(model.iter().map(|(key, value)| (*key, *value))));
                    }
                    // The middle is emptied, so that walks note spans there.
                    for number in 100..400 {
                        keyspace.delete(key(number)).unwrap();
                        model.remove(&key(number));
                    }
                }
            }
        }
        assert!(db.statistics().keyspaces[0].walks.jumps > 0, "seed {seed}");
    }
}

/// A key between dead ones is hidden by a range delete that an earlier reader does not see.
#[test]
fn a_span_is_not_noted_over_keys_that_a_range_delete_hides() {
    let (db, keyspace) = open();
    (0..80).for_each(|number| keyspace.put(key(number), b"job").unwrap());
    (0..80).filter(|number| *number != 40).for_each(|number| keyspace.delete(key(number)).unwrap());
    let before = db.snapshot();
    keyspace.delete_range(key(40)..key(41)).unwrap();
    let entries = |back: bool| {
        let (mut now, mut then) = (keyspace.iter().unwrap(), before.iter(&keyspace).unwrap());
        match back {
            false => (now.next().is_none(), then.next().unwrap().unwrap().0),
            true => (now.next_back().is_none(), then.next_back().unwrap().unwrap().0),
        }
    };
    for back in [false, true, false, true] {
        let (is_empty, living) = entries(back);
        assert!(is_empty && living[..] == key(40), "{back}");
    }
}

fn pair(entry: Option<(bytes::Bytes, bytes::Bytes)>) -> Option<([u8; 4], [u8; 4])> {
    entry.map(|(key, value)| ((&key[..]).try_into().unwrap(), (&value[..]).try_into().unwrap()))
}

/// Producers at the end, consumers at the start: every entry is popped once.
#[test]
fn concurrent_consumers_pop_every_entry_once() {
    const EACH: u32 = 2000;
    let db = common::threaded(&common::memory()).open().unwrap();
    let keyspace = db.create_keyspace("k").unwrap();
    let popped: Vec<u32> = thread::scope(|scope| {
        for producer in 0..2 {
            let keyspace = &keyspace;
            scope.spawn(move || {
                for number in 0..EACH {
                    keyspace.put(key(number * 2 + producer), b"job").unwrap();
                }
            });
        }
        let consume = || {
            let mut popped = Vec::new();
            while popped.len() < EACH as usize {
                match keyspace.pop_first() {
                    Ok(Some((key, _))) => {
                        popped.push(u32::from_be_bytes((&key[..]).try_into().unwrap()));
                    }
                    Ok(None) => thread::yield_now(),
                    Err(error) => assert!(error.is_conflict(), "{error}"),
                }
            }
            popped
        };
        let consumers = [scope.spawn(consume), scope.spawn(consume)];
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    let mut sorted = popped;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..2 * EACH));
    assert!(keyspace.pop_first().unwrap().is_none());
}

#[test]
fn a_transaction_pops_on_from_its_own_pops() {
    let (db, keyspace) = open();
    (0..3000).for_each(|number| keyspace.put(key(number), b"job").unwrap());
    let mut transaction = db.transaction();
    let before = stepped_over(&db);
    for number in 0..1000 {
        assert_eq!(&transaction.pop_first(&keyspace).unwrap().unwrap().0[..], key(number));
        let last = transaction.pop_last(&keyspace).unwrap().unwrap();
        assert_eq!(&last.0[..], key(2999 - number));
    }
    assert!(stepped_over(&db) - before < 8000);
    transaction.put(&keyspace, key(3), b"again").unwrap();
    assert_eq!(&transaction.pop_first(&keyspace).unwrap().unwrap().1[..], b"again");
    assert_eq!(&transaction.pop_first(&keyspace).unwrap().unwrap().0[..], key(1000));
    transaction.commit().unwrap();
    assert_eq!(&keyspace.pop_first().unwrap().unwrap().0[..], key(1001));
    // A write before the popped key is a conflict.
    let mut transaction = db.transaction();
    assert!(transaction.pop_first(&keyspace).unwrap().is_some());
    keyspace.put(key(5), b"first").unwrap();
    assert!(transaction.commit().unwrap_err().is_conflict());
}

/// Pages that reads looked up.
fn lookups(db: &Db) -> u64 {
    let data = db.statistics().cache.data;
    data.hits + data.misses
}

/// Each time, an iterator finds the entry behind those that the transaction deleted already.
#[test]
fn iterators_of_a_transaction_jump_over_its_own_deletes() {
    for is_first in [true, false] {
        let (db, keyspace) = open();
        let number_of = |taken: u32| if is_first { 1 + taken } else { 3999 - taken };
        (0..=4000).for_each(|number| keyspace.put(key(number), [7; 400]).unwrap());
        db.flush().unwrap();
        let mut transaction = db.transaction();
        let before = lookups(&db);
        for taken in 0..3900 {
            // The entry at either end stays, so that each walk meets the deleted keys in its middle.
            let mut entries = transaction.iter(&keyspace).unwrap();
            let mut next = || if is_first { entries.next() } else { entries.next_back() };
            let (first, second) = (next().unwrap().unwrap(), next().unwrap().unwrap());
            assert_eq!(first.0[..], key(if is_first { 0 } else { 4000 }));
            assert_eq!(second.0[..], key(number_of(taken)));
            transaction.delete(&keyspace, &second.0).unwrap();
        }
        let pages = (lookups(&db) - before) / 3900;
        assert!(pages <= 20, "{pages} pages a step, first: {is_first}");
        transaction.commit().unwrap();
        assert_eq!(keyspace.iter().unwrap().count(), 101);
    }
}

/// Iterators from both ends, some older than later writes, over own puts, deletes and range deletes.
#[test]
fn iterators_of_a_transaction_see_what_a_model_says() {
    type Model = BTreeMap<[u8; 4], [u8; 4]>;
    for seed in 0..6 {
        let (db, keyspace) = open();
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        for number in (0..400).step_by(2) {
            keyspace.put(key(number), key(number)).unwrap();
            model.insert(key(number), key(number));
        }
        db.flush().unwrap();
        let mut transaction = db.transaction();
        let mut older = None;
        for step in 0..1500u32 {
            let number = rng.below(400) as u32;
            match rng.below(20) {
                0..3 => {
                    transaction.put(&keyspace, key(number), step.to_be_bytes()).unwrap();
                    model.insert(key(number), step.to_be_bytes());
                }
                3..9 => {
                    for number in number..number + rng.below(12) as u32 {
                        transaction.delete(&keyspace, key(number)).unwrap();
                        model.remove(&key(number));
                    }
                }
                9 => {
                    let end = number + rng.below(40) as u32;
                    transaction.delete_range(&keyspace, key(number)..key(end)).unwrap();
                    model.retain(|at, _| *at < key(number) || *at >= key(end));
                }
                10 => {
                    let popped = transaction.pop_first(&keyspace).unwrap();
                    assert_eq!(pair(popped), model.pop_first(), "seed {seed}");
                }
                11 => {
                    let popped = transaction.pop_last(&keyspace).unwrap();
                    assert_eq!(pair(popped), model.pop_last(), "seed {seed}");
                }
                12 => older = Some((transaction.iter(&keyspace).unwrap(), model.clone())),
                13 => older = None,
                _ => {
                    let range = transaction.range(&keyspace, key(number)..).unwrap();
                    let rest: Model = model.range(key(number)..).map(|(k, v)| (*k, *v)).collect();
                    let walks = [Some((range, rest)), older.take()];
                    let mut walks = walks.map(Option::into_iter).into_iter().flatten();
                    let mut check = |walk: Option<(terracedb::iter::TransactionIter, Model)>,
                                     most| {
                        let (mut entries, mut model) = walk?;
                        for _ in 0..rng.below(most) {
                            let (found, expected) = match rng.below(2) {
                                0 => (entries.next(), model.pop_first()),
                                _ => (entries.next_back(), model.pop_last()),
                            };
                            assert_eq!(pair(found.transpose().unwrap()), expected, "seed {seed}");
                        }
                        Some((entries, model))
                    };
                    check(walks.next(), 450);
                    older = check(walks.next(), 8);
                }
            }
        }
    }
}

#[test]
fn a_hashed_keyspace_refuses_pops_by_name() {
    let db = common::stepped(&common::memory(), 1).open().unwrap();
    let hashed =
        db.create_keyspace_opt("h", &KeyspaceOptions::new().hashed(HashedPolicy::Keep)).unwrap();
    for error in [hashed.pop_first().unwrap_err(), hashed.pop_last().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("pop") && error.to_string().contains("`h`"), "{error}");
    }
    let mut transaction = db.transaction();
    assert!(transaction.pop_first(&hashed).is_err() && transaction.pop_last(&hashed).is_err());
}

/// A walk without dead spans behind taken keys crosses no more than the tombstones of a part of a memtable,
/// and the versions that they hide.
#[test]
fn tombstones_are_flushed_early_and_their_tables_merged() {
    const TAKEN: u32 = 60_000;
    let stepped = Stepped::with_memory(1, 64 << 20);
    let db = stepped.on(common::memory()).open().unwrap();
    let keyspace = db.create_keyspace("k").unwrap();
    (0..TAKEN + 10).for_each(|number| keyspace.put(key(number), b"job").unwrap());
    db.flush().unwrap();
    for number in 0..TAKEN {
        keyspace.delete(key(number)).unwrap();
        if number % 1000 == 0 {
            stepped.work(50);
        }
    }
    stepped.work(500);
    let levels = &db.statistics().keyspaces[0].levels;
    let (entries, deletes) =
        levels.iter().fold((0, 0), |sum, it| (sum.0 + it.entries, sum.1 + it.deletes));
    let before = stepped_over(&db);
    assert_eq!(&keyspace.iter().unwrap().next().unwrap().unwrap().0[..], key(TAKEN));
    let crossed = stepped_over(&db) - before;
    assert!(deletes < 1000 && entries < 15_000, "{entries} entries, {deletes} tombstones");
    assert!(crossed < 2 * 15_000, "{crossed} versions crossed");
}

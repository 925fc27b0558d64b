//! Walks of a key range end at its bound: counted, not timed.

use terracedb::{Db, Keyspace};

use crate::common;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Keys with a value, between deleted ones.
const LIVING: u32 = 20;

fn open() -> (Db, Keyspace) {
    let db = common::stepped(&common::memory(), 1).open().unwrap();
    let keyspace = db.create_keyspace("k").unwrap();
    (db, keyspace)
}

fn put(keyspace: &Keyspace, keys: std::ops::Range<u32>) {
    keys.for_each(|number| keyspace.put(key(number), b"value").unwrap());
}

fn delete(keyspace: &Keyspace, keys: std::ops::Range<u32>) {
    keys.for_each(|number| keyspace.delete(key(number)).unwrap());
}

/// Flushes apart from the puts, so that a flush does not drop the tombstones.
fn flush_if(db: &Db, flushes: bool) {
    if flushes {
        db.flush().unwrap();
    }
}

#[test]
fn a_range_does_not_step_over_the_dead_keys_behind_it() {
    const DEAD: u32 = 5000;
    for flushes in [false, true] {
        let (db, keyspace) = open();
        put(&keyspace, 0..2 * DEAD + LIVING);
        flush_if(&db, flushes);
        delete(&keyspace, 0..DEAD);
        delete(&keyspace, DEAD + LIVING..2 * DEAD + LIVING);
        flush_if(&db, flushes);
        let living = key(DEAD)..key(DEAD + LIVING);
        let range = || keyspace.range(living.clone()).unwrap().map(|entry| entry.unwrap().0);
        assert_eq!((range().count(), range().rev().count()), (LIVING as usize, LIVING as usize));
        let stepped_over = db.statistics().keyspaces[0].walks.stepped_over;
        assert!(stepped_over <= u64::from(8 * LIVING), "{stepped_over}, flushes: {flushes}");
    }
}

/// Each flush makes a run of its own keys; the walk of one run's keys reads none of the others.
#[test]
fn a_range_leaves_out_the_runs_whose_keys_are_outside() {
    const RUNS: u32 = 6;
    const KEYS: u32 = 100;
    let (db, keyspace) = open();
    // With the last key in common, so that the tables are runs.
    for run in (0..RUNS).rev() {
        put(&keyspace, run * KEYS..run * KEYS + KEYS);
        keyspace.put(key(u32::MAX), b"last").unwrap();
        db.flush().unwrap();
    }
    let walks = || db.statistics().keyspaces[0].walks;
    assert_eq!(db.statistics().keyspaces[0].runs, RUNS as usize);
    let before = walks();
    let found = keyspace.range(key(KEYS)..key(2 * KEYS)).unwrap();
    assert_eq!(found.filter(Result::is_ok).count(), KEYS as usize);
    // Runs 2 to 5 begin behind the range; run 0 has keys on both sides of it.
    assert_eq!(walks().seek_runs - before.seek_runs, 2);
    // As above, with the first key in common.
    let (db, keyspace) = open();
    for run in 0..RUNS {
        put(&keyspace, run * KEYS + 1..run * KEYS + KEYS);
        keyspace.put(key(0), b"first").unwrap();
        db.flush().unwrap();
    }
    let found = keyspace.range(key(4 * KEYS)..key(5 * KEYS)).unwrap().rev();
    assert_eq!(found.filter(Result::is_ok).count(), KEYS as usize - 1);
    // Runs 0 to 3 end before the range; run 5 has keys on both sides of it.
    assert_eq!(db.statistics().keyspaces[0].walks.seek_runs, 2);
}

/// The note of a walk that ended at its lower bound says nothing of the keys before it.
#[test]
fn a_dead_span_ends_at_the_bound_of_the_walk_that_noted_it() {
    for (flushes, is_forward) in [(false, false), (false, true), (true, false), (true, true)] {
        let (db, keyspace) = open();
        put(&keyspace, 0..300);
        flush_if(&db, flushes);
        delete(&keyspace, 100..200);
        flush_if(&db, flushes);
        let mut range = keyspace.range(key(120)..key(180)).unwrap();
        assert!(if is_forward { range.next() } else { range.next_back() }.is_none());
        assert_eq!(db.statistics().keyspaces[0].walks.dead_spans, 1);
        let all = || keyspace.iter().unwrap().map(|entry| entry.unwrap().0);
        assert_eq!((all().count(), all().rev().count()), (200, 200), "flushes: {flushes}");
        let before = keyspace.range(..key(180)).unwrap().next_back().unwrap().unwrap();
        let after = keyspace.range(key(120)..).unwrap().next().unwrap().unwrap();
        assert_eq!((&before.0[..], &after.0[..]), (&key(99)[..], &key(200)[..]));
    }
}

//! Missing keys in a store of several runs: filters are probed without the page cache. Probes of the cache
//! are counted, not time.

use std::sync::Arc;

use media::MemoryMedium;
use terracedb::{Db, Keyspace};

use crate::common::Stepped;

const KEYS: u32 = 4000;
const RUNS: u32 = 6;

fn key(number: u32) -> [u8; 8] {
    u64::from(number.wrapping_mul(0x9e37_79b1)).to_be_bytes()
}

/// A store in which every run has each number that leaves its own number as the rest, of `RUNS + 1`.
fn store() -> (Stepped, Db, Keyspace) {
    let stepped = Stepped::with_memory(1, 256 << 20);
    let db = stepped.on(Arc::new(MemoryMedium::new())).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for run in 0..RUNS {
        for number in (run..KEYS).step_by(RUNS as usize + 1) {
            keyspace.put(key(number), format!("{number:08} of {run}")).unwrap();
        }
        db.flush().unwrap();
    }
    assert_eq!(db.statistics().keyspaces[0].levels[0].runs, RUNS as usize);
    (stepped, db, keyspace)
}

/// Lookups of metadata pages in the cache.
fn probes(db: &Db) -> u64 {
    let meta = db.statistics().cache.meta;
    meta.hits + meta.misses
}

/// Gets every missing key; returns the lookups of metadata pages a get.
fn get_missing(db: &Db, keyspace: &Keyspace) -> f64 {
    let before = probes(db);
    let numbers = (RUNS..KEYS).step_by(RUNS as usize + 1);
    let gets = numbers.map(|number| assert_eq!(keyspace.get(key(number)).unwrap(), None)).count();
    (probes(db) - before) as f64 / gets as f64
}

fn get_present(keyspace: &Keyspace) {
    for number in (0..KEYS).filter(|number| number % (RUNS + 1) != RUNS) {
        let value = keyspace.get(key(number)).unwrap().unwrap();
        assert!(value.starts_with(format!("{number:08}").as_bytes()));
    }
}

#[test]
fn a_missing_key_asks_the_page_cache_for_no_filter() {
    let (_stepped, db, keyspace) = store();
    let pages = get_missing(&db, &keyspace);
    let held = get_missing(&db, &keyspace);
    assert!(pages < 1.0 && held < 0.1, "{pages}, then {held} lookups a get in {RUNS} runs");
    get_present(&keyspace);
    let memory = db.statistics().memory;
    let filters = memory.components.iter().find(|it| it.name == "filters").unwrap();
    assert!((3000..30_000).contains(&filters.used), "{filters:?}");
}

/// A run whose filter rules the key out may delete it all the same, and versions stay visible to their
/// snapshots.
#[test]
fn range_deletes_snapshots_and_reopened_runs_are_seen_past_held_filters() {
    let (_stepped, db, keyspace) = store();
    get_missing(&db, &keyspace);
    get_present(&keyspace);
    let before = db.snapshot();
    keyspace.delete_range(&[][..]..&[0x80][..]).unwrap();
    keyspace.put(key(1), b"new").unwrap();
    db.flush().unwrap();
    // Holds the filter of the run with the range delete.
    for _ in 0..2 {
        for number in (0..KEYS).filter(|number| number % (RUNS + 1) != RUNS) {
            let is_there = number == 1 || key(number) >= [0x80, 0, 0, 0, 0, 0, 0, 0];
            assert_eq!(keyspace.get(key(number)).unwrap().is_some(), is_there, "{number}");
            assert!(before.get(&keyspace, key(number)).unwrap().is_some(), "{number}");
        }
    }
}

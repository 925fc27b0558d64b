//! Child processes on a real directory: one killed at any moment, and two on one store.
//!
//! I11: the death of the process loses no acknowledged write, at any durability, and leaves every batch
//! whole or absent.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use base::{Durability, ErrorKind, Rng};
use compact::plan::Options;
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::{Db, Keyspace, KeyspaceOptions, WriteBatch, WriteOptions};

use crate::alone;
use crate::common::{self, child};

const THREADS: u64 = 3;

fn open(directory: &Path) -> Db {
    // Merges run all the time.
    let merging =
        Options { fanout: 2, settled_runs: 1, slice_bytes: 1 << 20, ..Options::default() };
    let builder = Db::builder(directory).memory(common::MEMORY);
    builder.compaction_options(merging).open().unwrap()
}

/// The keyspace `two`, a hashed one.
fn hashed(db: &Db) -> Keyspace {
    let options = KeyspaceOptions::new().hashed(HashedPolicy::Keep);
    db.open_or_create_keyspace_opt("two", &options).unwrap()
}

/// The keyspace `three`, a window that is longer than all that is written.
fn window(db: &Db) -> Keyspace {
    let policy = HashedPolicy::Window { bytes: 1 << 40, discard: Discard::Clock };
    db.open_or_create_keyspace_opt("three", &KeyspaceOptions::new().hashed(policy)).unwrap()
}

fn key(thread: u64, number: u64) -> String {
    format!("thread {thread} {number:08}")
}

/// Derived from the thread and the number, so that the parent knows the expected value.
fn value(thread: u64, number: u64, side: u64) -> Vec<u8> {
    let mut rng = Rng::new(thread << 40 | number << 1 | side);
    let length = if rng.one_in(20) { rng.below(20_000) } else { rng.below(500) };
    let mut value = vec![0; length as usize];
    rng.fill(&mut value);
    value
}

/// The number of a thread's last batch.
fn last(keyspace: &Keyspace, thread: u64) -> u64 {
    let value = keyspace.get(format!("last {thread}")).unwrap();
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

/// Child: writes numbered batches from several threads until it is killed, and reports which were
/// acknowledged.
#[test]
fn writes_until_killed() {
    let Some(directory) = child::directory() else { return };
    let db = open(&directory);
    let (one, two) = (db.open_or_create_keyspace("one").unwrap(), hashed(&db));
    let three = window(&db);
    let unlogged = WriteOptions::new().durability(Durability::Unlogged);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, one, two, three, unlogged) = (&db, &one, &two, &three, &unlogged);
            scope.spawn(move || {
                let first = last(one, thread) + 1;
                let mut rng = Rng::new(first);
                for number in first.. {
                    let mut batch = WriteBatch::new();
                    batch.put(one, key(thread, number), value(thread, number, 0)).unwrap();
                    batch.put(two, key(thread, number), value(thread, number, 1)).unwrap();
                    batch.put(three, key(thread, number), value(thread, number, 2)).unwrap();
                    batch.put(one, format!("last {thread}"), number.to_le_bytes()).unwrap();
                    let cached = format!("cached {thread} {}", number % 50);
                    three.put_opt(cached, value(thread, number, 3), unlogged).unwrap();
                    let durability = match rng.below(20) {
                        0 => Durability::Sync,
                        1..5 => Durability::Interval,
                        _ => Durability::None,
                    };
                    db.write_opt(&batch, &WriteOptions::new().durability(durability)).unwrap();
                    child::say(&format!("{thread} {number}"));
                    if rng.one_in(200) {
                        db.flush().unwrap();
                    }
                }
            });
        }
    });
}

/// Runs a child for a random time and kills it; records the acknowledged batches.
fn one_life(directory: &Path, rng: &mut Rng, acknowledged: &mut BTreeMap<u64, u64>) {
    // Early deaths often come while the child opens the store.
    let is_early = rng.one_in(4);
    let (lines, longer) = if is_early { (0, rng.below(60)) } else { (1 + rng.below(1500), 0) };
    let longer = Duration::from_millis(longer);
    for line in child::one_life("kill::writes_until_killed", directory, lines as usize, longer) {
        let (thread, number) = line.split_once(' ').unwrap();
        let at = acknowledged.entry(thread.parse().unwrap()).or_insert(0);
        *at = number.parse::<u64>().unwrap().max(*at);
    }
}

/// Checks every batch after `checked`; returns the last number of each thread.
fn check(db: &Db, acknowledged: &BTreeMap<u64, u64>, checked: &[u64], why: &str) -> Vec<u64> {
    assert!(db.recovery().damaged_tables.is_empty(), "{why}: {:?}", db.recovery());
    let (one, two) = (db.open_or_create_keyspace("one").unwrap(), hashed(db));
    let three = window(db);
    let mut lasts = Vec::new();
    for thread in 0..THREADS {
        let last = last(&one, thread);
        let promised = acknowledged.get(&thread).copied().unwrap_or(0);
        assert!(last >= promised, "{why}: {promised} acknowledged by {thread}, {last} there");
        for number in checked[thread as usize] + 1..=last {
            for (side, keyspace) in [(0, &one), (1, &two), (2, &three)] {
                let got = keyspace.get(key(thread, number)).unwrap();
                let whole = got.as_deref() == Some(&value(thread, number, side)[..]);
                assert!(whole, "{why}: batch {number} of thread {thread} in {}", keyspace.name());
            }
        }
        // An unlogged write may be lost, or any earlier one of its key come back; it is never another value.
        for slot in 0..50 {
            let got = three.get(format!("cached {thread} {slot}")).unwrap();
            let mut written = (0..=last + 1).filter(|number| number % 50 == slot);
            let mut is_own = |got: &[u8]| written.any(|number| got == value(thread, number, 3));
            assert!(got.is_none_or(|got| is_own(&got)), "{why}: cached value of thread {thread}");
        }
        for keyspace in [&one, &two, &three] {
            let beyond = keyspace.get(key(thread, last + 1)).unwrap();
            assert_eq!(beyond, None, "{why}: batch {last} of {thread} is the last");
        }
        lasts.push(last);
    }
    let all: u64 = lasts.iter().sum();
    assert_eq!(two.entries().unwrap().map(Result::unwrap).count() as u64, all, "{why}");
    lasts
}

#[test] // I11
fn a_killed_process_loses_no_acknowledged_write() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 300 } else { 10 };
    let mut acknowledged = BTreeMap::new();
    let mut checked = vec![0; THREADS as usize];
    for round in 0..rounds {
        one_life(directory.path(), &mut rng, &mut acknowledged);
        if rng.one_in(3) {
            // The next child recovers this store, and is killed in turn.
            continue;
        }
        let why = format!("TERRACE_SEED={seed}, round {round}");
        let db = open(directory.path());
        checked = check(&db, &acknowledged, &checked, &why);
        db.wait_until_settled().unwrap();
        common::assert_tidy_directory(&db, directory.path(), &why);
    }
    let db = open(directory.path());
    check(&db, &acknowledged, &[0; THREADS as usize], "the end");
    assert!(acknowledged.values().sum::<u64>() > 100, "{acknowledged:?}");
}

/// Child: keeps the store open until its input ends.
#[test]
fn holds_the_store() {
    let Some(directory) = child::directory() else { return };
    let db = open(&directory);
    db.open_or_create_keyspace("k").unwrap().put("from", "the child").unwrap();
    child::say("open");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_second_process_is_refused() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let mut child = child::spawn("kill::holds_the_store", directory.path());
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| child::said(&line.unwrap()) == Some("open")));
    let error = Db::builder(directory.path()).memory(common::MEMORY).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    let db = open(directory.path());
    let from = db.open_or_create_keyspace("k").unwrap().get("from").unwrap();
    assert_eq!(from.as_deref(), Some(&b"the child"[..]));
}

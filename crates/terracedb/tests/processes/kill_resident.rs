//! A process with its log in shared memory is killed at any moment: no acknowledged write to a resident
//! keyspace is lost, and a batch over a resident and an ordered keyspace is whole or absent (I11).

use std::path::Path;
use std::time::Duration;

use base::Rng;
use terracedb::hashed::HashedPolicy;
use terracedb::{Db, Keyspace, KeyspaceOptions, WriteBatch};

use crate::alone;
use crate::common::{self, child};

const THREADS: u64 = 3;

/// Keys of each thread, which are written again and again.
const KEYS: u64 = 200;

fn open(directory: &Path) -> (Db, Keyspace, Keyspace) {
    let log = directory.join("log");
    let builder = Db::builder(directory.join("store")).memory(common::MEMORY);
    let db = builder.log_path([log.to_str().unwrap()]).log_lanes(3).open().unwrap();
    let options = KeyspaceOptions::new().hashed(HashedPolicy::Resident);
    let resident = db.open_or_create_keyspace_opt("r", &options).unwrap();
    let ordered = db.open_or_create_keyspace("o").unwrap();
    (db, resident, ordered)
}

/// The number of the last write of `key` up to the write `last`; 0: it has none, or was deleted.
fn expected(key: u64, last: u64) -> u64 {
    // Write number n goes to key n % KEYS; each seventh write deletes.
    let newest = (1..=last).rev().find(|number| number % KEYS == key);
    newest.filter(|number| number % 7 != 0).unwrap_or(0)
}

fn name(thread: u64, key: u64) -> String {
    format!("{thread} {key}")
}

fn value(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + rng.below(400) as usize, number as u8);
    value
}

fn last(keyspace: &Keyspace, thread: u64) -> u64 {
    let value = keyspace.get(format!("last {thread}")).unwrap();
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

/// Child: writes until it is killed, and reports which writes were acknowledged.
#[test]
fn writes_until_killed() {
    let Some(directory) = child::directory() else { return };
    let (db, resident, ordered) = open(&directory);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, resident, ordered) = (&db, &resident, &ordered);
            scope.spawn(move || {
                for number in last(resident, thread) + 1.. {
                    let mut batch = WriteBatch::new();
                    let key = name(thread, number % KEYS);
                    match number % 7 {
                        0 => batch.delete(resident, &key).unwrap(),
                        _ => batch.put(resident, &key, value(number)).unwrap(),
                    }
                    for keyspace in [resident, ordered] {
                        let last = format!("last {thread}");
                        batch.put(keyspace, last, number.to_le_bytes()).unwrap();
                    }
                    db.write(&batch).unwrap();
                    // A write of one operation has a record of its own form.
                    resident.put(format!("single {thread}"), number.to_le_bytes()).unwrap();
                    child::say(&format!("{thread} {number}"));
                    if number.is_multiple_of(150) {
                        db.flush().unwrap();
                    }
                }
            });
        }
    });
}

fn check(directory: &Path, acknowledged: &[u64], why: &str) {
    let (db, resident, ordered) = open(directory);
    let mut live = 0;
    for (thread, promised) in (0..).zip(acknowledged) {
        let last = [last(&resident, thread), last(&ordered, thread)];
        assert!(last[0] == last[1] && last[0] >= *promised, "{why}: {last:?}, {promised}");
        for key in 0..KEYS {
            let got = resident.get(name(thread, key)).unwrap();
            let expected = match expected(key, last[0]) {
                0 => None,
                number => Some(value(number)),
            };
            assert_eq!(got.as_deref(), expected.as_deref(), "{why}: {thread} {key}");
            live += u64::from(expected.is_some());
        }
        let single = resident.get(format!("single {thread}")).unwrap();
        let single = single.map_or(0, |it| u64::from_le_bytes(it[..].try_into().unwrap()));
        assert!((*promised..=last[0]).contains(&single), "{why}: {single} of {last:?}");
        live += u64::from(single > 0) + u64::from(last[0] > 0);
    }
    let entries = resident.entries().unwrap().map(Result::unwrap).count();
    assert_eq!(entries as u64, live, "{why}");
    drop(db);
}

#[test] // I11
fn a_killed_process_loses_no_write_to_a_resident_keyspace() {
    let (mut rng, seed) = Rng::from_env();
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
    let _alone = alone();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 200 } else { 6 };
    let mut acknowledged = [0; THREADS as usize];
    for round in 0..rounds {
        let lines = if rng.one_in(4) { 0 } else { 1 + rng.below(600) as usize };
        let longer = Duration::from_millis(rng.below(30));
        let test = "kill_resident::writes_until_killed";
        for line in child::one_life(test, directory.path(), lines, longer) {
            let (thread, number) = line.split_once(' ').unwrap();
            let at = &mut acknowledged[thread.parse::<usize>().unwrap()];
            *at = number.parse::<u64>().unwrap().max(*at);
        }
        if rng.one_in(3) {
            // The next child recovers this store, and is killed in turn.
            continue;
        }
        check(directory.path(), &acknowledged, &format!("TERRACE_SEED={seed}, round {round}"));
    }
    check(directory.path(), &acknowledged, &format!("TERRACE_SEED={seed}, the end"));
    assert!(acknowledged.iter().sum::<u64>() > 50, "{acknowledged:?}");
}

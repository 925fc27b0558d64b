//! The collector of the log: live entries of resident keyspaces are moved out of old segments, over updates,
//! deletes, reopens and power cuts, while others read and write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Rng;
use media::{Faulty, Freeze, Medium};
use terracedb::stats::LogCollection;
use terracedb::{Db, Durability, Keyspace, Result, WriteBatch, WriteOptions};

use crate::common::until;
use crate::common::{self, Views, assert_same};
use crate::resident::{open, open_in, resident};

/// Values are long, so that a few thousand writes fill segments of 1 MiB.
const VALUE_BYTES: usize = 4 << 10;

fn value(key: &[u8], version: u64) -> Vec<u8> {
    let mut value = vec![version as u8; VALUE_BYTES];
    value[..8].copy_from_slice(&version.to_le_bytes());
    value[8..8 + key.len()].copy_from_slice(key);
    value
}

fn log(db: &Db) -> LogCollection {
    db.statistics().log_collection
}

/// A store of `lanes` lanes on one device.
fn open_lanes(devices: &Arc<Views>, lanes: u16) -> Result<(Db, Keyspace)> {
    let builder = Db::on_medium(Arc::clone(&devices.device)).memory(common::MEMORY);
    let builder = builder.log_path(["one"]).log_lanes(lanes);
    let db = builder.log_devices(Arc::clone(devices) as _).open()?;
    let keyspace = db.open_or_create_keyspace_opt("r", &resident())?;
    Ok((db, keyspace))
}

/// Updates of few keys among many that stay: the log stays short, and every reopen finds the newest versions.
fn a_log_stays_short(lanes: u16) {
    let devices = Views::of(common::memory());
    let (mut db, mut keyspace) = open_lanes(&devices, lanes).unwrap();
    let (mut rng, seed) = Rng::from_env();
    let mut model = common::Model::new();
    let mut moved = 0;
    for round in 0..6 {
        for step in 0..4000u64 {
            // Half of the writes go to 50 keys; the others to 1500.
            let number = if rng.one_in(2) { rng.below(50) } else { rng.below(1500) };
            let key = common::key(number);
            if rng.one_in(10) {
                keyspace.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = value(&key, round * 4000 + step);
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        db.flush().unwrap();
        assert_same(&keyspace, &model, &format!("seed {seed}, round {round}"));
        moved += log(&db).moved_entries;
        drop((keyspace, db));
        (db, keyspace) = open_lanes(&devices, lanes).unwrap();
        assert_same(&keyspace, &model, &format!("seed {seed}, round {round}, reopened"));
    }
    assert!(moved > 0, "{:?}", log(&db));
    // 96 MiB were written, and about 6 MiB live: a third may be dead beside some segments that are written.
    let live = model.len() as u64 * VALUE_BYTES as u64;
    until("the log is short", || (db.statistics().log_bytes < 3 * live + (24 << 20)).then_some(()));
}

#[test]
fn a_log_of_one_lane_stays_short() {
    a_log_stays_short(1);
}

#[test]
fn a_log_of_several_lanes_stays_short() {
    a_log_stays_short(3);
}

/// Deletes of all keys, and then writes of a few: no tombstone stays for ever, and no deleted key comes back.
#[test]
fn tombstones_are_given_up_once_no_older_version_is_left() {
    let devices = Views::of(common::memory());
    let (db, keyspace) = open_lanes(&devices, 3).unwrap();
    for number in 0..2000u64 {
        keyspace.put(number.to_be_bytes(), value(b"", number)).unwrap();
    }
    keyspace.flush().unwrap();
    for number in 0..2000u64 {
        keyspace.delete(number.to_be_bytes()).unwrap();
    }
    keyspace.flush().unwrap();
    let tombstones = |db: &Db| db.statistics().keyspaces[0].index_tombstones;
    assert!(tombstones(&db) > 0);
    let mut version = 0u64;
    until("tombstones are given up", || {
        for _ in 0..1000 {
            version += 1;
            // Some entries survive, so that segments of survivors become full and are collected too.
            let key =
                if version.is_multiple_of(3) { 5000 + version % 1400 } else { 9000 + version % 40 };
            keyspace.put(key.to_be_bytes(), value(b"", version)).unwrap();
        }
        db.flush().unwrap();
        (tombstones(&db) == 0).then_some(())
    });
    assert!(log(&db).dropped_tombstones > 0, "{:?}", log(&db));
    drop((keyspace, db));
    let (_db, keyspace) = open_lanes(&devices, 3).unwrap();
    for number in 0..2000u64 {
        assert_eq!(keyspace.get(number.to_be_bytes()).unwrap(), None, "{number}");
    }
    assert!((40..=1440).contains(&keyspace.entries().unwrap().count()));
}

/// The power fails at any moment while segments are collected: every acknowledged write is there, no older
/// version comes back, and no entry is doubled.
#[test]
fn a_power_cut_while_segments_are_collected_loses_nothing() {
    let mut collected = 0;
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 200 } else { 8 };
    for seed in 0..rounds {
        let mut rng = Rng::new(seed);
        let lanes = 1 + (seed % 3) as u16;
        let device = Arc::new(Faulty::new(seed).with_lines());
        let devices = Views::of(Arc::clone(&device) as Arc<dyn Medium>);
        let (db, keyspace) = open_lanes(&devices, lanes).unwrap();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        // Enough that segments are collected; then the power fails at a random change.
        let durability = WriteOptions::new().durability(Durability::Sync);
        let mut version = 0;
        let mut unknown = None;
        let mut is_armed = false;
        loop {
            version += 1;
            let number = if rng.one_in(3) { rng.below(600) } else { rng.below(20) };
            let is_delete = rng.one_in(12);
            let written = match is_delete {
                true => keyspace.delete_opt(number.to_be_bytes(), &durability),
                false => {
                    let value = value(&number.to_be_bytes(), version);
                    keyspace.put_opt(number.to_be_bytes(), value, &durability)
                }
            };
            if written.is_err() || device.is_frozen() {
                unknown = Some((number, (!is_delete).then_some(version)));
                break;
            }
            match is_delete {
                true => model.remove(&number),
                false => model.insert(number, version),
            };
            if version.is_multiple_of(500) && db.flush().is_err() {
                break;
            }
            if !is_armed && log(&db).moved_entries > 0 {
                is_armed = true;
                device.freeze(Freeze::AtChange(device.changes() + 1 + rng.below(4000)));
            }
            assert!(version < 200_000, "seed {seed}: nothing was collected, {:?}", log(&db));
        }
        collected += log(&db).moved_entries;
        drop((keyspace, db));
        let image = device.crash_image(seed).unwrap();
        let devices = Views::of(Arc::new(image) as Arc<dyn Medium>);
        for reopened in 0..2 {
            let (_db, keyspace) = open_lanes(&devices, lanes).unwrap();
            let mut live = 0;
            for number in 0..600u64 {
                let got = keyspace.get(number.to_be_bytes()).unwrap();
                let got = got.map(|it| u64::from_le_bytes(it[..8].try_into().unwrap()));
                let is_unknown = unknown.is_some_and(|(key, to)| key == number && to == got);
                let expected = model.get(&number).copied();
                assert!(
                    got == expected || is_unknown,
                    "seed {seed}, reopened {reopened}: {number} is {got:?}, not {expected:?}"
                );
                live += usize::from(got.is_some());
            }
            assert_eq!(keyspace.entries().unwrap().count(), live, "seed {seed}");
        }
    }
    assert!(collected > 0);
}

/// Readers and writers while their entries are moved: a reader never sees an older value than it saw before,
/// nor another key's.
#[test]
fn readers_of_places_that_are_collected_see_the_right_values() {
    let devices = Views::of(common::memory());
    let (db, keyspace) = open_in(&devices, common::MEMORY)
        .map(|db| {
            let keyspace = db.open_or_create_keyspace_opt("r", &resident()).unwrap();
            (db, keyspace)
        })
        .unwrap();
    for key in 0..500u64 {
        keyspace.put(key.to_be_bytes(), value(&key.to_be_bytes(), 1)).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (keyspace, done) = (&keyspace, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let mut seen = BTreeMap::new();
                while !done.load(Ordering::Acquire) {
                    let key = rng.below(500);
                    let got = keyspace.get(key.to_be_bytes()).unwrap().unwrap();
                    assert_eq!(got[8..16], key.to_be_bytes());
                    let version = u64::from_le_bytes(got[..8].try_into().unwrap());
                    let before = seen.insert(key, version).unwrap_or(0);
                    assert!(version >= before, "{key}: {version} after {before}");
                }
            });
        }
        let mut version = 1;
        let mut rng = Rng::new(9);
        until("segments are collected under readers", || {
            for _ in 0..2000 {
                version += 1;
                let key = if rng.one_in(4) { rng.below(500) } else { rng.below(30) };
                keyspace.put(key.to_be_bytes(), value(&key.to_be_bytes(), version)).unwrap();
            }
            (log(&db).moved_entries > 1000).then_some(())
        });
        done.store(true, Ordering::Release);
    });
}

/// An entry that is moved has no new version: a transaction that read it commits.
#[test]
fn a_move_is_no_conflict() {
    let devices = Views::of(common::memory());
    let (db, keyspace) = open(&devices);
    for key in 0..1000u64 {
        keyspace.put(key.to_be_bytes(), value(b"", 1)).unwrap();
    }
    keyspace.flush().unwrap();
    let mut transaction = db.transaction();
    for key in 500..1000u64 {
        assert!(transaction.get(&keyspace, key.to_be_bytes()).unwrap().is_some());
    }
    let mut version = 0;
    until("segments are collected", || {
        for _ in 0..1000 {
            version += 1;
            keyspace.put((version % 500u64).to_be_bytes(), value(b"", version)).unwrap();
        }
        (log(&db).moved_entries > 400).then_some(())
    });
    for key in 500..1000u64 {
        assert!(transaction.get(&keyspace, key.to_be_bytes()).unwrap().is_some());
    }
    transaction.put(&keyspace, "commits", "1").unwrap();
    transaction.commit().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&keyspace, "also", "1").unwrap();
    db.write(&batch).unwrap();
}

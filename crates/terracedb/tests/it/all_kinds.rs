//! Atomic batches over an ordered, a `keep`, a `window` and a `resident` keyspace, with the log on
//! storage-class memory: after a power cut each batch is in all four or in none (I11).

use std::sync::Arc;

use base::Rng;
use media::{Faulty, Freeze, Medium};
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::{Builder, Db, Durability, Keyspace, KeyspaceOptions, WriteBatch, WriteOptions};

use crate::common::{self, Views};

const LAST: &str = "last";

/// The store of a builder with its log on `lanes` lanes of `devices`, and its keyspaces in the order ordered,
/// keep, window, resident.
fn open(builder: Builder, devices: &Arc<Views>, lanes: u16) -> (Db, [Keyspace; 4]) {
    let builder = builder.log_path(["one"]).log_lanes(lanes);
    let db = builder.log_devices(Arc::clone(devices) as _).open().unwrap();
    let window = HashedPolicy::Window { bytes: 1 << 20, discard: Discard::Fifo };
    let hashed = |name: &str, policy| {
        let options = KeyspaceOptions::new().hashed(policy);
        db.open_or_create_keyspace_opt(name, &options).unwrap()
    };
    let keyspaces = [
        db.open_or_create_keyspace("ordered").unwrap(),
        hashed("keep", HashedPolicy::Keep),
        hashed("window", window),
        hashed("resident", HashedPolicy::Resident),
    ];
    (db, keyspaces)
}

fn opened(image: impl Medium + 'static, lanes: u16) -> (Db, [Keyspace; 4]) {
    let devices = Views::of(Arc::new(image) as Arc<dyn Medium>);
    open(common::stepped(&devices.device, 1), &devices, lanes)
}

/// Batch `number`: a key of its own and the key of the last batch, in each keyspace.
fn batch(keyspaces: &[Keyspace; 4], number: u64, mut length: impl FnMut() -> usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for keyspace in keyspaces {
        let value = [vec![7; length()], number.to_le_bytes().to_vec()].concat();
        batch.put(keyspace, LAST, value).unwrap();
        batch.put(keyspace, number.to_be_bytes(), number.to_le_bytes()).unwrap();
    }
    batch
}

/// Asserts that the four keyspaces have the batches up to the same one, of `written`. Returns its number.
fn assert_whole(keyspaces: &[Keyspace; 4], written: u64, why: &str) -> u64 {
    let last = |keyspace: &Keyspace| {
        let value = keyspace.get(LAST).unwrap();
        value.map_or(0, |it| u64::from_le_bytes(it[it.len() - 8..].try_into().unwrap()))
    };
    let found = last(&keyspaces[0]);
    for keyspace in keyspaces {
        let name = keyspace.name();
        assert_eq!(last(keyspace), found, "{why}: {name}");
        for number in 1..=written {
            let is_there = keyspace.get(number.to_be_bytes()).unwrap().is_some();
            assert_eq!(is_there, number <= found, "{why}: {name}, batch {number} of {found}");
        }
    }
    found
}

/// Unlogged writes to the window and flushes of each kind between the batches; the power is cut at every
/// change of the devices, and lines of memory that were not fenced survive or not by themselves.
#[test] // I2, I11
fn a_batch_over_all_kinds_is_whole_or_absent_after_a_power_cut_at_any_change() {
    const BATCHES: u64 = 9;
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let unlogged = WriteOptions::new().durability(Durability::Unlogged);
    let synced = WriteOptions::new().durability(Durability::Sync);
    let (mut point, mut changes) = (0, u64::MAX);
    let (mut none, mut all) = (0, 0);
    while point < changes {
        let why = format!("TERRACE_SEED={seed}, change {point}");
        let device = Arc::new(Faulty::new(rng.next_u64()).with_lines());
        let devices = Views::of(Arc::clone(&device) as Arc<dyn Medium>);
        device.freeze(Freeze::AtChange(point));
        let lanes = 1 + (point % 2) as u16;
        let (db, keyspaces) =
            open(common::stepped(&devices.device, rng.next_u64()), &devices, lanes);
        let mut acknowledged = 0;
        for number in 1..=BATCHES {
            keyspaces[2].put_opt(format!("unlogged {number}"), "1", &unlogged).unwrap();
            let batch = batch(&keyspaces, number, || rng.below(300) as usize);
            match number % 3 {
                0 => db.write_opt(&batch, &synced).unwrap(),
                _ => db.write(&batch).unwrap(),
            }
            if number.is_multiple_of(3) && !device.is_frozen() {
                acknowledged = number;
            }
            match number {
                2 => keyspaces[2].flush().unwrap(),
                4 => keyspaces[3].flush().unwrap(),
                5 => keyspaces[0].flush().unwrap(),
                7 => db.flush().unwrap(),
                _ => {}
            }
        }
        if !device.is_frozen() {
            changes = device.changes();
        }
        drop((db, keyspaces));
        let (_db, keyspaces) = opened(device.crash_image(rng.next_u64()).unwrap(), lanes);
        let found = assert_whole(&keyspaces, BATCHES, &why);
        assert!(found >= acknowledged, "{why}: {found} of {acknowledged}");
        none += u64::from(found == 0);
        all += u64::from(found == BATCHES);
        point += 1;
    }
    assert!(changes > 40 && none > 0 && all > 0, "{changes} changes, {none} none, {all} all");
}

/// Many synced batches with background threads and two lanes, the power cut somewhere.
#[test] // I11
fn a_batch_over_all_kinds_is_whole_or_absent_after_a_power_cut() {
    for seed in 0..20 {
        let device = Arc::new(Faulty::new(seed));
        let devices = Views::of(Arc::clone(&device) as Arc<dyn Medium>);
        let (db, keyspaces) = open(common::threaded(&devices.device), &devices, 2);
        let mut rng = Rng::new(seed);
        device.freeze(Freeze::AtChange(device.changes() + 1 + rng.below(1500)));
        let synced = WriteOptions::new().durability(Durability::Sync);
        let mut acknowledged = 0;
        for number in 1..=400u64 {
            let batch = batch(&keyspaces, number, || rng.below(400) as usize);
            if db.write_opt(&batch, &synced).is_err() || device.is_frozen() {
                break;
            }
            acknowledged = number;
            if number.is_multiple_of(90) && db.flush().is_err() {
                break;
            }
        }
        drop((db, keyspaces));
        let (_db, keyspaces) = opened(device.crash_image(seed).unwrap(), 2);
        let found = assert_whole(&keyspaces, 401, &format!("seed {seed}"));
        assert!(found >= acknowledged, "seed {seed}: {found} of {acknowledged}");
    }
}

//! A device full of entries of resident keyspaces: deletes are taken, and the space comes back by itself.

use std::sync::Arc;
use std::time::Duration;

use base::{Result, Rng};
use media::{Faulty, Medium};
use terracedb::{Db, ErrorKind, Keyspace, WriteBatch};
use wal::OpenDevices;

use crate::common::{self, Stepped};
use crate::resident::resident;

/// One device of a given capacity.
#[derive(Debug)]
struct Small(Arc<Faulty>);

impl OpenDevices for Small {
    fn open(&self, _: &str, _: bool) -> Result<Arc<dyn Medium>> {
        Ok(Arc::clone(&self.0) as _)
    }
}

struct Store {
    stepped: Stepped,
    flash: Arc<dyn Medium>,
    device: Arc<Faulty>,
    lanes: u16,
}

impl Store {
    fn new(megabytes: u64, lanes: u16) -> Self {
        let device = Arc::new(Faulty::new(megabytes).with_lines());
        device.set_capacity(Some(megabytes << 20));
        Self { stepped: Stepped::new(megabytes), flash: common::memory(), device, lanes }
    }

    fn open(&self) -> (Db, Keyspace) {
        let builder = self.stepped.on(Arc::clone(&self.flash)).log_path(["small"]);
        let builder = builder.log_lanes(self.lanes);
        let db = builder.log_devices(Arc::new(Small(Arc::clone(&self.device)))).open().unwrap();
        let keyspace = db.open_or_create_keyspace_opt("r", &resident()).unwrap();
        (db, keyspace)
    }

    /// Lets background work go on.
    fn work(&self) {
        self.stepped.pass(Duration::from_secs(1));
        self.stepped.work(300);
    }

    /// Puts new values of `bytes` until the device has no space for more, whatever background work frees.
    fn fill(&self, keyspace: &Keyspace, bytes: usize) -> u64 {
        let mut taken = 0u64;
        loop {
            let mut refusals = 0;
            let mut value = vec![0; bytes];
            Rng::new(taken).fill(&mut value);
            while let Err(error) = keyspace.put(taken.to_be_bytes(), &value) {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                refusals += 1;
                if refusals == 4 {
                    return taken;
                }
                self.work();
            }
            taken += 1;
        }
    }

    /// Runs `what` until it is not refused any more, at most for some seconds of the clock.
    fn retried(&self, why: &str, what: impl Fn() -> Result<()>) {
        for _ in 0..20 {
            match what() {
                Ok(()) => return,
                Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{why}: {error}"),
            }
            self.work();
        }
        panic!("{why}: refused for 20 seconds");
    }
}

/// Fills a device and deletes everything, again and again. Each time it holds as much as before.
fn comes_back(megabytes: u64, lanes: u16, bytes: usize, batch: u64) {
    let store = Store::new(megabytes, lanes);
    let (mut db, mut keyspace) = store.open();
    let mut first = 0;
    let mut rng = Rng::new(megabytes);
    for round in 0..3 {
        let why = format!("{megabytes} MiB, {lanes} lanes, values of {bytes} B, round {round}");
        let taken = store.fill(&keyspace, bytes);
        first = first.max(taken);
        assert!(taken > 0 && taken >= first / 4 * 3, "{why}: {taken} of {first}");
        if round == 1 {
            drop((keyspace, db));
            (db, keyspace) = store.open();
        }
        let mut keys: Vec<_> = (0..taken).collect();
        (1..keys.len()).rev().for_each(|at| keys.swap(at, rng.below(at as u64 + 1) as usize));
        for (at, keys) in keys.chunks(batch as usize).enumerate() {
            let mut batch = WriteBatch::new();
            keys.iter().for_each(|key| batch.delete(&keyspace, key.to_be_bytes()).unwrap());
            store.retried(&format!("{why}, delete {at} of {taken}"), || db.write(&batch));
        }
        assert_eq!(keyspace.entries().unwrap().count(), 0, "{why}");
        for key in 0..taken {
            assert!(keyspace.get(key.to_be_bytes()).unwrap().is_none(), "{why}: {key}");
        }
    }
}

#[test]
fn a_full_device_of_one_lane_comes_back_by_deleting() {
    comes_back(14, 1, 4 << 10, 1);
    comes_back(14, 1, 1500, 1);
}

#[test]
fn a_full_device_of_several_lanes_comes_back_by_deleting() {
    comes_back(14, 2, 4 << 10, 1);
    comes_back(14, 3, 1500, 10);
}

/// Moved entries that were overwritten when a process ended have no entry that the next open knows of. Their
/// segments are freed by it.
#[test]
fn segments_that_died_in_an_earlier_process_are_freed() {
    let store = Store::new(256, 1);
    let mut version = 0;
    let mut write = |keyspace: &Keyspace, each: u64| {
        for key in (0..100u64).filter(|key| key % each == 0) {
            version += 1;
            let mut value = vec![0; 20_000];
            Rng::new(version).fill(&mut value);
            keyspace.put(key.to_be_bytes(), &value).unwrap();
        }
    };
    for _ in 0..4 {
        let (db, keyspace) = store.open();
        write(&keyspace, 1);
        // Half of the keys stay as they are, so that their segments are collected.
        for _ in 0..24 {
            write(&keyspace, 2);
            db.flush().unwrap();
            store.work();
        }
        let moved = db.statistics().log_collection.moved_entries;
        assert!(moved > 0);
        // Not flushed: the index has none of the moved entries at the next open.
        write(&keyspace, 1);
    }
    let (db, _keyspace) = store.open();
    (0..3).for_each(|_| store.work());
    // 2 MB are live, and 30 MB were written in each process.
    let log_bytes = db.statistics().log_bytes;
    assert!(log_bytes < 16 << 20, "{log_bytes}");
}

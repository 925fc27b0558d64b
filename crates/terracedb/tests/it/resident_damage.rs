//! Damage of segments with entries of resident keyspaces: check names the lost keys, a repair drops exactly
//! those, and the collector goes past it.

use std::sync::Arc;
use std::time::Duration;

use media::{Access, Medium, MemoryMedium, Purpose};
use terracedb::tools::{CheckReport, LogConfig, RepairOptions, check_with, repair_with};
use terracedb::{Db, ErrorKind, Keyspace};

use crate::common::{Stepped, Views};
use crate::resident::resident;

const KEYS: u64 = 600;

fn value(key: u64, version: u64) -> Vec<u8> {
    let mut value = vec![0; 4 << 10];
    value[..16].copy_from_slice(format!("{key:07}:{version:07} ").as_bytes());
    value
}

struct Store {
    memory: Arc<MemoryMedium>,
    devices: Arc<Views>,
    stepped: Stepped,
}

impl Store {
    fn new() -> Self {
        let memory = Arc::new(MemoryMedium::new());
        let devices = Views::of(Arc::clone(&memory) as _);
        Self { memory, devices, stepped: Stepped::new(1) }
    }

    fn open(&self) -> (Db, Keyspace) {
        let builder = self.stepped.on(Arc::clone(&self.devices.device)).log_path(["one"]);
        let builder = builder.log_lanes(2).log_devices(Arc::clone(&self.devices) as _);
        let db = builder.open().unwrap();
        let keyspace = db.open_or_create_keyspace_opt("r", &resident()).unwrap();
        (db, keyspace)
    }

    fn config(&self) -> LogConfig {
        LogConfig {
            devices: Arc::clone(&self.devices) as _,
            lanes: Some(2),
            ..LogConfig::default()
        }
    }

    fn check(&self) -> CheckReport {
        check_with(&self.devices.device, &self.config(), &mut |_, _| {}).unwrap()
    }

    /// Changes one byte `before` bytes before `wanted`, which one segment has. Returns its name.
    fn damage(&self, wanted: &[u8], before: u64) -> String {
        for listed in self.memory.list().unwrap() {
            let file = self.memory.open(&listed.name, Access::Bytes).unwrap();
            let mut bytes = vec![0; listed.len as usize];
            file.load(0, &mut bytes, Purpose::Data).unwrap();
            let Some(at) = bytes.windows(wanted.len()).position(|it| it == wanted) else {
                continue;
            };
            let at = at as u64 - before;
            file.store(at, &[!bytes[at as usize]], Purpose::Log).unwrap();
            return listed.name;
        }
        panic!("{wanted:?} is in no file");
    }
}

fn put(keyspace: &Keyspace, key: u64, version: u64) {
    keyspace.put(key.to_be_bytes(), value(key, version)).unwrap();
}

fn assert_same(keyspace: &Keyspace, lost: &[u64], version: u64) {
    for key in 0..KEYS {
        let got = keyspace.get(key.to_be_bytes()).unwrap();
        let expected = (!lost.contains(&key)).then(|| value(key, version));
        assert!(
            got.as_deref() == expected.as_deref(),
            "{key} is {:?}",
            got.map(|it| it[..16].escape_ascii().to_string())
        );
    }
}

#[test]
fn check_names_the_lost_keys_and_a_repair_drops_exactly_those() {
    let store = Store::new();
    let (db, keyspace) = store.open();
    for key in 0..KEYS {
        put(&keyspace, key, 1);
    }
    // The first version of this key is damaged, and nothing needs it.
    put(&keyspace, 7, 2);
    drop((keyspace, db));
    let report = store.check();
    assert!(report.is_clean(), "{report:?}");
    for key in [7, 350, 100] {
        store.damage(&value(key, 1)[..16], 0);
    }
    let report = store.check();
    assert!(!report.is_clean());
    let keys = |ranges: &[terracedb::tools::LostRange]| -> Vec<_> {
        let keys = ranges.iter().map(|range| range.keys.clone().unwrap());
        keys.map(|(from, to)| {
            assert_eq!(from, to);
            u64::from_be_bytes(from.try_into().unwrap())
        })
        .collect()
    };
    let lost = keys(&report.lost.ranges);
    assert_eq!((lost, report.lost.entries), (vec![100, 350], Some(2)), "{:?}", report.lost);

    let repaired = repair_with(
        &store.devices.device,
        &store.config(),
        RepairOptions::default(),
        &mut |_, _| {},
    )
    .unwrap();
    assert_eq!(keys(&repaired.lost), [100, 350]);
    let report = store.check();
    assert!(report.is_clean(), "{:?}", report.problems);
    for _ in 0..2 {
        let (db, keyspace) = store.open();
        assert_eq!(keyspace.get(7u64.to_be_bytes()).unwrap(), Some(value(7, 2).into()));
        put(&keyspace, 7, 1);
        assert_same(&keyspace, &[100, 350], 1);
        put(&keyspace, 7, 2);
        drop((keyspace, db));
    }
    let options = RepairOptions { dry_run: true, ..RepairOptions::default() };
    let again =
        repair_with(&store.devices.device, &store.config(), options, &mut |_, _| {}).unwrap();
    assert!(again.is_clean(), "{again:?}");
}

/// A key whose record is damaged stays unreadable when its segment was collected, over opens, until it is
/// written again; the lane goes on.
#[test]
fn a_damaged_segment_does_not_stop_the_collector() {
    let store = Store::new();
    let (db, keyspace) = store.open();
    for key in 0..KEYS {
        put(&keyspace, key, 1);
    }
    db.flush().unwrap();
    // A legible key, and a record whose head is damaged.
    let damaged = store.damage(&value(3, 1)[..16], 0);
    assert_eq!(store.damage(&value(4, 1)[..16], 30), damaged);
    let is_lost = |keyspace: &Keyspace, key: u64| {
        keyspace.get(key.to_be_bytes()).is_err_and(|error| error.kind() == ErrorKind::Corrupt)
    };
    let counters = |db: &Db| db.statistics().log_collection;
    // Every other key is written again and again, so that the first segments are collected.
    let mut version = 1;
    while counters(&db).lost_entries == 0 {
        version += 1;
        assert!(version < 60, "{:?}", counters(&db));
        for key in (0..KEYS).filter(|key| !matches!(key, 3 | 4)) {
            put(&keyspace, key, version);
            store.stepped.work(2);
        }
        db.flush().unwrap();
        for _ in 0..60 {
            store.stepped.pass(Duration::from_millis(200));
        }
    }
    let after = counters(&db);
    assert_eq!((after.damaged_segments, after.lost_entries), (1, 2), "{after:?}");
    for _ in 0..4 {
        version += 1;
        for key in (0..KEYS).filter(|key| !matches!(key, 3 | 4)) {
            put(&keyspace, key, version);
            store.stepped.work(2);
        }
        db.flush().unwrap();
        store.stepped.work(2000);
    }
    let names = store.memory.list().unwrap().into_iter().map(|file| file.name);
    assert!(names.clone().all(|name| name != damaged), "{:?}", names.collect::<Vec<_>>());
    // An open must find the lost entries, which a checkpoint does not tell from others.
    assert_eq!(counters(&db).index_checkpoints, after.index_checkpoints);
    assert!(is_lost(&keyspace, 3) && is_lost(&keyspace, 4));
    drop((keyspace, db));
    let report = store.check();
    assert_eq!((report.damages, report.lost.entries), (1, Some(2)), "{:?}", report.problems);

    let (db, keyspace) = store.open();
    assert!(is_lost(&keyspace, 3) && is_lost(&keyspace, 4));
    assert_eq!(keyspace.get(5u64.to_be_bytes()).unwrap(), Some(value(5, version).into()));
    put(&keyspace, 3, version);
    db.flush().unwrap();
    assert_eq!(keyspace.get(3u64.to_be_bytes()).unwrap(), Some(value(3, version).into()));
    keyspace.delete(4u64.to_be_bytes()).unwrap();
    db.flush().unwrap();
    assert_eq!(keyspace.get(4u64.to_be_bytes()).unwrap(), None);
    drop((keyspace, db));

    repair_with(&store.devices.device, &store.config(), RepairOptions::default(), &mut |_, _| {})
        .unwrap();
    let report = store.check();
    assert!(report.is_clean(), "{:?}", report.problems);
    let (_db, keyspace) = store.open();
    assert_same(&keyspace, &[4], version);
    assert_eq!(keyspace.entries().unwrap().filter(|entry| entry.is_ok()).count() as u64, KEYS - 1);
}

/// One of two devices was replaced by an empty one: the store says so, and a repair keeps the entries of the
/// other one, takes the new one, and does not take the old one back.
#[test]
fn a_store_with_a_replaced_device_is_repaired_and_goes_on() {
    let store = Store::new();
    let open = |places: &[&str]| {
        let builder = store.stepped.on(Arc::clone(&store.devices.device));
        let builder = builder.log_path(places.iter().copied()).log_lanes(2);
        let db = builder.log_devices(Arc::clone(&store.devices) as _).open()?;
        let keyspace = db.open_or_create_keyspace_opt("r", &resident())?;
        Ok::<_, base::Error>((db, keyspace))
    };
    // Each thread appends to the lane of its number.
    let write = |keyspace: &Keyspace, from: u64, to: u64, version: u64| {
        for first in (from..to).step_by(50) {
            std::thread::scope(|scope| {
                scope.spawn(|| (first..first + 50).for_each(|key| put(keyspace, key, version)));
            });
        }
    };
    let (db, keyspace) = open(&["one", "two"]).unwrap();
    write(&keyspace, 0, KEYS, 1);
    db.flush().unwrap();
    drop((keyspace, db));
    let files = |prefix: &str| -> Vec<String> {
        let names = store.memory.list().unwrap().into_iter().map(|file| file.name);
        names.filter(|name| name.starts_with(prefix)).collect()
    };
    for name in files("two.") {
        store.memory.rename(&name, &name.replacen("two", "old", 1)).unwrap();
    }

    let error = open(&[]).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("last at `two`"), "{error}");
    let report = store.check();
    assert!(report.problems.iter().any(|problem| problem.file == "two"), "{:?}", report.problems);
    let repair = |dry_run| {
        let options = RepairOptions { dry_run, ..RepairOptions::default() };
        repair_with(&store.devices.device, &store.config(), options, &mut |_, _| {}).unwrap()
    };
    for dry_run in [true, false] {
        let report = repair(dry_run);
        let lost = report.lost.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(lost, ["lost: keyspace `r`, keys unknown (two)"]);
        let log = report.log.unwrap();
        assert!(log.error.to_string().contains("two") && log.costs_writes(), "{log}");
        assert_eq!(files("two.").is_empty(), dry_run);
    }

    let mut lost = Vec::new();
    for life in 0..3 {
        let (db, keyspace) = open(&[]).unwrap();
        let absent = (0..KEYS).filter(|key| keyspace.get(key.to_be_bytes()).unwrap().is_none());
        let absent: Vec<_> = absent.collect();
        if life == 0 {
            lost.clone_from(&absent);
        }
        assert!((1..KEYS as usize).contains(&lost.len()), "{} entries are lost", lost.len());
        assert_eq!(absent, lost, "life {life}");
        assert_same(&keyspace, &lost, 1);
        write(&keyspace, KEYS * (life + 1), KEYS * (life + 2), life);
        let mut later = KEYS..KEYS * (life + 2);
        assert!(later.all(|key| keyspace.get(key.to_be_bytes()).unwrap().is_some()));
        drop((keyspace, db));
        let report = store.check();
        assert!(report.is_clean(), "{:?}", report.problems);
    }
    assert!(repair(true).is_clean());
    let error = open(&["one", "old"]).map(drop).unwrap_err();
    assert!(error.to_string().contains("last at `two`"), "{error}");
}

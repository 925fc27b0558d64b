//! Checkpoints of the indexes of resident keyspaces: an open reads the checkpoint and the end of the log, and
//! a checkpoint that is damaged, unfinished or old costs time only.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{LaneId, Rng};
use media::{Access, Faulty, Freeze, Medium, MemoryMedium, Purpose};
use terracedb::{Db, ErrorKind, Keyspace, Result};

use crate::common::{Stepped, Views};
use crate::resident::resident;

const VALUE_BYTES: usize = 4 << 10;

/// Most entries stay, and some are written often.
const KEYS: u64 = 1200;

pub(crate) struct Store {
    pub(crate) stepped: Stepped,
    devices: Arc<Views>,
}

impl Store {
    pub(crate) fn new(device: Arc<dyn Medium>, seed: u64) -> Self {
        Self { stepped: Stepped::new(seed), devices: Views::of(device) }
    }

    pub(crate) fn open(&self, lanes: u16) -> Result<(Db, Keyspace)> {
        let builder = self.stepped.on(Arc::clone(&self.devices.device)).log_path(["one"]);
        let builder = builder.log_lanes(lanes).log_devices(Arc::clone(&self.devices) as _);
        let db = builder.open()?;
        let keyspace = db.open_or_create_keyspace_opt("r", &resident())?;
        Ok((db, keyspace))
    }
}

type Model = BTreeMap<u64, u64>;

fn value(key: u64, version: u64) -> Vec<u8> {
    let mut value = vec![version as u8; VALUE_BYTES];
    value[..8].copy_from_slice(&version.to_le_bytes());
    value[8..16].copy_from_slice(&key.to_le_bytes());
    value
}

/// Some writes. Returns the one that failed.
fn write(
    keyspace: &Keyspace,
    model: &mut Model,
    rng: &mut Rng,
    versions: std::ops::Range<u64>,
) -> Option<(u64, Option<u64>)> {
    for version in versions {
        let key = if rng.one_in(3) { rng.below(KEYS) } else { rng.below(40) };
        let is_delete = rng.one_in(9);
        let commit = || match is_delete {
            true => keyspace.delete(key.to_be_bytes()),
            false => keyspace.put(key.to_be_bytes(), value(key, version)),
        };
        // Another thread may have another lane, in which old versions stay behind in the segment being
        // written, while newer ones are in full segments that an open need not read.
        let done = match rng.one_in(20) {
            true => std::thread::scope(|scope| scope.spawn(commit).join().unwrap()),
            false => commit(),
        };
        if done.is_err() {
            return Some((key, (!is_delete).then_some(version)));
        }
        match is_delete {
            true => model.remove(&key),
            false => model.insert(key, version),
        };
    }
    None
}

fn assert_same(keyspace: &Keyspace, model: &Model, unknown: Option<(u64, Option<u64>)>, why: &str) {
    let mut live = 0;
    for key in 0..KEYS {
        let got = keyspace.get(key.to_be_bytes()).unwrap();
        let got = got.map(|it| {
            assert_eq!(it[8..16], key.to_le_bytes(), "{why}");
            u64::from_le_bytes(it[..8].try_into().unwrap())
        });
        let is_unknown = unknown == Some((key, got));
        assert!(
            got == model.get(&key).copied() || is_unknown,
            "{why}: {key} is {got:?}, not {:?}",
            model.get(&key)
        );
        live += usize::from(got.is_some());
    }
    assert_eq!(keyspace.entries().unwrap().count(), live, "{why}");
}

pub(crate) fn checkpoints(medium: &dyn Medium) -> Vec<String> {
    let files = medium.list().unwrap().into_iter().map(|file| file.name);
    files.filter(|name| name.starts_with("index-")).collect()
}

/// Keys are written while memtables with earlier ones become part of the index: each counts once, so that the
/// index grows no more than for keys that are flushed at once.
#[test]
fn an_index_that_grows_under_flushes_costs_no_more_memory() {
    let store = Store::new(Arc::new(MemoryMedium::new()), 1);
    let (db, keyspace) = store.open(1).unwrap();
    for key in 0..100_000u64 {
        keyspace.put(key.to_be_bytes(), b"v").unwrap();
        if key % 100 == 0 {
            store.stepped.work(1);
        }
    }
    db.flush().unwrap();
    let found = &db.statistics().keyspaces[0];
    assert!(db.statistics().flushes > 2, "{}", db.statistics().flushes);
    let each = found.index_bytes as f64 / found.index_entries as f64;
    assert!((9.0..=11.1).contains(&each), "{each} B an entry");
}

/// The counters of an open: with a checkpoint it reads that and less than the log.
#[test]
fn an_open_reads_the_checkpoint_and_the_end_of_the_log() {
    let device = Arc::new(MemoryMedium::new());
    let store = Store::new(Arc::clone(&device) as _, 1);
    let (mut rng, mut model) = (Rng::new(1), Model::new());
    let (db, keyspace) = store.open(3).unwrap();
    assert_eq!(write(&keyspace, &mut model, &mut rng, 0..9000), None);
    store.stepped.work(4000);
    let log = db.statistics();
    assert!(log.log_collection.index_checkpoints > 0, "{:?}", log.log_collection);
    assert!(log.log_collection.moved_entries > 0, "{:?}", log.log_collection);
    let (log_bytes, memory) = (log.log_bytes, db.statistics().keyspaces[0].index_bytes);
    drop((keyspace, db));
    assert_eq!(checkpoints(&*device).len(), 1);

    let (db, keyspace) = store.open(3).unwrap();
    let recovery = db.recovery().clone();
    assert!(recovery.index_checkpoint_bytes > 0, "{recovery:?}");
    assert!(recovery.index_checkpoint_bytes < 2 * memory + (64 << 10), "{recovery:?}");
    // At most 8 segments beyond those that are being written.
    let with = recovery.log_bytes;
    assert!(with < 13 << 20 && with < log_bytes, "{with} of {log_bytes}");
    assert_same(&keyspace, &model, None, "from the checkpoint");
    drop((keyspace, db));

    // Damage: any byte of the file. It is told, and costs time only.
    let name = checkpoints(&*device).remove(0);
    let file = device.open(&name, Access::Bytes).unwrap();
    let mut byte = [0];
    let at = file.size().unwrap() / 2;
    file.load(at, &mut byte, Purpose::Data).unwrap();
    file.store(at, &[!byte[0]], Purpose::Data).unwrap();
    let (db, keyspace) = store.open(3).unwrap();
    let recovery = db.recovery();
    assert!(recovery.index_checkpoint_damage.is_some(), "{recovery:?}");
    assert!(recovery.index_checkpoint_bytes == 0 && recovery.log_bytes > with, "{recovery:?}");
    assert_same(&keyspace, &model, None, "from the log");
    // The damaged one is replaced.
    assert_eq!(write(&keyspace, &mut model, &mut rng, 9000..12_000), None);
    store.stepped.work(4000);
    drop((keyspace, db));
    assert_ne!(checkpoints(&*device), [name]);
    let (db, keyspace) = store.open(3).unwrap();
    assert!(db.recovery().index_checkpoint_damage.is_none());
    assert_same(&keyspace, &model, None, "from another checkpoint");
}

/// The power fails at any change while checkpoints are written and segments are collected: an open finds
/// every acknowledged write, once with the checkpoint and once without any.
#[test]
fn a_power_cut_around_a_checkpoint_loses_nothing() {
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 400 } else { 3 };
    let (mut used, first) = (0, Rng::from_env().1);
    for round in 0..rounds {
        let seed = first + round;
        let mut rng = Rng::new(seed);
        let lanes = 1 + (seed % 4) as u16;
        let device = Arc::new(Faulty::new(seed).with_lines());
        let store = Store::new(Arc::clone(&device) as _, seed);
        let (db, keyspace) = store.open(lanes).unwrap();
        let mut model = Model::new();
        let mut version = 0;
        let mut unknown = None;
        // Up to the step in which a checkpoint was begun or ended, and then to a random change.
        let wanted = 1 + rng.below(2);
        let is_there = |wanted| checkpoints(&*store.devices.device).len() as u64 >= wanted;
        while !is_there(1) || (wanted == 2 && db.statistics().log_collection.index_checkpoints == 0)
        {
            assert!(version < 20_000, "seed {seed}: no checkpoint");
            assert_eq!(write(&keyspace, &mut model, &mut rng, version..version + 50), None);
            version += 50;
            if version % 500 == 0 {
                db.flush().unwrap();
            }
            store.stepped.work(rng.below(20));
        }
        let most = if rng.one_in(2) { 60 } else { 6000 };
        device.freeze(Freeze::AtChange(device.changes() + 1 + rng.below(most)));
        while !device.is_frozen() && unknown.is_none() {
            // One by one: an acknowledgement behind the freeze counts for nothing.
            let before = model.clone();
            unknown = write(&keyspace, &mut model, &mut rng, version..version + 1);
            if device.is_frozen() {
                let changed = (0..KEYS).find(|key| before.get(key) != model.get(key));
                unknown = unknown.or(changed.map(|key| (key, model.get(&key).copied())));
                model = before;
                break;
            }
            version += 1;
            if version % 400 == 0 && db.flush().is_err() {
                break;
            }
            store.stepped.work(rng.below(4));
        }
        drop((keyspace, db));
        let image = Arc::new(device.crash_image(seed).unwrap());
        for without in [false, true, false] {
            let why = format!("TERRACE_SEED={seed}, without a checkpoint: {without}");
            if without {
                for name in checkpoints(&*image) {
                    image.remove(&name).unwrap();
                }
            }
            let store = Store::new(Arc::clone(&image) as _, seed);
            let (db, keyspace) = store.open(lanes).unwrap();
            used += u64::from(db.recovery().index_checkpoint_bytes > 0);
            assert_same(&keyspace, &model, unknown, &why);
            // What the first open found stays.
            let found = |key: u64| {
                let got = keyspace.get(key.to_be_bytes()).unwrap()?;
                Some(u64::from_le_bytes(got[..8].try_into().unwrap()))
            };
            model = (0..KEYS).filter_map(|key| Some((key, found(key)?))).collect();
            unknown = None;
            let from = version + 1;
            assert_eq!(write(&keyspace, &mut model, &mut rng, from..from + 600), None, "{why}");
            version = from + 600;
            store.stepped.work(200);
            assert_same(&keyspace, &model, None, &why);
        }
    }
    assert!(used > 0, "no open began with a checkpoint");
}

/// The lane that the calling thread appends to.
fn lane_of(db: &Db, keyspace: &Keyspace, key: u64) -> LaneId {
    let records = || -> Vec<_> {
        let lanes = db.statistics().log_collection.lanes;
        lanes.into_iter().map(|lane| (lane.lane, lane.records)).collect()
    };
    let before = records();
    keyspace.put(key.to_be_bytes(), b"probe").unwrap();
    let grown = records().into_iter().zip(before).find(|(after, before)| after != before);
    grown.unwrap().0.0
}

const OLD: u64 = KEYS + 1;
const DELETED: u64 = KEYS + 2;
const NEWER: &[u8] = b"the newer version";

/// A closed store with a checkpoint. Old versions of two keys are in the segment that a lane still writes,
/// which every open replays. The newer ones are in a full segment of another lane, which is returned, and
/// which an open with the checkpoint does not read. Nothing else is dead, so nothing is collected.
fn with_old_versions(device: &Arc<MemoryMedium>) -> (Store, LaneId) {
    let store = Store::new(Arc::clone(device) as _, 1);
    let (db, keyspace) = store.open(4).unwrap();
    let own = lane_of(&db, &keyspace, KEYS + 3);
    let write_old = || {
        if lane_of(&db, &keyspace, KEYS + 4) == own {
            return false;
        }
        keyspace.put(OLD.to_be_bytes(), b"the old version").unwrap();
        keyspace.put(DELETED.to_be_bytes(), b"the old version").unwrap();
        true
    };
    let in_other_lane = || std::thread::scope(|scope| scope.spawn(write_old).join().unwrap());
    assert!((0..1000).any(|_| in_other_lane()), "every thread appends to {own}");
    keyspace.put(OLD.to_be_bytes(), NEWER).unwrap();
    keyspace.delete(DELETED.to_be_bytes()).unwrap();
    let is_written = || db.statistics().log_collection.index_checkpoints > 0;
    for version in 0..8000 {
        let key = 2 * KEYS + version;
        keyspace.put(key.to_be_bytes(), value(key, version)).unwrap();
        if version % 500 == 0 {
            db.flush().unwrap();
        }
        store.stepped.work(2);
        if is_written() {
            break;
        }
    }
    assert!(is_written(), "no checkpoint");
    assert_eq!(db.statistics().log_collection.moved_entries, 0);
    (store, own)
}

#[test]
fn a_replayed_version_that_is_older_than_that_of_the_checkpoint_is_dropped() {
    let device = Arc::new(MemoryMedium::new());
    let (store, _) = with_old_versions(&device);
    let (db, keyspace) = store.open(4).unwrap();
    assert!(db.recovery().index_checkpoint_bytes > 0);
    assert_eq!(keyspace.get(OLD.to_be_bytes()).unwrap().as_deref(), Some(NEWER));
    assert_eq!(keyspace.get(DELETED.to_be_bytes()).unwrap(), None);
}

/// The newer version is damaged, in a segment that the open does not read: it is refused, and does not bring
/// the old version back.
#[test]
fn a_damaged_version_of_the_checkpoint_is_not_replaced_by_an_older_one() {
    let device = Arc::new(MemoryMedium::new());
    let (store, _) = with_old_versions(&device);
    flip(&*device, NEWER);
    let error = store.open(4).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// Changes a byte of `bytes`, which one file has.
fn flip(device: &dyn Medium, bytes: &[u8]) {
    for listed in device.list().unwrap() {
        let file = device.open(&listed.name, Access::Bytes).unwrap();
        let mut content = vec![0; listed.len as usize];
        file.load(0, &mut content, Purpose::Data).unwrap();
        let at = content.windows(bytes.len()).position(|window| window == bytes);
        let Some(at) = at else { continue };
        return file.store(at as u64, &[!bytes[0]], Purpose::Data).unwrap();
    }
    panic!("{bytes:?} is in no file");
}

/// The newest segments of a lane vanish, or their content does. Only the checkpoint knows.
#[test]
fn the_loss_of_the_newest_segments_of_a_lane_is_noticed() {
    for is_emptied in [false, true] {
        let device = Arc::new(MemoryMedium::new());
        let (store, own) = with_old_versions(&device);
        let of = |name: &str| wal::parse_segment_name(name.strip_prefix("one.")?);
        let names = device.list().unwrap().into_iter().map(|file| file.name);
        let mut lane: Vec<_> =
            names.filter(|name| of(name).is_some_and(|(lane, _)| lane == own)).collect();
        lane.sort_by_key(|name| of(name));
        assert!(lane.len() > 6, "{lane:?}");
        for name in &lane[lane.len() / 2..] {
            if is_emptied {
                device.open(name, Access::Bytes).unwrap().set_len(0).unwrap();
            } else {
                device.remove(name).unwrap();
            }
        }
        let error = store.open(4).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("end of the log"), "{error}");
    }
}

//! Cold tables whose object store does not answer, or is not known to a tool: the store opens, and everything
//! that is local is there.

use std::sync::Arc;

use base::ErrorKind;
use media::{Access, Fault, Medium, OpKind, Rule};
use terracedb::tools::{LogConfig, RepairOptions, RepairReport, move_log, repair_with};
use terracedb::{Db, Durability, Keyspace, WriteOptions};

use super::{Scene, cold, kept, names};
use crate::common::{Stepped, Views, assert_same, key};

/// A closed store with one cold table, as a process finds it whose cache is empty.
fn closed() -> Scene {
    let (mut scene, db, keyspace) = Scene::cold();
    drop((keyspace, db));
    scene.stepped = Stepped::new(1);
    scene
}

/// Lets the object store answer nothing.
fn cut_off(scene: &Scene) {
    for on in [OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Names] {
        scene.remote.inject(Rule::new(on, Fault::Io).times(u64::MAX)).unwrap();
    }
}

fn put(keyspace: &Keyspace, scene: &mut Scene, key: &[u8]) {
    let options = WriteOptions::new().durability(Durability::Sync);
    keyspace.put_opt(key, "new", &options).unwrap();
    scene.model.insert(key.to_vec(), b"new".to_vec());
}

#[test]
fn a_store_opens_and_is_read_while_its_object_store_does_not_answer() {
    let mut scene = closed();
    assert_eq!(kept(&*scene.local).len(), 1);
    cut_off(&scene);
    let db = scene.open();
    assert_eq!((cold(&db), db.recovery().damaged_tables.len()), ((1, 1), 0));
    let keyspace = db.keyspace("k").unwrap();
    put(&keyspace, &mut scene, &key(7));
    db.flush().unwrap();
    assert_eq!(keyspace.get(key(7)).unwrap().as_deref(), Some(&b"new"[..]), "a newer table has it");
    // Keys that lie between those of the cold table. A filter is wrong for one in 256.
    let absent = (0..200).map(|number| [&key(number)[..], b"?"].concat());
    let found: Vec<_> = absent.map(|key| keyspace.get(key)).collect();
    assert!(found.iter().all(|found| !matches!(found, Ok(Some(_)))));
    assert!(found.iter().filter(|found| found.is_err()).count() < 20, "{found:?}");
    let error = keyspace.get(key(5)).unwrap_err();
    assert!(error.to_string().contains(".table"), "{error}");
    drop((keyspace, db));

    scene.remote.heal();
    let db = scene.open();
    let keyspace = db.keyspace("k").unwrap();
    assert_same(&keyspace, &scene.model, "it answers again");
    let reads = db.statistics().cold.unwrap().reads;
    assert!(reads.reads > 0 && reads.failures == 0, "{reads:?}");
}

/// A page that is kept and damaged is read from the object store.
#[test]
fn damage_of_kept_pages_costs_requests_alone() {
    for damaged in 0..3 {
        let scene = closed();
        let name = format!("{}.kept", kept(&*scene.local).remove(0));
        let pages = scene.local.open(&name, Access::Direct).unwrap().size().unwrap() / 4096;
        for page in (damaged..pages).step_by(3) {
            scene.local.flip(&name, page * 4096 + 77, 1).unwrap();
        }
        let db = scene.open();
        assert!(db.recovery().damaged_tables.is_empty(), "{damaged}: {:?}", db.recovery());
        assert_same(&db.keyspace("k").unwrap(), &scene.model, "read from the object store");
        assert_eq!(db.statistics().damages, 0, "{damaged}");
    }
}

fn repaired(devices: &Views) -> terracedb::Result<RepairReport> {
    let options = RepairOptions::default();
    repair_with(&devices.device, &LogConfig::default(), options, &mut |_, _| {})
}

#[test]
fn a_repair_leaves_cold_tables_as_they_are() {
    let mut scene = closed();
    let devices = Views::of(Arc::clone(&scene.local) as _);
    let report = repaired(&devices).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.cold_tables, report.tables), (1, 0));

    // A local table with one key is damaged, and so is the log behind it.
    let db = scene.open();
    let keyspace = db.keyspace("k").unwrap();
    put(&keyspace, &mut scene, b"lost");
    db.flush().unwrap();
    put(&keyspace, &mut scene, b"kept");
    drop((keyspace, db));
    let table = names(&*scene.local, ".table").remove(0);
    scene.local.flip(&table, 100, 1).unwrap();
    let log = names(&*scene.local, "log-").pop().unwrap();
    scene.local.flip(&log, 100, 1).unwrap();
    let before = kept(&*scene.local);
    let report = repaired(&devices).unwrap();
    assert_eq!((report.cold_tables, report.repaired.len()), (1, 1), "{report:?}");
    assert!(report.log.is_some(), "{report:?}");
    assert_eq!(kept(&*scene.local), before);
    let db = scene.open();
    assert_eq!(cold(&db).0, 1);
    let keyspace = db.keyspace("k").unwrap();
    for key in [&b"lost"[..], b"kept"] {
        scene.model.remove(key);
        keyspace.delete(key).unwrap();
    }
    assert_same(&keyspace, &scene.model, "after the repair");
}

#[test]
fn a_repair_without_a_manifest_loses_no_cold_table_in_silence() {
    let scene = closed();
    let devices = Views::of(Arc::clone(&scene.local) as _);
    for name in names(&*scene.local, "manifest-") {
        scene.local.remove(&name).unwrap();
    }
    let before = scene.local.list().unwrap();
    let error = repaired(&devices).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
    let names = |files: Vec<media::Listing>| {
        files.into_iter().map(|file| file.name).filter(|name| name != "LOCK").collect::<Vec<_>>()
    };
    assert_eq!(names(scene.local.list().unwrap()), names(before));
}

#[test]
fn the_log_of_a_store_with_cold_tables_moves() {
    let mut scene = closed();
    let devices = Views::of(Arc::clone(&scene.local) as _);
    let db = scene.open();
    put(&db.keyspace("k").unwrap(), &mut scene, b"in the log");
    drop(db);
    let config = |places: &[&str]| {
        let places = places.iter().map(|place| (*place).to_owned()).collect();
        LogConfig { devices: Arc::clone(&devices) as _, lanes: Some(2), ..LogConfig::at(places) }
    };
    let moved = move_log(&devices.device, &config(&[]), &config(&["one"])).unwrap();
    assert_eq!(moved.places, ["one"]);
    let open = || -> Db {
        let db = scene.stepped.on(Arc::clone(&devices.device));
        let db = db.object_store_medium(Arc::clone(&scene.remote) as _, super::AFTER);
        db.log_devices(Arc::clone(&devices) as _).open().unwrap()
    };
    let db = open();
    assert_eq!(cold(&db).0, 1);
    assert_same(&db.keyspace("k").unwrap(), &scene.model, "after the move");
}

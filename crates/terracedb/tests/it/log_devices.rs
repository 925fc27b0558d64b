//! The log on devices of storage-class memory: found again and refused by name, moved, copied, repaired, and
//! recovered after power cuts at any line.

use base::{Durability, ErrorKind, Rng};
use media::{Faulty, Freeze, Medium, MemoryMedium};
use std::sync::Arc;
use terracedb::tools::{
    Backup, CheckpointOptions, LogConfig, RepairOptions, check_with, move_log, repair_with,
};
use terracedb::{Db, WriteOptions};

use crate::common::{Ended, Script, Views, memory};

/// A store on `medium` with its log on `places` if it is created, or found at them if there are some.
fn open_at(devices: &Arc<Views>, places: &[&str]) -> terracedb::Result<Db> {
    let builder = Db::on_medium(Arc::clone(&devices.device)).memory(crate::common::MEMORY);
    builder
        .log_path(places.iter().copied())
        .log_lanes(2)
        .log_devices(Arc::clone(devices) as _)
        .open()
}

fn config(devices: &Arc<Views>, places: &[&str]) -> LogConfig {
    let places = places.iter().map(|place| (*place).to_owned()).collect();
    LogConfig { devices: Arc::clone(devices) as _, lanes: Some(2), ..LogConfig::at(places) }
}

/// Writes the keys `from..to`, each by a thread of its own, so that all lanes get some.
fn write(db: &Db, from: u32, to: u32) {
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in from..to {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let options = WriteOptions::new().durability(Durability::Sync);
                keyspace.put_opt(format!("{number:06}"), number.to_le_bytes(), &options).unwrap();
            });
        });
    }
}

fn assert_has(db: &Db, from: u32, to: u32, why: &str) {
    let keyspace = db.keyspace("k").unwrap();
    for number in from..to {
        let got = keyspace.get(format!("{number:06}")).unwrap();
        assert_eq!(got.as_deref(), Some(&number.to_le_bytes()[..]), "{why}: key {number}");
    }
    let beyond = keyspace.get(format!("{to:06}")).unwrap();
    assert_eq!(beyond, None, "{why}");
}

/// The names of log segments on the medium, with those of the devices' parts.
fn segments(medium: &Arc<dyn Medium>) -> Vec<String> {
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    names.filter(|name| name.contains("log-") && !name.contains("log-device")).collect()
}

#[test]
fn a_store_finds_its_devices_again_and_syncs_nothing() {
    let devices = Views::of(memory());
    let db = open_at(&devices, &["one", "two"]).unwrap();
    write(&db, 0, 40);
    let log = db.statistics().log;
    assert_eq!((log.lanes, log.syncs), (4, 0));
    assert!(log.fences >= 40 && log.records >= 40, "{log:?}");
    drop(db);
    let found = segments(&devices.device);
    let on = |place: &str| found.iter().filter(|name| name.starts_with(place)).count();
    assert!(on("one.") >= 2 && on("two.") >= 2 && on("log-") == 0, "{found:?}");
    // The places are recorded; other places of the same devices are too.
    let db = open_at(&devices, &[]).unwrap();
    assert_has(&db, 0, 40, "without places");
    write(&db, 40, 60);
    drop(db);
    let db = open_at(&devices, &["two", "one"]).unwrap();
    assert_has(&db, 0, 60, "in another order");
    db.flush().unwrap();
    drop(db);
    let report = check_with(&devices.device, &config(&devices, &[]), &mut |_, _| {}).unwrap();
    assert!(report.is_clean() && report.log_segments >= 4, "{:?}", report.problems);
}

#[test]
fn a_missing_foreign_or_unneeded_device_is_refused_by_name() {
    let devices = Views::of(memory());
    let db = open_at(&devices, &["one", "two"]).unwrap();
    write(&db, 0, 10);
    drop(db);
    let refused = |places: &[&str], names: &[&str]| {
        let error = open_at(&devices, places).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        for name in names {
            assert!(error.to_string().contains(name), "{places:?}: {error}");
        }
    };
    refused(&["one"], &["last at `two`", "`one`"]);
    refused(&["one", "empty"], &["last at `two`"]);
    devices.missing.lock().insert("two".to_owned());
    refused(&[], &["last at `two`"]);
    devices.missing.lock().clear();

    // Another store's device, swapped with this one's. It is refused before it is written.
    let others = Views::of(memory());
    let db = open_at(&others, &["one", "three"]).unwrap();
    write(&db, 0, 10);
    drop(db);
    for name in devices.at("one").list().unwrap() {
        devices.at("one").remove(&name.name).unwrap();
    }
    let copied = wal::DeviceHeader::find(&others.at("one")).unwrap().unwrap();
    copied.install(&devices.at("one")).unwrap();
    refused(&[], &["last at `one`", "another store"]);
    refused(&["one", "two"], &["log.path `one`", "another store"]);

    // A store with its log in its directory.
    let flash = Views::of(memory());
    drop(open_at(&flash, &[]).unwrap());
    let error = open_at(&flash, &["one"]).unwrap_err();
    assert!(error.to_string().contains("terrace log move"), "{error}");
    // A device that has another store's log is not taken for a new store.
    let error = Db::on_medium(Arc::new(MemoryMedium::new()))
        .log_path(["three"])
        .log_devices(Arc::clone(&others) as _)
        .open()
        .unwrap_err();
    assert!(error.to_string().contains("log.path `three`"), "{error}");
}

#[test]
fn a_log_moves_between_media_with_all_its_writes() {
    let devices = Views::of(memory());
    let db = open_at(&devices, &[]).unwrap();
    let (mut written, mut from) = (25, &[][..]);
    write(&db, 0, written);
    drop(db);
    for to in [&["one", "two"][..], &["three"], &["one", "two", "four"], &[], &["two"]] {
        let report =
            move_log(&devices.device, &config(&devices, &[]), &config(&devices, to)).unwrap();
        assert_eq!((report.places.len(), report.left.len()), (to.len(), 0), "{to:?}");
        assert_eq!(report.lanes, if to.is_empty() { 1 } else { 2 * to.len() });
        let found = segments(&devices.device);
        let is_at = |name: &String, place: &str| match place {
            "" => name.starts_with("log-"),
            place => name.starts_with(&format!("{place}.")),
        };
        let places = if to.is_empty() { &[""][..] } else { to };
        let elsewhere = found.iter().find(|name| !places.iter().any(|place| is_at(name, place)));
        assert_eq!(elsewhere, None, "{from:?} to {to:?}");
        for _ in 0..2 {
            let db = open_at(&devices, &[]).unwrap();
            assert_has(&db, 0, written, &format!("{from:?} to {to:?}"));
            write(&db, written, written + 5);
            written += 5;
        }
        from = to;
        let report = check_with(&devices.device, &config(&devices, &[]), &mut |_, _| {}).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
    }
    let error = move_log(&devices.device, &config(&devices, &["one"]), &config(&devices, &[]));
    assert!(error.is_err(), "the store is not at `one`");
}

/// The power fails at any change of a move, or of the opening after it: every write is there, and the move
/// can be repeated.
#[test]
fn a_power_cut_at_any_change_of_a_move_loses_nothing() {
    let (mut rng, seed) = Rng::from_env();
    for (from, to) in
        [(&[][..], &["one", "two"][..]), (&["one", "two"], &["three"]), (&["one"], &[])]
    {
        let start = MemoryMedium::new();
        let start: Arc<dyn Medium> = Arc::new(start);
        let devices = Views::of(Arc::clone(&start));
        let db = open_at(&devices, from).unwrap();
        write(&db, 0, 12);
        drop(db);
        let image = copy(&start);
        let changes = {
            let device = Arc::new(Faulty::over(&image, 1).unwrap().with_lines());
            let devices = Views::of(Arc::clone(&device) as _);
            move_log(&devices.device, &config(&devices, &[]), &config(&devices, to)).unwrap();
            device.changes()
        };
        for point in (0..changes + 4).step_by(9 + rng.below(5) as usize) {
            let why =
                format!("TERRACE_SEED={seed}: {from:?} to {to:?}, change {point} of {changes}");
            let mut device = Arc::new(Faulty::over(&image, rng.next_u64()).unwrap().with_lines());
            device.freeze(Freeze::AtChange(point));
            let devices = Views::of(Arc::clone(&device) as _);
            let (present, new) = (config(&devices, &[]), config(&devices, to));
            move_log(&devices.device, &present, &new)
                .unwrap_or_else(|error| panic!("{why}: {error}"));
            for second in [true, false] {
                let image = device.crash_image(rng.next_u64()).unwrap();
                device = Arc::new(Faulty::over(&image, rng.next_u64()).unwrap().with_lines());
                let devices = Views::of(Arc::clone(&device) as _);
                if second {
                    device.freeze(Freeze::AtChange(rng.below(30)));
                }
                let db = open_at(&devices, &[]).unwrap_or_else(|error| panic!("{why}: {error}"));
                assert_has(&db, 0, 12, &why);
            }
            let devices = Views::of(Arc::clone(&device) as _);
            let (present, new) = (config(&devices, &[]), config(&devices, to));
            match move_log(&devices.device, &present, &new) {
                Ok(_) => {}
                // The log had moved before the fault struck.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{why}: {error}"),
            }
            assert_has(&open_at(&devices, &[]).unwrap(), 0, 12, &why);
        }
    }
}

fn copy(medium: &Arc<dyn Medium>) -> MemoryMedium {
    let image = MemoryMedium::new();
    for file in medium.list().unwrap() {
        let content = medium.undecorated().downcast_ref::<MemoryMedium>().unwrap();
        image.insert(&file.name, content.content(&file.name).unwrap()).unwrap();
    }
    image
}

/// A device is lost for good. The store refuses to open; a check names the device; a repair keeps all that
/// the other device has, says what is lost, and the store goes on with its log in its directory.
#[test]
fn a_repair_goes_on_without_a_lost_device() {
    let devices = Views::of(memory());
    let db = open_at(&devices, &["one", "two"]).unwrap();
    write(&db, 0, 30);
    db.flush().unwrap();
    write(&db, 30, 60);
    drop(db);
    devices.missing.lock().insert("two".to_owned());
    let present = config(&devices, &[]);
    let report = check_with(&devices.device, &present, &mut |_, _| {}).unwrap();
    assert!(report.problems.iter().any(|problem| problem.file == "two"), "{:?}", report.problems);
    let repair = |dry_run| {
        let options = RepairOptions { dry_run, ..RepairOptions::default() };
        repair_with(&devices.device, &present, options, &mut |_, _| {}).unwrap()
    };
    let before = segments(&devices.device);
    let report = repair(true);
    assert!(
        report.log.as_ref().is_some_and(|log| log.error.to_string().contains("two")),
        "{report:?}"
    );
    assert_eq!(segments(&devices.device), before, "a dry run changes nothing");
    let report = repair(false);
    let log = report.log.unwrap();
    assert!(log.costs_writes(), "{log}");
    let db = open_at(&devices, &[]).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    let has = |number: u32| keyspace.get(format!("{number:06}")).unwrap().is_some();
    assert!((0..30).all(has), "flushed writes are in tables");
    let kept = (30..60).filter(|number| has(*number)).count();
    assert!((5..30).contains(&kept), "{kept} of the writes of two lanes of four");
    assert_eq!(db.statistics().log.lanes, 1);
    keyspace.put("after", "the repair").unwrap();
    drop((db, keyspace));
    let db = open_at(&devices, &[]).unwrap();
    assert!(db.keyspace("k").unwrap().get("after").unwrap().is_some());
    drop(db);
    assert!(repair(false).is_clean());
}

#[test]
fn checkpoints_and_backups_of_a_store_with_devices_are_whole_stores() {
    let directory = tempfile::tempdir().unwrap();
    let devices = Views::of(memory());
    let db = open_at(&devices, &["one", "two"]).unwrap();
    write(&db, 0, 30);
    db.flush().unwrap();
    write(&db, 30, 60);
    for (name, flush) in [("plain", false), ("flushed", true)] {
        let path = directory.path().join(name);
        db.checkpoint_opt(&path, &CheckpointOptions::default().flush(flush)).unwrap();
        let copy = Db::builder(&path).open().unwrap();
        assert_has(&copy, 0, 60, name);
        write(&copy, 60, 70);
        drop(copy);
        assert_has(&Db::builder(&path).open().unwrap(), 0, 70, name);
    }
    let backup = Backup::open(directory.path().join("backups")).unwrap();
    backup.create(&db, "").unwrap();
    let restored = directory.path().join("restored");
    backup.restore(1, &restored).unwrap();
    assert_has(&Db::builder(&restored).open().unwrap(), 0, 60, "restored");
    write(&db, 60, 61);
    drop(db);
    assert_has(&open_at(&devices, &[]).unwrap(), 0, 61, "the original");
}

/// Random scripts of the whole API, cut at any change or fence of all devices together.
#[test] // I2, I3, I11
fn a_power_cut_with_the_log_on_devices_is_recovered() {
    let (mut rng, seed) = Rng::from_env();
    let is_given = std::env::var_os("TERRACE_SEED").is_some();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 600 } else { 24 };
    for round in 0..rounds {
        let seed = if is_given { seed } else { rng.next_u64() };
        let devices = 1 + round % 2;
        let mut script = Script::with_log_on(devices, seed);
        let mut rng = Rng::new(!seed);
        for life in 0..3 {
            let most = if life == 0 { 500 } else { 60 };
            let freeze = match rng.below(3) {
                0 => Freeze::AtSync(rng.below(most / 2)),
                _ => Freeze::AtChange(rng.below(most)),
            };
            script.context =
                format!("TERRACE_SEED={seed}, {devices} devices, life {life}, {freeze:?}");
            script.device.freeze(freeze);
            let ended = if life > 0 && rng.one_in(3) { Ended::Process } else { Ended::Power };
            let opened = script.open(ended);
            opened.unwrap_or_else(|error| panic!("{}: {error}", script.context));
            script.begin().unwrap();
            for _ in 0..40 {
                if script.device.is_frozen() {
                    break;
                }
                script.step().unwrap_or_else(|error| panic!("{}: {error}", script.context));
            }
            script.lose_power();
        }
        script.context = format!("TERRACE_SEED={seed}, {devices} devices, the end");
        script.open(Ended::Power).unwrap_or_else(|error| panic!("{}: {error}", script.context));
    }
}

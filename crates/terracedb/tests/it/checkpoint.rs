//! Checkpoints: an independent store with one consistent state, whatever runs or fails meanwhile.
//!
//! I3: a store that has a manifest has all its files. I11: a checkpoint holds every write acknowledged
//! before the call, and whole batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{ErrorKind, Rng};
use media::{Fault, Freeze, Medium, MemoryMedium, OpKind, Purpose, Rule};
use terracedb::tools::CheckpointOptions;
use terracedb::{Db, Resources};

use crate::common::{
    self, MEMORY, Model, Stepped, assert_pairs, assert_same, faulty, fill, put_pair, threaded,
    until,
};

#[test]
fn a_checkpoint_is_an_independent_store() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..4 {
        let why = format!("TERRACE_SEED={seed}, round {round}");
        let directory = tempfile::tempdir().unwrap();
        let (source, place) = (directory.path().join("store"), directory.path().join("copy"));
        // Both stores share one cache, which must tell their pages apart.
        let resources = Resources::builder().memory(2 * MEMORY).build().unwrap();
        let db = Db::builder(&source).resources(&resources).open().unwrap();
        let mut model = Model::new();
        fill(&db, &mut rng, &mut model, 3000, true);
        let options = CheckpointOptions::default().flush(round % 2 == 1);
        let report = db.checkpoint_opt(&place, &options).unwrap();
        assert_eq!(report.files_copied, 0, "{why}: one file system");
        assert!(report.files_linked > 0 || round % 2 == 0, "{why}: {report:?}");
        let copy = Db::builder(&place).resources(&resources).open().unwrap();
        assert!(copy.recovery().damaged_tables.is_empty() && !copy.recovery().created, "{why}");
        assert!(copy.recovery().log_torn.is_none(), "{why}");
        assert!(round % 2 == 0 || copy.recovery().log_records == 0, "{why}");
        assert_same(&copy.open_or_create_keyspace("k").unwrap(), &model, &why);
        // Later writes to one store do not appear in the other.
        let mut copied = model.clone();
        fill(&db, &mut rng, &mut model, 1000, true);
        fill(&copy, &mut rng, &mut copied, 1000, true);
        db.flush().unwrap();
        copy.flush().unwrap();
        assert_same(&db.open_or_create_keyspace("k").unwrap(), &model, &why);
        assert_same(&copy.open_or_create_keyspace("k").unwrap(), &copied, &why);
        drop((db, std::fs::remove_dir_all(&source)));
        assert_same(&copy.open_or_create_keyspace("k").unwrap(), &copied, &why);
        drop(copy);
        let medium = media::FileMedium::open(&place, media::FileOptions::default()).unwrap();
        let medium = Arc::new(medium) as Arc<dyn Medium>;
        let checked = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
        assert!(checked.is_clean() && checked.unowned.is_empty(), "{why}: {checked:?}");
        let error = Db::builder(&place).memory(MEMORY).open().unwrap().checkpoint(&place);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid, "{why}: it is not empty");
    }
}

/// Stops the threads of a test when it is dropped, so that a failing test ends too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Scenario: writes, flushes, merges, and creation and drops of keyspaces go on while checkpoints are made.
#[test] // I11
fn a_checkpoint_during_writes_holds_whole_batches_and_every_acknowledged_write() {
    let (_, seed) = Rng::from_env();
    let medium = common::memory();
    let db = threaded(&medium).open().unwrap();
    let (one, two) =
        (db.open_or_create_keyspace("one").unwrap(), db.open_or_create_keyspace("two").unwrap());
    let (stop, next) = (AtomicBool::new(false), AtomicU64::new(0));
    // Numbers are handed out up to this limit, so the length of the test does not depend on the machine.
    let limit = AtomicU64::new(0);
    let acknowledged: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (db, stop, next, limit) = (&db, &stop, &next, &limit);
            let acknowledged = &acknowledged[thread as usize];
            scope.spawn(move || {
                let mut rng = Rng::new(seed ^ thread);
                while !stop.load(Ordering::Relaxed) {
                    if next.load(Ordering::Relaxed) >= limit.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                        continue;
                    }
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    // All of this thread's numbers below this one are acknowledged.
                    acknowledged.store(number, Ordering::SeqCst);
                    put_pair(db, number, rng.below(2000) as usize);
                }
                acknowledged.store(u64::MAX, Ordering::SeqCst);
            });
        }
        let (db, stop, one, two) = (&db, &stop, &one, &two);
        let _stop = Stop(stop);
        scope.spawn(move || {
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let passing =
                    db.open_or_create_keyspace(&format!("passing {}", round % 3)).unwrap();
                passing.put("k", vec![1; 100_000]).unwrap();
                match round % 4 {
                    0 => one.flush().unwrap(),
                    1 => two.compact_range::<&[u8]>(..).unwrap(),
                    2 => two.flush().unwrap(),
                    _ => one.compact_range::<&[u8]>(..).unwrap(),
                }
                assert!(db.drop_keyspace(passing.name()).unwrap());
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        for round in 0..12 {
            // Each checkpoint is taken while numbers are written, however late the threads start.
            let half = limit.fetch_add(1500, Ordering::Relaxed) + 750;
            until("half of the numbers", || (next.load(Ordering::Relaxed) >= half).then_some(()));
            let lowest = acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).min();
            let copy = common::memory();
            db.checkpoint_on(&copy, &CheckpointOptions::default().flush(round % 3 == 2)).unwrap();
            let copied = threaded(&copy).open().unwrap();
            let why = format!("TERRACE_SEED={seed}, round {round}");
            assert!(copied.recovery().log_torn.is_none(), "{why}");
            assert_pairs(&copied, lowest.unwrap(), &why);
        }
    });
    assert_eq!(acknowledged.iter().filter(|n| n.load(Ordering::SeqCst) == u64::MAX).count(), 3);
    drop((db, one, two));
    // Files held for the checkpoint are released.
    let checked = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
    assert!(checked.is_clean() && checked.unowned.is_empty(), "{checked:?}");
}

/// A store with some tables and some log records.
fn source(seed: u64) -> (Db, Model, Arc<dyn Medium>) {
    let (_, medium) = faulty(seed);
    let db = Stepped::new(seed).on(Arc::clone(&medium)).open().unwrap();
    let (mut rng, mut model) = (Rng::new(seed), Model::new());
    for _ in 0..3 {
        fill(&db, &mut rng, &mut model, 150, true);
        db.flush().unwrap();
    }
    fill(&db, &mut rng, &mut model, 100, true);
    (db, model, medium)
}

/// Opens the store at the checkpoint's target; `None` if there is no store.
fn open_if_whole(image: MemoryMedium, seed: u64, why: &str) -> Option<Db> {
    let image = Arc::new(image) as Arc<dyn Medium>;
    match Stepped::new(seed).on(image).create_if_missing(false).open() {
        Ok(db) => Some(db),
        Err(error) => {
            let kinds = [ErrorKind::Invalid, ErrorKind::Corrupt];
            assert!(kinds.contains(&error.kind()), "{why}: {error}");
            None
        }
    }
}

/// Scenario: the power fails at any sync or any change of a checkpoint.
#[test] // I3
fn an_interrupted_checkpoint_is_whole_or_no_store() {
    let (db, model, _medium) = source(7);
    let (device, medium) = faulty(8);
    db.checkpoint_on(&medium, &CheckpointOptions::default()).unwrap();
    let syncs = (0..device.syncs()).map(Freeze::AtSync);
    let points: Vec<_> = syncs.chain((0..device.changes()).map(Freeze::AtChange)).collect();
    assert!(points.len() > 10, "{}", points.len());
    let (mut whole, mut none) = (0, 0);
    for point in points {
        for seed in 0..4 {
            let why = format!("{point:?}, seed {seed}");
            let (device, medium) = faulty(seed);
            device.freeze(point);
            db.checkpoint_on(&medium, &CheckpointOptions::default()).unwrap();
            assert!(device.is_frozen(), "{why}");
            match open_if_whole(device.crash_image(seed).unwrap(), seed, &why) {
                Some(copy) => {
                    assert_same(&copy.open_or_create_keyspace("k").unwrap(), &model, &why);
                    whole += 1;
                }
                None => none += 1,
            }
        }
    }
    assert!(whole > 0 && none > 0, "{whole} whole, {none} none");
    let copy = open_if_whole(device.crash_image(1).unwrap(), 1, "when it is done").unwrap();
    assert_same(&copy.open_or_create_keyspace("k").unwrap(), &model, "when it is done");
}

/// Scenario: each operation on the target of a checkpoint fails in turn.
#[test]
fn a_failed_checkpoint_is_no_store_and_leaves_the_source_intact() {
    let (db, model, _medium) = source(9);
    let mut failures = 0;
    for on in [OpKind::Write, OpKind::Sync, OpKind::Names] {
        for fault in [Fault::Io, Fault::NoSpace] {
            if on == OpKind::Sync && fault == Fault::NoSpace {
                continue;
            }
            for nth in 0.. {
                let why = format!("{on:?} {nth}, {fault:?}");
                let (device, medium) = faulty(nth);
                device.inject(Rule::new(on, fault.clone()).after(nth)).unwrap();
                let made = db.checkpoint_on(&medium, &CheckpointOptions::default());
                if device.struck() == 0 {
                    made.unwrap();
                    break;
                }
                let error = made.expect_err(&why);
                let kinds = [ErrorKind::NoSpace, ErrorKind::Corrupt];
                assert!(kinds.contains(&error.kind()), "{why}: {error}");
                failures += 1;
                // A whole store after an error is possible only if the last sync of names failed.
                if let Some(copy) = open_if_whole(device.crash_image(nth).unwrap(), nth, &why) {
                    assert_same(&copy.open_or_create_keyspace("k").unwrap(), &model, &why);
                }
            }
        }
    }
    assert!(failures > 20, "{failures}");
    assert_same(&db.open_or_create_keyspace("k").unwrap(), &model, "the store");
    assert!(db.statistics().poisoned.is_none());
}

/// A device of another kind: files cannot be linked, and copied files are verified.
#[test]
fn a_checkpoint_on_another_device_is_a_verified_copy() {
    let (device, medium) = faulty(3);
    let db = Stepped::new(3).on(Arc::clone(&medium)).open().unwrap();
    let (mut rng, mut model) = (Rng::new(3), Model::new());
    fill(&db, &mut rng, &mut model, 800, true);
    db.flush().unwrap();
    let copy = common::memory();
    let report = db.checkpoint_on(&copy, &CheckpointOptions::default()).unwrap();
    assert!(report.files_copied > 0 && report.files_linked == 0, "{report:?}");
    let copied = Stepped::new(4).on(Arc::clone(&copy)).open().unwrap();
    assert_same(&copied.open_or_create_keyspace("k").unwrap(), &model, "the copy");
    drop(copied);
    assert!(terracedb::tools::check(&copy, &mut |_, _| ()).unwrap().is_clean());

    let again = db.checkpoint_on(&copy, &CheckpointOptions::default()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Invalid, "{again}");

    let listed = medium.list().unwrap();
    let table = listed.iter().find(|file| file.name.ends_with(".table")).unwrap();
    device.flip(&table.name, table.len / 2, 1).unwrap();
    let error = db.checkpoint_on(&common::memory(), &CheckpointOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(&table.name), "{error}");
}

/// Scenario: the sync of the store's log fails, and the device drops all, some or none of the unsynced
/// data. A checkpoint has the state that readers see, or is no store.
#[test] // I11
fn a_checkpoint_after_a_failed_log_sync_has_the_visible_state_or_is_refused() {
    let (mut made, mut refused) = (0, 0);
    for seed in 0..20 {
        let why = format!("seed {seed}");
        let (device, medium) = faulty(seed);
        let db = Stepped::new(seed).on(medium).open().unwrap();
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        fill(&db, &mut rng, &mut model, 100, false);
        device.inject(Rule::new(OpKind::Sync, Fault::Io).purpose(Purpose::Log)).unwrap();
        db.sync().unwrap_err();
        let (to, copy) = faulty(seed);
        match db.checkpoint_on(&copy, &CheckpointOptions::default()) {
            Ok(_) => made += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Poisoned, "{why}: {error}");
                refused += 1;
            }
        }
        if let Some(copy) = open_if_whole(to.process_death_image().unwrap(), seed, &why) {
            assert_same(&copy.open_or_create_keyspace("k").unwrap(), &model, &why);
        }
    }
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
}

//! The start of the log: removed segments before it are not missed, and not read if they come back.
//!
//! I7, I11. A power cut may undo the removal of a segment, but not that of another segment removed later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::ErrorKind;
use media::{Medium, MemoryMedium};

use crate::common::{Stepped, assert_tidy};

const PUTS: u32 = 800;
const KEYS: u32 = 50;

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 100 << 10]
}

fn segments(medium: &MemoryMedium) -> Vec<String> {
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    names.filter(|name| name.starts_with("log-")).collect()
}

/// Writes many segments of log and closes the store; returns the last content of every segment that
/// existed.
fn written(stepped: &Stepped, medium: &Arc<MemoryMedium>) -> BTreeMap<String, Vec<u8>> {
    let mut seen = BTreeMap::new();
    let db = stepped.on(Arc::clone(medium) as _).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..PUTS {
        keyspace.put((number % KEYS).to_be_bytes(), value(number)).unwrap();
        if number % 10 == 0 {
            for name in segments(medium) {
                let content = medium.content(&name).unwrap();
                seen.insert(name, content);
            }
        }
    }
    seen
}

#[test] // I7
fn a_removed_segment_that_came_back_is_not_read_and_is_removed() {
    let stepped = Stepped::new(1);
    let medium = Arc::new(MemoryMedium::new());
    let seen = written(&stepped, &medium);
    let left = left_segments(&stepped, &medium);
    let removed: Vec<_> = seen.into_iter().filter(|(name, _)| !left.contains(name)).collect();
    assert!(removed.len() > 5, "{} segments were freed", removed.len());
    for back in removed.chunks(2) {
        // A segment older than others that did not come back.
        let (name, content) = &back[0];
        medium.insert(name, content.clone()).unwrap();
        let report = terracedb::tools::check(&(Arc::clone(&medium) as _), &mut |_, _| {}).unwrap();
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
        assert_eq!(report.unowned, std::slice::from_ref(name));
        let db = stepped.on(Arc::clone(&medium) as _).open().unwrap();
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        for key in 0..KEYS {
            let got = keyspace.get(key.to_be_bytes()).unwrap().unwrap();
            assert!(got[..] == value(PUTS - KEYS + key), "{name}: key {key}");
        }
        assert!(!segments(&medium).contains(name), "{name}");
        assert_tidy(&db, &*medium, name);
    }
}

/// The segments of a closed store from the start of its log; an open removes older ones.
fn left_segments(stepped: &Stepped, medium: &Arc<MemoryMedium>) -> Vec<String> {
    drop(stepped.on(Arc::clone(medium) as _).open().unwrap());
    segments(medium)
}

/// While the log grows, segments are created ahead. A second after the last write the space of unneeded
/// ones is free again, and the next writer goes on.
#[test]
fn segments_created_ahead_are_freed_when_writes_pause() {
    let stepped = Stepped::new(2);
    let medium = Arc::new(MemoryMedium::new());
    let db = stepped.on(Arc::clone(&medium) as _).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..PUTS {
        keyspace.put((number % KEYS).to_be_bytes(), value(number)).unwrap();
    }
    stepped.work(100);
    let growing = segments(&medium).len();
    db.flush().unwrap();
    db.wait_until_settled().unwrap();
    let flushed = segments(&medium).len();
    for _ in 0..3 {
        stepped.pass(Duration::from_secs(1));
        stepped.work(100);
    }
    let rested = segments(&medium).len();
    assert!(rested < flushed && flushed <= growing && rested <= 2, "{growing} {flushed} {rested}");
    for number in PUTS..2 * PUTS {
        keyspace.put((number % KEYS).to_be_bytes(), value(number)).unwrap();
    }
    drop((keyspace, db));
    let db = stepped.on(Arc::clone(&medium) as _).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for key in 0..KEYS {
        let got = keyspace.get(key.to_be_bytes()).unwrap().unwrap();
        assert!(got[..] == value(2 * PUTS - KEYS + key), "key {key}");
    }
    drop((keyspace, db));
    let report = terracedb::tools::check(&(Arc::clone(&medium) as _), &mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// A lost segment with successors is neither the end of the log nor a later start of it.
#[test] // I7
fn a_lost_first_segment_is_damage() {
    let stepped = Stepped::new(3);
    let medium = Arc::new(MemoryMedium::new());
    written(&stepped, &medium);
    let left = left_segments(&stepped, &medium);
    assert!(left.len() >= 2, "{left:?}");
    let shared = || Arc::clone(&medium) as Arc<dyn Medium>;
    shared().remove(&left[0]).unwrap();
    let error = stepped.on(shared()).open().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&left[0]), "{error}");
    let report = terracedb::tools::check(&shared(), &mut |_, _| {}).unwrap();
    assert!(report.problems.iter().any(|problem| problem.file == left[0]), "{:?}", report.problems);
    // Opening with `recover_damaged_log` gives up the records behind the gap: the store has the contents of
    // its tables and works normally.
    let db = stepped.on(shared()).recover_damaged_log(true).open().unwrap();
    assert!(db.recovery().log_damage.is_some());
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    keyspace.put("later", "kept").unwrap();
    drop((keyspace, db));
    let db = stepped.on(shared()).open().unwrap();
    assert!(db.open_or_create_keyspace("k").unwrap().get("later").unwrap().is_some());
    drop(db);
    let report = terracedb::tools::check(&shared(), &mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// Repair reports the same damage, and leaves a whole store.
#[test]
fn a_lost_first_segment_is_repaired() {
    let stepped = Stepped::new(4);
    let medium = Arc::new(MemoryMedium::new());
    written(&stepped, &medium);
    let left = left_segments(&stepped, &medium);
    let shared = || Arc::clone(&medium) as Arc<dyn Medium>;
    shared().remove(&left[0]).unwrap();
    let report = terracedb::tools::repair(
        &shared(),
        terracedb::tools::RepairOptions::default(),
        &mut |_, _| {},
    )
    .unwrap();
    let lost = report.log.expect("the report says that the log is damaged");
    assert!(lost.error.to_string().contains(&left[0]), "{}", lost.error);
    let db = stepped.on(shared()).open().unwrap();
    assert!(db.open_or_create_keyspace("k").unwrap().get(1u32.to_be_bytes()).unwrap().is_some());
}

/// The record of a flush also states which log it makes dead, so freeing the log needs no sync.
#[test]
fn freeing_the_log_needs_no_manifest_record_of_its_own() {
    let medium = Arc::new(MemoryMedium::new());
    written(&Stepped::new(2), &medium);
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    let manifest = names.filter(|name| name.starts_with("manifest-")).max().unwrap();
    let (_, records) = terracedb::tools::inspect_manifest(&*medium, &manifest).unwrap();
    let says = |edits: &[String], what: &str| edits.iter().any(|edit| edit.contains(what));
    let beginning = records.iter().skip(1).filter(|record| says(&record.edits, "begins with"));
    let (with, alone): (Vec<_>, Vec<_>) =
        beginning.partition(|record| says(&record.edits, "flushed below"));
    assert!(with.len() > 5 && alone.is_empty(), "{} with flushes, {alone:?}", with.len());
}

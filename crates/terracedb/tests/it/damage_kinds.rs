//! Flipped bytes in every kind of file that a store writes: those that tests/damage.rs goes through byte by
//! byte, and dictionaries and ingested tables, whose long values lie in them until they are merged.
//!
//! I8: what is read is right, or said to be damaged.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::VALUE_APART_BYTES;
use base::{ErrorKind, Rng};
use common::{Image, Stepped, record, used};
use media::{Medium, MemoryMedium};
use table::{Header, PageKind};
use terracedb::{Builder, Codec, RepairOptions};

/// What the names of a store's files have in them, one for each kind.
const KINDS: [&str; 5] = ["manifest-", "log-", ".table", ".values", ".dictionary"];

/// A long value of an ingest.
const LONG: usize = VALUE_APART_BYTES + 4000;

/// Dictionaries are only trained where there is memory to train in. Background work runs where someone
/// waits: no file comes or goes while an image of the store is taken.
fn builder(medium: &Arc<MemoryMedium>) -> Builder {
    Stepped::with_memory(1, 256 << 20).on(Arc::clone(medium) as _).codec(Codec::Zstd)
}

/// What a key of a keyspace holds.
type Model = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

/// A store with files of every kind; the table that was ingested.
fn store() -> (Image, Model, String) {
    let medium = Arc::new(MemoryMedium::new());
    let db = builder(&medium).open().unwrap();
    let mut model = Model::new();
    let records = db.keyspace("records").unwrap();
    for number in 0..20_000u64 {
        let value = record(number);
        records.put(number.to_be_bytes(), &value).unwrap();
        if number % 41 == 0 {
            model.insert(("records", number.to_be_bytes().into()), value.into());
        }
    }
    db.flush().unwrap();
    let apart = db.keyspace("apart").unwrap();
    for number in 0..6u64 {
        let value = common::noise(LONG + number as usize);
        apart.put(number.to_be_bytes(), &value).unwrap();
        model.insert(("apart", number.to_be_bytes().into()), value);
    }
    db.flush().unwrap();
    let before = Image::of(&medium);
    let mut ingest = db.keyspace("ingested").unwrap().ingest().unwrap();
    for number in 0..200u64 {
        let value = common::noise(if number % 20 == 3 { LONG } else { 90 } + number as usize);
        ingest.add(number.to_be_bytes(), &value).unwrap();
        model.insert(("ingested", number.to_be_bytes().into()), value);
    }
    ingest.finish().unwrap();
    let after = Image::of(&medium);
    let is_new = |name: &&String| name.ends_with(".table") && !before.0.contains_key(*name);
    let ingested: Vec<_> = after.0.keys().filter(is_new).cloned().collect();
    assert_eq!(ingested.len(), 1);
    records.put("in the log", "x").unwrap();
    drop((records, apart, db));
    (Image::of(&medium), model, ingested[0].clone())
}

/// Asks the store everything; how many keys answer `Corrupt`. `None` where it is not opened, and names
/// `file`.
fn lost(medium: &Arc<MemoryMedium>, model: &Model, file: &str, why: &str) -> Option<usize> {
    let db = match builder(medium).open() {
        Ok(db) => db,
        Err(error) => {
            assert!(error.kind() == ErrorKind::Corrupt, "{why}: {error}");
            assert!(error.to_string().contains(file), "{why}: {error}");
            return None;
        }
    };
    let mut lost = 0;
    for ((keyspace, key), value) in model {
        match db.existing_keyspace(keyspace).unwrap().get(key) {
            Ok(got) => assert!(got.as_deref() == Some(&value[..]), "{why}: `{keyspace}` {key:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{why}: {error}");
                lost += 1;
            }
        }
    }
    Some(lost)
}

/// A store whose log is damaged in `name` is repaired: what is in tables is there, the log's last
/// record too unless it is the damaged one, and writes go on.
fn assert_repaired(medium: &Arc<MemoryMedium>, model: &Model, name: &str, why: &str) {
    let shared = Arc::clone(medium) as Arc<dyn Medium>;
    let report = terracedb::repair(&shared, RepairOptions::default(), &mut |_, _| {}).unwrap();
    let log = report.log.unwrap_or_else(|| panic!("{why}: nothing is told"));
    assert_eq!(lost(medium, model, name, why), Some(0), "{why}");
    let db = builder(medium).open().unwrap();
    let records = db.keyspace("records").unwrap();
    let is_there = records.get("in the log").unwrap().is_some();
    assert!(is_there || log.costs_writes(), "{why}: {log}");
    records.put("later", "kept").unwrap();
    drop((records, db));
    let db = builder(medium).open().unwrap();
    assert!(db.keyspace("records").unwrap().get("later").unwrap().is_some(), "{why}");
}

#[test]
fn a_flipped_byte_in_any_kind_of_file_is_told_or_costs_nothing() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (files, model, ingested) = store();
    for name in files.0.keys() {
        let kinds = KINDS.iter().filter(|kind| name.contains(**kind)).count();
        assert_eq!(kinds, 1, "{name} is of a kind that no test damages");
    }
    for kind in KINDS {
        for name in files.named(kind) {
            for round in 0..3 {
                let content = &files.0[name];
                let at = match (kind, round) {
                    // Its header, which is all that there is of an unused segment.
                    ("log-" | "manifest-", 0) => 9,
                    _ => rng.below(used(content).max(1) as u64) as usize,
                };
                let why = format!("TERRACE_SEED={seed}: byte {at} of {name}");
                let damaged = files.flipped(name, at, 1 << rng.below(8));
                let lost = lost(&damaged, &model, name, &why);
                match kind {
                    "manifest-" => assert_eq!(lost, Some(0), "{why}"),
                    "log-" if lost.is_none() => assert_repaired(&damaged, &model, name, &why),
                    "log-" => assert_eq!(lost, Some(0), "{why}"),
                    ".values" => assert!(lost.unwrap() <= 1, "{why}: {lost:?}"),
                    ".dictionary" => assert!(lost.unwrap() > 0, "{why}: {lost:?}"),
                    // Every 41st record is asked for, and a page holds some tens.
                    _ => assert!(lost.unwrap() < 60, "{why}: {lost:?}"),
                }
            }
        }
    }
    // A long value of an ingested table is a block of its own: nothing else is lost with it.
    let content = &files.0[&ingested];
    let runs = content.chunks(4096).enumerate().filter(|(_, page)| {
        Header::parse(page)
            .is_ok_and(|it| it.kind == PageKind::Data && it.payload_bytes as usize > LONG)
    });
    let runs: Vec<_> = runs.map(|(page, _)| page).collect();
    // Ten values of six pages.
    assert_eq!(runs.len(), 60);
    for page in runs.into_iter().step_by(7) {
        let at = page * 4096 + rng.below(4096) as usize;
        let why = format!("TERRACE_SEED={seed}: byte {at} of {ingested}");
        let medium = files.flipped(&ingested, at, 1 << rng.below(8));
        assert_eq!(lost(&medium, &model, &ingested, &why), Some(1), "{why}");
    }
}

//! Flipped bytes in every kind of file that a store writes: the kinds that `damage` covers byte by byte,
//! and also dictionaries, tables with long merge operands, which are stored with their keys, tables with
//! straddled pages, and those of a window that evicted some.
//!
//! I8: a read returns the right value or reports the damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::VALUE_APART_BYTES;
use base::{ErrorKind, Rng};
use media::{Medium, MemoryMedium};
use table::{Header, PageKind};
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::operators::Append;
use terracedb::tools::RepairOptions;
use terracedb::{Builder, Codec, KeyspaceOptions};

use crate::common::{self, Image, Stepped, record, used};

/// A part of the file names of each kind.
const KINDS: [&str; 7] =
    ["manifest-", "keyspace-", "hot-pages", "log-", ".table", ".values", ".dictionary"];

/// The length of a long value or operand, bytes.
const LONG: usize = VALUE_APART_BYTES + 4000;

/// Enough memory to train dictionaries. Background work runs only while a caller waits, so no file comes or
/// goes while an image of the store is taken.
fn builder(medium: &Arc<MemoryMedium>) -> Builder {
    Stepped::with_memory(1, 256 << 20).on(Arc::clone(medium) as _).codec(Codec::Zstd)
}

/// Values by keyspace and key.
type Model = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

/// A store with files of every kind, its contents, and the name of the table with long operands.
fn store() -> (Image, Model, String) {
    let medium = Arc::new(MemoryMedium::new());
    let db = builder(&medium).open().unwrap();
    let mut model = Model::new();
    add_hashed(&db, &mut model);
    let records = db.open_or_create_keyspace("records").unwrap();
    for number in 0..20_000u64 {
        let value = record(number);
        records.put(number.to_be_bytes(), &value).unwrap();
        if number % 41 == 0 {
            model.insert(("records", number.to_be_bytes().into()), value.into());
        }
    }
    db.flush().unwrap();
    let apart = db.open_or_create_keyspace("apart").unwrap();
    for number in 0..6u64 {
        let value = common::noise(LONG + number as usize);
        apart.put(number.to_be_bytes(), &value).unwrap();
        model.insert(("apart", number.to_be_bytes().into()), value);
    }
    db.flush().unwrap();
    let mut ingest = db.open_or_create_keyspace("ingested").unwrap().ingest().unwrap();
    for number in 0..200u64 {
        let value = common::noise(if number % 20 == 3 { LONG } else { 90 } + number as usize);
        ingest.put(number.to_be_bytes(), &value).unwrap();
        model.insert(("ingested", number.to_be_bytes().into()), value);
    }
    ingest.finish().unwrap();
    let options = KeyspaceOptions::new().merge_operator(Append::NAME);
    let operands = db.open_or_create_keyspace_opt("operands", &options).unwrap();
    // An older table that may hold the keys: without it, a flush makes values of the operands.
    operands.put(0u64.to_be_bytes(), "").unwrap();
    operands.put(u64::MAX.to_be_bytes(), "").unwrap();
    operands.flush().unwrap();
    let before = Image::of(&medium);
    for number in 0..200u64 {
        let value = common::noise(if number % 20 == 3 { LONG } else { 90 } + number as usize);
        operands.merge(number.to_be_bytes(), &value).unwrap();
        model.insert(("operands", number.to_be_bytes().into()), value);
    }
    operands.flush().unwrap();
    let after = Image::of(&medium);
    let is_new = |name: &&String| name.ends_with(".table") && !before.0.contains_key(*name);
    let with_operands: Vec<_> = after.0.keys().filter(is_new).cloned().collect();
    assert_eq!(with_operands.len(), 1);
    records.put("in the log", "x").unwrap();
    drop((records, apart, operands, db));
    (Image::of(&medium), model, with_operands[0].clone())
}

/// Writes a hashed keyspace of entries that straddle pages, and a small window that evicts.
fn add_hashed(db: &terracedb::Db, model: &mut Model) {
    let options = |policy| KeyspaceOptions::new().hashed(policy);
    let large = db.open_or_create_keyspace_opt("large", &options(HashedPolicy::Keep)).unwrap();
    for number in 0..120u64 {
        let value = common::noise(1000 + number as usize);
        large.put(number.to_be_bytes(), &value).unwrap();
        model.insert(("large", number.to_be_bytes().into()), value);
    }
    large.flush().unwrap();
    let policy = HashedPolicy::Window { bytes: 128 << 10, discard: Discard::Clock };
    let window = db.open_or_create_keyspace_opt("window", &options(policy)).unwrap();
    for number in 0..240u64 {
        window.put(number.to_be_bytes(), common::noise(1000 + number as usize)).unwrap();
        if number % 40 == 39 {
            window.flush().unwrap();
            db.wait_until_settled().unwrap();
            assert!(
                window.get(1u64.to_be_bytes()).unwrap().is_some(),
                "it is read again and again"
            );
        }
    }
    let left = window.entries().unwrap().map(Result::unwrap);
    let before = model.len();
    model.extend(left.map(|(key, value)| (("window", key.to_vec()), value.to_vec())));
    let held = model.len() - before;
    assert!((30..200).contains(&held), "{held} of 240");
}

/// Reads everything in the store; returns the number of keys that answer `Corrupt`. `None` if the store
/// does not open, with an error that names `file`.
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
        match db.keyspace(keyspace).unwrap().get(key) {
            Ok(got) => assert!(got.as_deref() == Some(&value[..]), "{why}: `{keyspace}` {key:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{why}: {error}");
                lost += 1;
            }
        }
    }
    Some(lost)
}

/// Repairs a store with a damaged log segment `name`: everything in tables is present, and so is the last
/// record of the log unless it is the damaged one; writes go on.
fn assert_repaired(medium: &Arc<MemoryMedium>, model: &Model, name: &str, why: &str) {
    let shared = Arc::clone(medium) as Arc<dyn Medium>;
    let report =
        terracedb::tools::repair(&shared, RepairOptions::default(), &mut |_, _| {}).unwrap();
    let log = report.log.unwrap_or_else(|| panic!("{why}: nothing is reported"));
    assert_eq!(lost(medium, model, name, why), Some(0), "{why}");
    let db = builder(medium).open().unwrap();
    let records = db.open_or_create_keyspace("records").unwrap();
    let is_there = records.get("in the log").unwrap().is_some();
    assert!(is_there || log.costs_writes(), "{why}: {log}");
    records.put("later", "kept").unwrap();
    drop((records, db));
    let db = builder(medium).open().unwrap();
    assert!(
        db.open_or_create_keyspace("records").unwrap().get("later").unwrap().is_some(),
        "{why}"
    );
}

#[test]
fn a_flipped_byte_in_any_kind_of_file_is_reported_or_harmless() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (files, model, with_operands) = store();
    let is_straddled = |page: &[u8]| Header::parse(page).is_ok_and(|it| it.straddle.is_some());
    let straddled = files.0.values().filter(|it| it.chunks(4096).any(is_straddled)).count();
    assert!(straddled >= 2, "{straddled} tables with straddled pages");
    for name in files.0.keys() {
        let kinds = KINDS.iter().filter(|kind| name.contains(**kind)).count();
        assert_eq!(kinds, 1, "{name} is of a kind that no test damages");
    }
    for kind in KINDS {
        for name in files.named(kind) {
            for round in 0..3 {
                let content = &files.0[name];
                let at = match (kind, round) {
                    // An unused segment holds nothing but its header.
                    ("log-" | "manifest-", 0) => 9,
                    _ => rng.below(used(content).max(1) as u64) as usize,
                };
                let why = format!("TERRACE_SEED={seed}: byte {at} of {name}");
                let damaged = files.flipped(name, at, 1 << rng.below(8));
                let lost = lost(&damaged, &model, name, &why);
                match kind {
                    "manifest-" | "keyspace-" | "hot-pages" => assert_eq!(lost, Some(0), "{why}"),
                    "log-" if lost.is_none() => assert_repaired(&damaged, &model, name, &why),
                    "log-" => assert_eq!(lost, Some(0), "{why}"),
                    ".values" => assert!(lost.unwrap() <= 1, "{why}: {lost:?}"),
                    ".dictionary" => assert!(lost.unwrap() > 0, "{why}: {lost:?}"),
                    // Every 41st record is read, and a page holds some tens of records.
                    _ => assert!(lost.unwrap() < 60, "{why}: {lost:?}"),
                }
            }
        }
    }
    // A long operand begins a block or fills one alone, so damage to its block loses it and at most the entry
    // beside it.
    let content = &files.0[&with_operands];
    let runs = content.chunks(4096).enumerate().filter(|(_, page)| {
        Header::parse(page)
            .is_ok_and(|it| it.kind == PageKind::Data && it.payload_bytes as usize > LONG)
    });
    let runs: Vec<_> = runs.map(|(page, _)| page).collect();
    // Ten operands of six pages.
    assert_eq!(runs.len(), 60);
    for page in runs.into_iter().step_by(7) {
        let at = page * 4096 + rng.below(4096) as usize;
        let why = format!("TERRACE_SEED={seed}: byte {at} of {with_operands}");
        let medium = files.flipped(&with_operands, at, 1 << rng.below(8));
        let lost = lost(&medium, &model, &with_operands, &why);
        assert!(matches!(lost, Some(1 | 2)), "{why}: {lost:?}");
    }
}

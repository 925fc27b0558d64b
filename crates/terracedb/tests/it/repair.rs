//! Repair after one flipped byte anywhere, missing files, a lost manifest, a damaged log, or on a full
//! device. Afterwards `check` is clean, the store opens, and every key not reported lost reads right.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{ErrorKind, HashKey, KeyForm, PageSeed, Rng, StoreId};
use media::{Faulty, Medium, MemoryMedium};
use terracedb::tools::{RepairOptions, RepairReport, check, repair};
use terracedb::{Codec, KeyspaceOptions};

use crate::common::{self, Image, Model, Stepped, show, used};

const NAMES: [&str; 2] = ["one", "two"];

/// The hash key of `two`.
const HASH_KEY: [u8; HashKey::BYTES] = [9; HashKey::BYTES];

/// The stored form of `key`, by which a report names lost keys.
fn stored(name: &str, key: &[u8]) -> Vec<u8> {
    let form = match name {
        "two" | "recovered-2" => KeyForm::Hashed(HashKey::new(HASH_KEY)),
        _ => KeyForm::Plain,
    };
    form.stored(key).unwrap().bytes().to_vec()
}

/// The files of a store with an ordered and a hashed keyspace, and its contents.
struct Sample {
    files: Image,
    models: BTreeMap<&'static str, Model>,
    stepped: Stepped,
}

impl Sample {
    /// Overlapping tables, range deletes, an ingest, and unflushed log records; with `merged`, merges ran
    /// too.
    fn new(seed: u64, codec: Codec, merged: bool) -> Self {
        let medium = Arc::new(MemoryMedium::new());
        let stepped = Stepped::new(seed);
        let db = stepped.on(Arc::clone(&medium) as _).codec(codec).open().unwrap();
        let mut models: BTreeMap<_, _> = NAMES.map(|name| (name, Model::new())).into();
        let mut rng = Rng::new(seed);
        for round in 0..4u64 {
            for name in NAMES {
                let options = match name {
                    "two" => common::cells::hashed_options().hash_key(HASH_KEY),
                    _ => KeyspaceOptions::new(),
                };
                let keyspace = db.open_or_create_keyspace_opt(name, &options).unwrap();
                let model = models.get_mut(name).unwrap();
                for number in 0..if round == 0 { 600 } else { 100 } {
                    let key = common::key(if round == 0 { number } else { rng.below(600) });
                    if round > 0 && rng.one_in(4) {
                        keyspace.delete(&key).unwrap();
                        model.remove(&key);
                    } else {
                        let mut value = vec![round as u8; 120];
                        rng.fill(&mut value[..80]);
                        keyspace.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
                if round == 1 {
                    let (from, to) = (common::key(100), common::key(120));
                    match keyspace.hashed_policy() {
                        None => keyspace.delete_range(from.clone()..to.clone()).unwrap(),
                        Some(_) => {
                            (100..120).for_each(|n| keyspace.delete(common::key(n)).unwrap())
                        }
                    }
                    model.retain(|key, _| *key < from || *key >= to);
                }
            }
            if round < 3 {
                db.flush().unwrap();
            }
            if round == 1 && merged {
                db.compact().unwrap();
            }
        }
        drop(db);
        Self { files: Image::of(&medium), models, stepped }
    }

    /// Repairs the store, and asserts everything that must hold after any repair.
    fn repair(&self, medium: &Arc<MemoryMedium>, why: &str) -> RepairReport {
        let shared = Arc::clone(medium) as Arc<dyn Medium>;
        let before = Image::of(medium);
        let dry =
            repair(&shared, RepairOptions { dry_run: true, ..Default::default() }, &mut |_, _| {});
        let dry = dry.unwrap_or_else(|error| panic!("{why}: {error}"));
        assert!(Image::of(medium) == before, "{why}: a dry run changed something");
        let report = repair(&shared, RepairOptions::default(), &mut |_, _| {});
        let report = report.unwrap_or_else(|error| panic!("{why}: {error}"));
        assert_eq!((dry.is_clean(), &dry.lost), (report.is_clean(), &report.lost), "{why}");
        let checked = check(&shared, &mut |_, _| {}).unwrap();
        assert!(checked.is_clean(), "{why}: {:?}\n{report:?}", checked.problems);
        // A second repair changes nothing.
        let again = repair(&shared, RepairOptions::default(), &mut |_, _| {}).unwrap();
        assert!(again.is_clean(), "{why}: {again:?}");
        report
    }

    /// Opens the repaired store and reads everything; returns the number of lost keys, all of which the
    /// report names.
    fn ask(&self, medium: &Arc<MemoryMedium>, report: &RepairReport, why: &str) -> usize {
        self.ask_all(medium, report, why, &mut |name, key| {
            let key = &stored(name, key);
            report.lost.iter().any(|lost| {
                let (from, to) = lost.keys.as_ref().expect("keys that are known");
                lost.keyspace.as_deref() == Some(name) && from <= key && key <= to
            })
        })
    }

    /// As [`Sample::ask`]; `may_be_lost` says which keys of which keyspaces may be lost.
    fn ask_all(
        &self,
        medium: &Arc<MemoryMedium>,
        report: &RepairReport,
        why: &str,
        may_be_lost: &mut dyn FnMut(&str, &Vec<u8>) -> bool,
    ) -> usize {
        let db = self.stepped.on(Arc::clone(medium) as _).open();
        let db = db.unwrap_or_else(|error| panic!("{why}: {error}\n{report:?}"));
        assert!(db.recovery().damaged_tables.is_empty(), "{why}");
        let mut wrong = 0;
        for (name, model) in &self.models {
            let keyspace = db.keyspace(name).unwrap_or_else(|error| panic!("{why}: {error}"));
            for key in (0..600).map(common::key) {
                let got = keyspace.get(&key).unwrap_or_else(|error| panic!("{why}: {error}"));
                if got.as_deref() == model.get(&key).map(Vec::as_slice) {
                    continue;
                }
                wrong += 1;
                assert!(
                    may_be_lost(name, &key),
                    "{why}: `{name}` {} is wrong: {report:?}",
                    show(&key)
                );
            }
            keyspace.put("key000010", "new").unwrap();
            assert_eq!(keyspace.get("key000010").unwrap().as_deref(), Some(&b"new"[..]), "{why}");
        }
        db.compact().unwrap_or_else(|error| panic!("{why}: {error}"));
        wrong
    }
}

/// Offsets below `end`: every one with `TERRACE_LONG`, else about `count` of them.
fn offsets(rng: &mut Rng, end: usize, count: usize) -> Vec<usize> {
    if std::env::var_os("TERRACE_LONG").is_some() {
        return (0..end).collect();
    }
    (0..count.min(end)).map(|_| rng.below(end as u64) as usize).collect()
}

#[test]
fn repair_changes_nothing_in_an_undamaged_store() {
    let sample = Sample::new(1, Codec::Lz4, true);
    let medium = sample.files.with("", None);
    let before = Image::of(&medium);
    let report = sample.repair(&medium, "whole");
    assert!(report.is_clean() && report.kept.is_empty(), "{report:?}");
    assert!(Image::of(&medium) == before);
    assert_eq!(sample.ask(&medium, &report, "whole"), 0);
    let empty = Arc::new(MemoryMedium::new()) as Arc<dyn Medium>;
    let none = repair(&empty, RepairOptions::default(), &mut |_, _| {}).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Invalid);
}

/// One flipped byte anywhere in a table, dictionary or manifest: only reported keys are lost, and the
/// damaged file is kept.
#[test] // I8
fn a_flipped_byte_loses_only_reported_keys() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (mut repaired, mut lost) = (0, 0);
    for (codec, merged) in [(Codec::Lz4, false), (Codec::Lz4, true), (Codec::Zstd, true)] {
        let sample = Sample::new(seed, codec, merged);
        for (name, content) in &sample.files.0 {
            if name.starts_with("log-") || content.is_empty() {
                continue;
            }
            for at in offsets(&mut rng, used(content).max(1), 3) {
                let why = format!("seed {seed} {codec:?} {merged}: byte {at} of {name}");
                let medium = sample.files.flipped(name, at, 1 << rng.below(8));
                let damaged = medium.content(name).unwrap();
                let report = sample.repair(&medium, &why);
                if let [kept] = &report.kept[..] {
                    assert!(medium.content(kept) == Some(damaged), "{why}: {kept}");
                }
                repaired += report.repaired.len();
                lost += sample.ask(&medium, &report, &why);
            }
        }
    }
    assert!(repaired > 8 && lost > 8, "{repaired} repaired, {lost} keys lost");
}

/// A flipped byte of the log loses its record, and the report names it; a damaged Begin or Mark record
/// loses nothing.
#[test] // I8
fn a_flipped_byte_of_the_log_loses_only_its_record() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let sample = Sample::new(seed, Codec::Lz4, false);
    let (mut reported, mut lost) = (0, 0);
    for name in sample.files.named("log-") {
        let content = &sample.files.0[name];
        let end = used(content);
        let mut places = offsets(&mut rng, end.max(1), 20);
        // The header, the Begin behind it, and the unflushed records.
        places.extend([5, 33, 4096 + 2, 4096 + 6, 4096 + 30]);
        places.extend((0..20).map(|_| end - 1 - rng.below(end.min(20_000) as u64) as usize));
        places.retain(|at| *at < end);
        for at in places {
            let why = format!("seed {seed}: byte {at} of {name}");
            let medium = sample.files.flipped(name, at, 1 << rng.below(8));
            let damaged = medium.content(name).unwrap();
            let report = sample.repair(&medium, &why);
            let wrong = sample.ask_all(&medium, &report, &why, &mut |_, _| true);
            let Some(log) = &report.log else {
                assert_eq!(wrong, 0, "{why}");
                continue;
            };
            reported += 1;
            assert!(report.kept.iter().any(|kept| medium.content(kept) == Some(damaged.clone())));
            assert!(report.repaired.is_empty() && report.lost.is_empty(), "{why}: {report:?}");
            // One record holds one write here; a lost write to a key that was written again later is not
            // missed.
            let seqnos = log.lost.iter().map(|lost| {
                let below = lost.seqnos.1.unwrap_or_else(|| panic!("{why}: {log}"));
                assert!(lost.to.is_some() && lost.from.file == *name, "{why}: {log}");
                below - lost.seqnos.0
            });
            let seqnos: u64 = seqnos.sum();
            assert!(seqnos <= 1 && wrong as u64 <= seqnos && log.ends.is_none(), "{why}: {log}");
            assert_eq!(log.costs_writes(), seqnos > 0, "{why}: {log}");
            lost += seqnos;
        }
    }
    assert!(reported > 10 && lost > 5, "{reported} reported, {lost} lost");
}

/// Without its log a store has the contents of its tables, and the report says that it lost writes.
#[test]
fn a_missing_log_loses_only_unflushed_writes() {
    let sample = Sample::new(6, Codec::Lz4, false);
    let medium = sample.files.with("", None);
    for name in sample.files.named("log-") {
        medium.remove(name).unwrap();
    }
    let report = sample.repair(&medium, "no log");
    let log = report.log.as_ref().expect("the report says that the log is missing");
    assert!(log.ends.is_some() && log.costs_writes(), "{log}");
    assert!(sample.ask_all(&medium, &report, "no log", &mut |_, _| true) > 0);
}

#[test]
fn a_missing_table_loses_only_its_keys() {
    let sample = Sample::new(3, Codec::Lz4, true);
    for name in sample.files.named(".table") {
        let medium = sample.files.with(name, None);
        let report = sample.repair(&medium, name);
        assert_eq!((report.repaired.len(), &report.repaired[0].file), (1, name));
        assert!(!report.lost.is_empty() && report.kept.is_empty());
        sample.ask(&medium, &report, name);
    }
}

/// A file of a newer format version is not damage, and repair would lose parts of it.
#[test]
fn a_table_of_a_newer_version_is_refused() {
    let sample = Sample::new(7, Codec::Lz4, false);
    let name = sample.files.named(".table")[1];
    let mut content = sample.files.0[name].clone();
    let pages = content.len() / PAGE_BYTES;
    let table = table::parse_file_name(name).unwrap();
    for number in pages - 2..pages {
        let page = &mut content[number * PAGE_BYTES..][..PAGE_BYTES];
        // Behind the header: magic, version, length, store id.
        page[24 + 8] = 200;
        let store = u128::from_le_bytes(*page[24 + 16..].first_chunk().unwrap());
        let checksum = PageSeed::new(StoreId(store), table).checksum(number as u32, &page[8..]);
        page[..8].copy_from_slice(&checksum.to_le_bytes());
    }
    for manifest in [None, Some(sample.files.named("manifest-")[0])] {
        let medium = sample.files.with(name, Some(content.clone()));
        if let Some(manifest) = manifest {
            medium.remove(manifest).unwrap();
        }
        let before = Image::of(&medium);
        let shared = Arc::clone(&medium) as Arc<dyn Medium>;
        let error = repair(&shared, RepairOptions::default(), &mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(Image::of(&medium) == before, "{error}");
    }
}

/// The salvaged rest of an ingested table keeps its position among the runs, even if the manifest is
/// rebuilt.
#[test]
fn a_salvaged_ingest_keeps_its_run_order_without_a_manifest() {
    let medium = Arc::new(MemoryMedium::new());
    let stepped = Stepped::new(8);
    let db = stepped.on(Arc::clone(&medium) as _).open().unwrap();
    let keyspace = db.open_or_create_keyspace("one").unwrap();
    keyspace.put("before", "x").unwrap();
    db.flush().unwrap();
    let mut ingest = keyspace.ingest().unwrap();
    let mut rng = Rng::new(8);
    for number in 0..600 {
        let mut value = [0; 100];
        rng.fill(&mut value);
        ingest.put(common::key(number), value).unwrap();
    }
    ingest.finish().unwrap();
    for number in 0..600 {
        keyspace.put(common::key(number), "over it").unwrap();
    }
    db.flush().unwrap();
    drop((keyspace, db));
    let image = Image::of(&medium);
    let tables = image.named(".table");
    assert_eq!(tables.len(), 3);
    // One block of the ingested table.
    let medium = image.flipped(tables[1], 99, 1);
    let shared = Arc::clone(&medium) as Arc<dyn Medium>;
    let report = repair(&shared, RepairOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!((report.repaired.len(), &report.repaired[0].file), (1, tables[1]), "{report:?}");
    let manifests = Image::of(&medium);
    for name in manifests.named("manifest-") {
        medium.remove(name).unwrap();
    }
    repair(&shared, RepairOptions::default(), &mut |_, _| {}).unwrap();
    let db = stepped.on(shared).open().unwrap();
    let keyspace = db.keyspace("recovered-1").unwrap();
    for number in 0..600 {
        let got = keyspace.get(common::key(number)).unwrap();
        assert_eq!(got.as_deref(), Some(&b"over it"[..]), "{number}");
    }
}

/// Without any manifest, all data is present; only the names of keyspaces without a file are lost.
#[test]
fn a_lost_manifest_is_rebuilt() {
    for seed in 0..5 {
        let sample = Sample::new(seed, Codec::Lz4, false);
        let manifest = sample.files.named("manifest-")[0];
        let medium = sample.files.with(manifest, None);
        let hashed = if seed % 2 == 0 { "two" } else { "recovered-2" };
        if hashed != "two" {
            medium.remove("keyspace-2").unwrap();
        }
        let mut renamed = Sample::new(seed, Codec::Lz4, false);
        renamed.models = [("recovered-1", "one"), (hashed, "two")]
            .map(|(new, old)| (new, renamed.models.remove(old).unwrap()))
            .into();
        let why = format!("seed {seed}");
        let report = renamed.repair(&medium, &why);
        assert!(report.manifest.is_some() && report.uncertain.is_empty(), "{report:?}");
        assert_eq!(renamed.ask(&medium, &report, &why), 0, "{why}");
    }
    // Merged tables do not record which keys a later table hides: the report calls them uncertain.
    let sample = Sample::new(9, Codec::Zstd, true);
    let medium = sample.files.with(sample.files.named("manifest-")[0], None);
    let report = sample.repair(&medium, "merged");
    assert_eq!(report.uncertain, ["recovered-1", "two"]);
    let db = sample.stepped.on(medium as _).open().unwrap();
    for (new, old) in [("recovered-1", "one"), ("two", "two")] {
        let keyspace = db.keyspace(new).unwrap();
        for (key, value) in &sample.models[old] {
            assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]), "{}", show(key));
        }
    }
}

/// A rebuilt manifest has no merge operator: the report names the keyspace, whose keys answer errors until
/// it is opened with the operator.
#[test]
fn a_lost_merge_operator_is_reported() {
    use terracedb::KeyspaceOptions;
    use terracedb::operators::I64Add;
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let stepped = Stepped::new(5);
    let db = stepped.on(Arc::clone(&medium)).open().unwrap();
    let options = KeyspaceOptions::new().merge_operator(I64Add::NAME);
    let sums = db.open_or_create_keyspace_opt("sums", &options).unwrap();
    // An operand over an older table stays an operand.
    sums.put("a", 1i64.to_le_bytes()).unwrap();
    db.flush().unwrap();
    sums.merge("a", 7i64.to_le_bytes()).unwrap();
    let plain = db.open_or_create_keyspace("plain").unwrap();
    plain.put("a", "b").unwrap();
    db.flush().unwrap();
    drop((sums, plain, db));
    for name in medium.list().unwrap().into_iter().map(|file| file.name) {
        if name.starts_with("manifest-") {
            medium.remove(&name).unwrap();
        }
    }
    let report = repair(&medium, RepairOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(report.operators, ["recovered-1"], "{report:?}");
    let db = stepped.on(Arc::clone(&medium)).open().unwrap();
    let sums = db.keyspace("recovered-1").unwrap();
    sums.get("a").unwrap_err();
    let sums = db.open_or_create_keyspace_opt("recovered-1", &options).unwrap();
    assert_eq!(sums.get("a").unwrap().unwrap(), 8i64.to_le_bytes()[..]);
    assert_eq!(db.keyspace("recovered-2").unwrap().get("a").unwrap().unwrap(), "b");
}

/// As before, if the log alone has the operands: no table tells of them.
#[test]
fn a_lost_merge_operator_of_operands_in_the_log_is_reported() {
    use terracedb::KeyspaceOptions;
    use terracedb::operators::I64Add;
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let stepped = Stepped::new(6);
    let db = stepped.on(Arc::clone(&medium)).open().unwrap();
    let options = KeyspaceOptions::new().merge_operator(I64Add::NAME);
    let sums = db.open_or_create_keyspace_opt("sums", &options).unwrap();
    sums.put("b", 1i64.to_le_bytes()).unwrap();
    db.flush().unwrap();
    sums.merge("a", 7i64.to_le_bytes()).unwrap();
    let young = db.open_or_create_keyspace_opt("young", &options).unwrap();
    young.merge("a", 9i64.to_le_bytes()).unwrap();
    let plain = db.open_or_create_keyspace("plain").unwrap();
    plain.put("a", "b").unwrap();
    drop((sums, young, plain, db));
    for name in medium.list().unwrap().into_iter().map(|file| file.name) {
        if name.starts_with("manifest-") {
            medium.remove(&name).unwrap();
        }
    }
    for dry_run in [true, false] {
        let options = RepairOptions { dry_run, ..Default::default() };
        let report = repair(&medium, options, &mut |_, _| {}).unwrap();
        assert_eq!(report.operators, ["recovered-1", "recovered-2"], "{report:?}");
    }
    let db = stepped.on(Arc::clone(&medium)).open().unwrap();
    db.keyspace("recovered-1").unwrap().get("a").unwrap_err();
    for (name, sum) in [("recovered-1", 7i64), ("recovered-2", 9)] {
        let sums = db.open_or_create_keyspace_opt(name, &options).unwrap();
        assert_eq!(sums.get("a").unwrap().unwrap(), sum.to_le_bytes()[..]);
    }
}

/// Both copies of a manifest record are damaged: the readable rest is used.
#[test] // I8
fn the_readable_part_of_a_manifest_with_both_copies_damaged_is_used() {
    let sample = Sample::new(4, Codec::Lz4, false);
    let name = sample.files.named("manifest-")[0];
    let content = &sample.files.0[name];
    let frames: Vec<_> =
        (0..content.len() - 4).filter(|at| &content[*at..at + 4] == b"MREC").collect();
    assert!(frames.len() > 6);
    // Headers, then each pair of frames except the last, whose loss is a torn end.
    let mut places = vec![(3, 515)];
    places.extend(frames.chunks(2).take(frames.len() / 2 - 1).map(|pair| (pair[0], pair[1])));
    for (one, two) in places {
        let mut damaged = content.clone();
        damaged[one + 5] ^= 1;
        damaged[two + 5] ^= 1;
        let why = format!("bytes {one} and {two}");
        let medium = sample.files.with(name, Some(damaged.clone()));
        assert_eq!(
            sample.stepped.on(Arc::clone(&medium) as _).open().unwrap_err().kind(),
            ErrorKind::Corrupt,
            "{why}"
        );
        let report = sample.repair(&medium, &why);
        assert!(report.manifest.is_some(), "{why}");
        assert!(report.kept.iter().any(|kept| medium.content(kept) == Some(damaged.clone())));
        let names: Vec<_> = {
            let db = sample.stepped.on(Arc::clone(&medium) as _).open().unwrap();
            db.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect()
        };
        if names == NAMES {
            assert_eq!(sample.ask(&medium, &report, &why), 0, "{why}");
        } else {
            assert!(names.iter().any(|name| name.starts_with("recovered-")), "{why}: {names:?}");
        }
    }
}

/// The device becomes full at any point of a repair: the repair fails, and the store is unchanged.
#[test]
fn a_full_device_leaves_the_store_as_it_was() {
    let sample = Sample::new(5, Codec::Lz4, false);
    let (mut failed, mut done) = (0, 0);
    for part in [".table", "manifest-"] {
        let name = sample.files.named(part)[0];
        let medium = match part {
            ".table" => sample.files.flipped(name, 9000, 1),
            _ => sample.files.with(name, Some(vec![7; 2000])),
        };
        let image = Image::of(&medium);
        for more in (0..40).map(|step| step * (32 << 10)) {
            let full = Arc::new(Faulty::over(&medium, 1).unwrap());
            full.set_capacity(Some(image.bytes() + more));
            let shared = Arc::clone(&full) as Arc<dyn Medium>;
            let repaired = repair(&shared, RepairOptions::default(), &mut |_, _| {});
            let after = full.process_death_image().unwrap();
            match repaired {
                Ok(report) => {
                    assert!(!report.is_clean());
                    done += 1;
                }
                Err(error) => {
                    failed += 1;
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{more}: {error}");
                    assert!(Image::of(&after) == image, "{part} and {more} bytes: {error}");
                }
            }
        }
    }
    assert!(failed > 5 && done > 5, "{failed} failed, {done} done");
}

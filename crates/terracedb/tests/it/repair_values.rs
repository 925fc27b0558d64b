//! Repair of value files: one flipped byte anywhere, a file that is cut or missing, a full device.
//! Afterwards `check` is clean and every key not reported lost reads right.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{ErrorKind, Rng};
use media::{Faulty, Medium, MemoryMedium};
use table::parse_values_file_name;
use terracedb::tools::{RepairOptions, RepairReport, check, repair};

use crate::common::{self, Image, Model, Stepped, show};

const KEYS: u64 = 24;

/// The files of a store, and its contents.
struct Sample {
    files: Image,
    model: Model,
    /// Every value that a key ever had.
    past: Vec<(Vec<u8>, Vec<u8>)>,
    stepped: Stepped,
}

impl Sample {
    /// Overlapping tables, each with a value file; compressed, uncompressed and short values.
    fn new(seed: u64) -> Self {
        let medium = Arc::new(MemoryMedium::new());
        let stepped = Stepped::new(seed);
        let db = stepped.on(Arc::clone(&medium) as _).open().unwrap();
        let keyspace = db.open_or_create_keyspace("one").unwrap();
        let (mut model, mut past) = (Model::new(), Vec::new());
        let mut rng = Rng::new(seed);
        for round in 0..3u8 {
            for number in 0..KEYS {
                let key = common::key(if round == 0 { number } else { rng.below(KEYS) });
                let length = [100, 17_000, 50_000, 90_000][rng.below(4) as usize];
                let mut value = vec![round; length];
                if rng.one_in(2) {
                    rng.fill(&mut value);
                }
                keyspace.put(&key, &value).unwrap();
                past.push((key.clone(), value.clone()));
                model.insert(key, value);
            }
            if round == 1 {
                keyspace.delete_range(common::key(3)..common::key(5)).unwrap();
                model.retain(|key, _| *key < common::key(3) || *key >= common::key(5));
            }
            db.flush().unwrap();
        }
        drop((keyspace, db));
        Self { files: Image::of(&medium), model, past, stepped }
    }

    fn value_files(&self) -> Vec<(&String, &Vec<u8>)> {
        self.files.0.iter().filter(|(name, _)| parse_values_file_name(name).is_some()).collect()
    }

    /// Repairs the store, and asserts everything that must hold after any repair.
    fn repair(&self, medium: &Arc<MemoryMedium>, file: &str, why: &str) -> RepairReport {
        let shared = Arc::clone(medium) as Arc<dyn Medium>;
        let before = Image::of(medium);
        let dry =
            repair(&shared, RepairOptions { dry_run: true, ..Default::default() }, &mut |_, _| {})
                .unwrap();
        assert!(Image::of(medium) == before, "{why}: a dry run changed something");
        let mut bytes = (0, 0);
        let report =
            repair(&shared, RepairOptions::default(), &mut |done, all| bytes = (done, all));
        let report = report.unwrap_or_else(|error| panic!("{why}: {error}"));
        assert!(bytes.0 == bytes.1 && bytes.0 == report.bytes, "{why}: {bytes:?}");
        assert_eq!((dry.is_clean(), &dry.lost), (report.is_clean(), &report.lost), "{why}");
        assert_eq!((report.repaired.len(), &*report.repaired[0].file), (1, file), "{why}");
        let checked = check(&shared, &mut |_, _| {}).unwrap();
        assert!(checked.is_clean(), "{why}: {:?}\n{report:?}", checked.problems);
        let again = repair(&shared, RepairOptions::default(), &mut |_, _| {}).unwrap();
        assert!(again.is_clean(), "{why}: {again:?}");
        // Repair deletes no file.
        for (name, content) in &before.0 {
            let kept =
                report.kept.iter().any(|kept| medium.content(kept).as_ref() == Some(content));
            let is_there = kept || medium.content(name).as_ref() == Some(content);
            assert!(is_there || name.starts_with("manifest-"), "{why}: {name}");
        }
        report
    }

    /// Opens the repaired store and reads everything; returns the number of lost keys.
    fn ask(&self, medium: &Arc<MemoryMedium>, report: &RepairReport, why: &str) -> usize {
        let db = self.stepped.on(Arc::clone(medium) as _).open().unwrap();
        let keyspace = db.keyspace("one").unwrap();
        let mut wrong = 0;
        for key in (0..KEYS).map(common::key) {
            let got = keyspace.get(&key).unwrap_or_else(|error| panic!("{why}: {error}"));
            if got.as_deref() == self.model.get(&key).map(Vec::as_slice) {
                continue;
            }
            wrong += 1;
            // The key has the value from before the lost write.
            let is_old = |value: &[u8]| self.past.iter().any(|(k, v)| *k == key && v == value);
            assert!(got.as_deref().is_none_or(is_old), "{why}: {}", show(&key));
            let is_told =
                report.lost.iter().any(|lost| lost.keys == Some((key.clone(), key.clone())));
            assert!(is_told, "{why}: {} is wrong: {report:?}", show(&key));
        }
        keyspace.put("new", "new").unwrap();
        db.compact().unwrap_or_else(|error| panic!("{why}: {error}"));
        db.wait_until_settled().unwrap();
        assert_eq!(db.statistics().compaction.failed, 0, "{why}");
        assert_eq!(keyspace.get("new").unwrap().as_deref(), Some(&b"new"[..]), "{why}");
        wrong
    }
}

/// One flipped byte anywhere in a value file loses the value on its page, which the report names; in the
/// footer it loses none.
#[test] // I8
fn a_flipped_byte_of_a_value_file_loses_one_reported_value() {
    let (mut rng, seed) = Rng::from_env();
    let sample = Sample::new(seed);
    assert_eq!(sample.value_files().len(), 3);
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 500 } else { 8 };
    let (mut lost, mut reported) = (0, 0);
    for (name, content) in sample.value_files() {
        let footer = content.len() - PAGE_BYTES;
        for round in 0..rounds {
            let at = if round == 0 { footer + 9 } else { rng.below(footer as u64) as usize };
            let why = format!("seed {seed}: byte {at} of {name}");
            let medium = sample.files.flipped(name, at, 1 << rng.below(8));
            let report = sample.repair(&medium, name, &why);
            assert!(report.lost.len() == usize::from(round > 0), "{why}: {report:?}");
            for range in &report.lost {
                let (first, count) = range.pages.unwrap();
                let page = (at / PAGE_BYTES) as u32;
                assert!((first..first + count).contains(&page), "{why}: {report:?}");
                assert_eq!((&range.file, range.keyspace.as_deref()), (name, Some("one")), "{why}");
            }
            assert!(report.repaired[0].new_file.is_some(), "{why}");
            reported += report.lost.len();
            lost += sample.ask(&medium, &report, &why);
        }
    }
    assert!(lost > 3 && lost <= reported, "seed {seed}: {lost} of {reported} reported values");
}

#[test]
fn a_missing_or_cut_value_file_loses_only_its_values() {
    let sample = Sample::new(3);
    for (name, content) in sample.value_files() {
        let half = content[..content.len() / 2].to_vec();
        for (changed, what) in [(None, "missing"), (Some(half), "cut off"), (Some(vec![]), "empty")]
        {
            let why = format!("{name} is {what}");
            let medium = sample.files.with(name, changed);
            let report = sample.repair(&medium, name, &why);
            assert!(!report.lost.is_empty(), "{why}");
            assert_eq!(report.repaired[0].new_file.is_some(), what == "cut off", "{why}");
            sample.ask(&medium, &report, &why);
        }
    }
}

/// Scenario: the manifest and the value file with the highest id are lost. Only tables name that id: it must
/// not be given to another file, or the rebuilt manifest contradicts itself.
#[test]
fn a_lost_value_file_keeps_its_id_when_the_manifest_is_rebuilt() {
    let sample = Sample::new(7);
    let id = |name: &String| parse_values_file_name(name).or_else(|| table::parse_file_name(name));
    let files = sample.files.0.keys().filter(|name| id(name).is_some());
    let newest = files.max_by_key(|name| id(name)).unwrap();
    assert!(parse_values_file_name(newest).is_some(), "{newest} is a value file");
    let medium = sample.files.with(newest, None);
    for manifest in sample.files.named("manifest-") {
        medium.remove(manifest).unwrap();
    }
    let shared = Arc::clone(&medium) as Arc<dyn Medium>;
    let report = repair(&shared, RepairOptions::default(), &mut |_, _| {}).unwrap();
    assert!(report.manifest.is_some() && !report.lost.is_empty(), "{report:?}");
    let checked = check(&shared, &mut |_, _| {}).unwrap();
    assert!(checked.is_clean(), "{:?}", checked.problems);
}

/// The device becomes full at any point of a repair: the repair fails, and the store is unchanged.
#[test]
fn a_full_device_leaves_the_store_as_it_was() {
    let sample = Sample::new(5);
    let (name, _) = sample.value_files()[0];
    let medium = sample.files.flipped(name, PAGE_BYTES + 7, 1);
    let image = Image::of(&medium);
    let (mut failed, mut done) = (0, 0);
    for more in (0..24).map(|step| step * (128 << 10)) {
        let full = Arc::new(Faulty::over(&medium, 1).unwrap());
        full.set_capacity(Some(image.bytes() + more));
        let shared = Arc::clone(&full) as Arc<dyn Medium>;
        match repair(&shared, RepairOptions::default(), &mut |_, _| {}) {
            Ok(report) => {
                assert!(!report.is_clean());
                done += 1;
            }
            Err(error) => {
                failed += 1;
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{more}: {error}");
                let after = full.process_death_image().unwrap();
                assert!(Image::of(&after) == image, "{more} bytes: {error}");
            }
        }
    }
    assert!(failed > 2 && done > 2, "{failed} failed, {done} done");
}
